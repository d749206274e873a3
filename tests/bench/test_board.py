"""The board: worlds, entries that cannot be altered, runs made again, and its page."""

import copy
import json
import re
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rover_bench.worlds  # noqa: F401  (registers worlds)
from rover.cli.program import answer
from rover.envs import finite_dynamics, registration
from rover.errors import ArtefactError, ConfigurationError, RoverWarning
from rover.storage import write_json
from rover_bench import board
from rover_bench.board import Entry, RewardFree, run_entry, verify
from rover_bench.board_page import board_page
from rover_bench.worlds import deep_sea

SUITE = """
[scales]
small = { seeds = 2, steps = 1 }

[[worlds]]
name = "rooms"
group = "rooms"
env = "rover/TwoRooms-v0"
steps = 120
metric = "optimality_ratio"
source = "here"

[[worlds]]
name = "sea"
group = "seas"
env = "board/DeepSea-v0"
kwargs = { size = 4 }
steps = 40
metric = "states_seen"
source = "here"

[[worlds]]
name = "car"
group = "physics"
env = "MountainCar-v0"
steps = 100
metric = "cells"
source = "here"
"""
METRICS = "optimality_ratio", "states_seen", "cells"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def suite(tmp_path, monkeypatch):
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "reward-free-1.toml").write_text(SUITE)
    monkeypatch.setattr(board, "_SUITES", tmp_path / "suites")
    monkeypatch.setattr(board, "_VISITS", 200)
    # Workers of later tests would import the modules that these wrote.
    monkeypatch.setattr(registration, "IMPORTED", {})
    monkeypatch.chdir(tmp_path)


def entry_of(word: str = "random") -> Entry:
    return run_entry(word, "small", jobs=1)


# --- worlds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [False, True])
def test_the_treasure_of_the_deep_sea_is_at_the_end_of_one_way(noise):
    size = 6
    dynamics = deep_sea(size, noise).finite_mdp.dynamics
    treasure = size * (size + 1) // 2
    assert dynamics.n_states == treasure + 2
    assert dynamics.steps_to_states().max() == size
    reach = np.zeros((size + 1, dynamics.n_states))  # best probability of the treasure
    reach[-1, treasure] = 1.0
    for step in reversed(range(size)):
        reach[step] = np.max([matrix @ reach[step + 1] for matrix in dynamics.transition], axis=0)
    best = (1.0 - 1.0 / size) ** size if noise else 1.0
    assert reach[0, 0] == pytest.approx(best)


def test_an_agent_sees_no_reward_and_no_step_beyond_its_budget():
    env = RewardFree(gym.make("rover/TwoRooms-v0", goal=(6, 0)), 3)
    env.reset(seed=0)
    assert [env.step(3)[1] for _ in range(3)] == [0.0, 0.0, 0.0]
    with pytest.raises(board.BudgetSpentError):
        env.step(3)
    assert len(env.seen) == 4
    copied = copy.deepcopy(env)
    copied.step(3)  # a copy is not of this run
    assert env.n_steps == 3
    assert finite_dynamics(env) is not None


# --- entries -------------------------------------------------------------------------------------


def test_an_entry_that_was_altered_anywhere_is_refused(tmp_path):
    path = tmp_path / "entry.json"
    write_json(path, entry_of())
    assert Entry.read(path).label == entry_of().label
    text = path.read_text()
    # The first digit of any number, and the name of anything.
    places = [match.start() for match in re.finditer(r"(?<=: )\d", text)]
    assert len(places) > 20
    for place in places:
        path.write_text(f"{text[:place]}{9 - int(text[place])}{text[place + 1 :]}")
        with pytest.raises(ArtefactError):
            Entry.read(path)
    for key in (content := json.loads(text)):
        path.write_text(json.dumps({name: one for name, one in content.items() if name != key}))
        with pytest.raises(ArtefactError):
            Entry.read(path)


def forged(entry: Entry, **changes: Any) -> Entry:
    """The entry with changes and a digest that fits."""
    return Entry.model_validate(entry.model_dump() | changes).sealed()


def test_an_entry_needs_every_run_of_its_suite(tmp_path):
    entry, path = entry_of(), tmp_path / "entry.json"
    rows = [one.model_dump() for one in entry.results]
    lacking = copy.deepcopy(rows)
    del lacking[0]["figures"]["optimality_ratio"]
    for changes, message in (
        ({"results": rows[1:]}, "has not the runs"),
        ({"results": [rows[1], rows[0], *rows[2:]]}, "has not the runs"),
        ({"suite_digest": "0"}, "another version of suite"),
        ({"suite": "none"}, "unknown suite"),
        ({"scale": "large"}, "unknown scale"),
        ({"results": lacking}, "lacks optimality_ratio"),
    ):
        write_json(path, forged(entry, **changes))
        with pytest.raises(ArtefactError, match=message):
            Entry.read(path)


def test_a_run_that_was_killed_is_continued(tmp_path):
    path = tmp_path / "entry.json"
    whole = run_entry("random", "small", path=path, jobs=1)
    assert Entry.read(path) == whole
    rows = [one.model_dump() for one in whole.results]
    write_json(path, forged(whole, results=rows[:2]))
    with pytest.raises(ArtefactError, match="has not the runs"):
        Entry.read(path)
    told: list[str] = []
    again = run_entry("random", "small", path=path, jobs=1, say=told.append)
    assert len(told) == len(rows) - 2
    assert [one.figures for one in again.results] == [one.figures for one in whole.results]
    assert Entry.read(path) == again
    for changes in (
        {"agent": "rnd"},
        {"provenance": whole.provenance | {"commit": "another one"}},
    ):
        write_json(path, forged(whole, results=rows[:2], **changes))
        with pytest.raises(ConfigurationError, match="cannot be continued here"):
            run_entry("random", "small", path=path, jobs=1)


