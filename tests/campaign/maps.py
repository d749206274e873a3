"""Random maps: accepted with exactly the dynamics of a second implementation, or refused by name.

The rules are written here once more, from their description and without a look at the first
implementation: cells of a text, moves between them, walls that stop, starts, goals and slips.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.errors import RoverError

from .runner import Attempt, rover

Numbers = NDArray[np.float64]
_MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))  # up, down, left, right as (x, y)
_STRANGE = ("\t", "\r", "\r\n", "\x0c", "\u2028", "\x85", "\xa0", " ", "x", "s", "0", "\x00", "🙂")
_PER_ATTEMPT = 50
"""Maps that one attempt tries, all in its own process but for the huge ones."""


def _rows(text: str) -> list[str] | None:
    """The rows of a map of plain characters; None where a map has others, or is no rectangle."""
    rows = [row.rstrip() for row in text.splitlines()]  # any line end is one
    while rows and not rows[0]:
        rows.pop(0)
    while rows and not rows[-1]:
        rows.pop()
    indents = [row[: len(row) - len(row.lstrip(" \t"))] for row in rows if row]
    if indents and indents[0] and all(indent == indents[0] for indent in indents):
        rows = [row[len(indents[0]) :] for row in rows]
    plain = all(row and not set(row) - set("#.SG") for row in rows)
    return rows if rows and plain and len({len(row) for row in rows}) == 1 else None


def _reachable(cells: set[tuple[int, int]], start: tuple[int, int]) -> set[tuple[int, int]]:
    found, fringe = {start}, [start]
    while fringe:
        x, y = fringe.pop()
        for dx, dy in _MOVES:
            cell = (x + dx, y + dy)
            if cell in cells and cell not in found:
                found.add(cell)
                fringe.append(cell)
    return found


def _dynamics(
    rows: Sequence[str], goal: Any, start: Any, slip: float
) -> tuple[Numbers, Numbers, Numbers] | None:
    """Transitions (A, S, S), first states (S,) and rewards (S,) by the rules; None: no such map."""
    cells = [(x, y) for y, row in enumerate(rows) for x, mark in enumerate(row) if mark != "#"]
    marks = {mark: [(x, y) for x, y in cells if rows[y][x] == mark] for mark in "SG"}
    if len(marks["S"]) != 1 or len(marks["G"]) > 1:
        return None
    if len(_reachable(set(cells), marks["S"][0])) != len(cells):
        return None
    if goal == "marked":
        goal = marks["G"][0] if marks["G"] else (-1, -1)
    if (goal is not None and goal not in cells) or (start not in (None, "random", *cells)):
        return None
    number = {cell: i for i, cell in enumerate(cells)}
    starts = [cell for cell in cells if cell != goal] if start == "random" else [start]
    starts = marks["S"] if start is None else starts
    if not starts or goal in starts:
        return None
    moved = np.zeros((4, len(cells), len(cells)))
    for (x, y), i in number.items():
        for action, (dx, dy) in enumerate(_MOVES):
            at = i if goal == (x, y) else number.get((x + dx, y + dy), i)
            moved[action, i, at] = 1.0
    first = np.zeros(len(cells))
    for cell in starts:
        first[number[cell]] = 1 / len(starts)
    rewards = np.array([0.0 if goal is None else -float(cell != goal) for cell in cells])
    return (1 - slip) * moved + slip * moved.mean(axis=0), first, rewards


def _draw(rng: random.Random) -> tuple[str, bool]:
    """A map, and whether it is written plainly."""
    width, height = rng.randint(1, 7), rng.randint(1, 6)
    walls = rng.choice((0.0, 0.1, 0.25, 0.4))
    cells = [["#" if rng.random() < walls else "." for _ in range(width)] for _ in range(height)]
    for mark, times in (("S", rng.choice((1, 1, 1, 1, 1, 0, 2))), ("G", rng.choice((0, 1, 1, 2)))):
        for _ in range(times):
            cells[rng.randrange(height)][rng.randrange(width)] = mark
    rows = ["".join(row) for row in cells]
    if rng.random() < 0.6:
        return "\n".join(rows), True
    way = rng.choice(("ending", "indent", "strange", "ragged", "around", "blank"))
    if way == "indent":
        rows = [rng.choice(("  ", "\t")) + row + rng.choice(("", " ")) for row in rows]
    elif way == "around":
        rows = ["", "", *rows, " ", ""]
    elif way == "ragged":
        rows[rng.randrange(height)] += rng.choice(("#", "."))
    ending = rng.choice(("\r\n", "\r", "\n\r", "\n\n")) if way == "ending" else "\n"
    text = "" if way == "blank" else ending.join(rows)
    if way == "strange":
        place = rng.randint(0, len(text))
        text = text[:place] + rng.choice(_STRANGE) + text[place:]
    return text, False


def _compare(text: str, settings: dict[str, Any], is_plain: bool) -> str:
    """What is wrong with what is made of a map; empty: nothing."""
    rows = _rows(text)
    goal, start, slip = settings.get("goal"), settings.get("start"), settings.get("slip", 0.0)
    expected = None if rows is None else _dynamics(rows, goal, start, slip)
    try:
        env: Any = gym.make("rover/Grid-v0", layout=text, **settings).unwrapped
        dynamics = env.dynamics()
    except RoverError as error:
        return f"refused: {error}" if expected is not None and is_plain else ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if expected is None:
        return "accepted"
    if env.layout.text.split("\n") != rows:
        return f"read as {env.layout.text!r}"
    moved, first, rewards = expected
    for name, found, right in (
        ("transitions", dynamics.dense(), moved),
        ("starts", dynamics.start, first),
        ("rewards", env.arrival_reward, rewards),
    ):
        if found.shape != right.shape or not np.allclose(found, right, rtol=0, atol=1e-12):
            return f"wrong {name}"
    return _walk(env, moved, first, rewards)


def _walk(env: Any, moved: Numbers, first: Numbers, rewards: Numbers) -> str:
    """What is wrong with an episode of an environment; empty: nothing."""
    _, info = env.reset(seed=len(first))
    state, is_over = info["state"], False
    if first[state] == 0:
        return f"an episode begins in state {state}"
    for step in range(1, min(env.horizon, 12) + 1):
        action = (7 * step) % 4
        observation, reward, terminated, truncated, info = env.step(action)
        before, state = state, info["state"]
        if moved[action, before, state] == 0 or reward != rewards[state]:
            return f"action {action} leads from {before} to {state} with reward {reward}"
        is_over = state == env.goal_state
        if (terminated, truncated) != (is_over, not is_over and step == env.horizon):
            return f"in state {state} after {step} steps terminated is {terminated}"
        if not env.observation_space.contains(observation):
            return f"an observation outside of its space: {observation}"
        if is_over:
            break
    return ""


def attack(attempt: Attempt) -> None:
    """Make environments of random maps, and one of a huge one through the command line."""
    rng = attempt.rng
    for _ in range(_PER_ATTEMPT):
        text, is_plain = _draw(rng)
        settings: dict[str, Any] = {}
        if rng.random() < 0.5:
            cell = (rng.randint(-1, 7), rng.randint(-1, 6))
            settings["goal"] = rng.choice(("marked", cell))
        if rng.random() < 0.3:
            settings["start"] = rng.choice(("random", (rng.randint(0, 4), rng.randint(0, 4))))
        if rng.random() < 0.2:
            settings["slip"] = rng.choice((0.0, 0.25, 1.0))
        if rng.random() < 0.2:
            settings["horizon"] = rng.randint(1, 9)
        settings["observation"] = rng.choice(("state", "onehot", "pixels"))
        attempt.count(f"{'plain' if is_plain else 'strange'} maps")
        if problem := _compare(text, settings, is_plain):
            attempt.find(f"layout={text!r}, {settings}", problem)
    file = attempt.folder / "map.txt"
    width, height = rng.choice(((3000, 300), (200_000, 1), (1, 50_000), (30_000, 3000), (400, 400)))
    row = "." * (width - 1) + rng.choice("#.x\r")
    file.write_bytes(("S" + row[1:] + "\n" + (row + "\n") * (height - 1)).encode())
    if rng.random() < 0.3:
        file.write_bytes(rng.randbytes(10_000))
    words = ["pretrain", "rover/Grid-v0", "--env", f"layout={file}", "--steps", "30"]
    words += ["--observation", rng.choice(("state", "onehot", "pixels")), "--run-dir", "new"]
    ended = rover(words, attempt.folder)
    attempt.count("huge maps")
    attempt.check(f"a map of {width}×{height}, rover {words[4:]}", ended)