@pytest.mark.slow
def test_a_run_made_again_is_the_same_to_the_bit(tmp_path):
    path = tmp_path / "entry.json"
    write_json(path, entry_of("rnd"))
    assert verify(path, seed=0, jobs=1) == (1, 1)


def test_figures_that_the_agent_does_not_have_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(board, "_CHECKED_SHARE", 1.0)
    entry, path = entry_of(), tmp_path / "entry.json"
    rows = [one.model_dump() for one in entry.results]
    rows[0]["figures"]["optimality_ratio"] *= 0.5
    write_json(path, forged(entry, results=rows))
    with pytest.raises(ArtefactError, match="not verified: on 'rooms' with seed 100"):
        verify(path, jobs=1)
    # another processor: figures need not be the same bits, but must be near the others
    elsewhere = entry.provenance | {"cpu": "another one"}
    write_json(path, forged(entry, results=rows, provenance=elsewhere))
    with pytest.raises(ArtefactError, match="not verified"):
        verify(path, jobs=1)
    rows = [one.model_dump() for one in entry.results]
    rows[0]["figures"]["optimality_ratio"] += 1e-9
    write_json(path, forged(entry, results=rows, provenance=elsewhere))
    assert verify(path, jobs=1) == (6, 5)


def test_no_file_has_anything_imported(tmp_path):
    (tmp_path / "outsider_module.py").write_text("raise SystemExit('imported')")
    path = tmp_path / "entry.json"
    write_json(path, forged(entry_of(), agent="outsider_module:Agent"))
    with pytest.raises(ConfigurationError, match="nothing that a file names is imported"):
        verify(path)
    assert "outsider_module" not in sys.modules


@pytest.mark.slow
@pytest.mark.parametrize("word", ["examples.board_outsider:CountingQ"])
def test_agents_of_others_run_and_are_verified(word, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    path = tmp_path / "entry.json"
    write_json(path, entry_of(word))
    assert verify(path, agent=word, seed=1, jobs=1) == (1, 1)


class Refusing:
    """An agent that refuses with seed 101, after a step, and else acts at random."""

    def __init__(self, env: gym.Env[Any, Any], *, seed: int) -> None:
        self.env, self.seed, self.n_actions = env, seed, int(env.action_space.n)

    def learn(self, steps: int) -> None:
        self.env.reset(seed=self.seed)
        self.env.step(0)
        if self.seed == 101:
            raise ConfigurationError("too many states for a table")

    def policy(self, observations):
        return np.full((len(observations), self.n_actions), 1.0 / self.n_actions)

    def act(self, observation, rng):
        return int(rng.integers(self.n_actions))


def test_a_world_that_an_agent_refuses_costs_it_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(board, "_CHECKED_SHARE", 1.0)
    monkeypatch.setitem(sys.modules, "refusing_agents", sys.modules[__name__])
    word, path = "refusing_agents:Refusing", tmp_path / "entry.json"
    with pytest.warns(RoverWarning, match="seed 101: too many states"):
        entry = run_entry(word, "small", path=path, jobs=1)
    assert Entry.read(path) == entry
    for result in entry.results:
        metrics = [result.figures[name] for name in METRICS if name in result.figures]
        assert (None in metrics) == (result.seed == 101)
    with pytest.warns(RoverWarning, match="too many states"):
        assert verify(path, agent=word, jobs=1) == (6, 6)
    page = board_page([entry, entry_of()])
    assert "– in 1 of 2" in page
    assert "refused to learn" in page
    assert "refused to learn" not in board_page([entry_of()])


def test_an_agent_without_the_methods_is_refused(tmp_path, monkeypatch):
    (tmp_path / "half_an_agent.py").write_text("class Half:\n    def learn(self): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError, match="lacks policy, act"):
        run_entry("half_an_agent:Half", "small")
    with pytest.raises(ConfigurationError, match="did you mean 'random'"):
        run_entry("randon", "small")
    with pytest.raises(ConfigurationError, match="unknown scale"):
        run_entry("random", "smal")


# --- the page and the command --------------------------------------------------------------------


def test_the_commands(capsys):
    assert answer(["board", "run", "--agent", "random", "--jobs", "1", "--out", "a.json"]) == 0
    assert "entry:    a.json" in capsys.readouterr().out
    assert answer(["board", "verify", "a.json", "--jobs", "1", "--seed", "2"]) == 0
    assert "1 runs again, 1 of them the same to the bit" in capsys.readouterr().out
    assert answer(["board", "table", "a.json", "--out", "page.md", "--picture", "p.png"]) == 0
    assert Path("p.png").stat().st_size > 10_000
    assert Path("page.md").read_text().startswith("Suite `reward-free-1`, scale small")
    assert answer(["board", "run"]) == 2
    assert "needs --agent" in capsys.readouterr().err
    assert answer(["board", "table"]) == 2
    assert "needs an entry" in capsys.readouterr().err


def test_the_page_shows_the_entries_that_are_kept(monkeypatch):
    monkeypatch.undo()  # of the suite as it is
    docs = ROOT / "docs"
    entries = [Entry.read(path) for path in sorted((docs / "results" / "board").glob("*.json"))]
    page = (docs / "results" / "leaderboard.md").read_text("utf-8")
    for scale in ("small", "medium"):
        shown = [entry for entry in entries if entry.scale == scale]
        assert {"rover", "random"} <= {entry.agent for entry in shown}
        assert board_page(shown, f"../pictures/board-{scale}.png") in page
