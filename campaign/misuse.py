"""Misuse of the Python interface: an error of rover that says what is wrong, and nothing else.

Each misuse is a call that has to be refused, with one wrong argument or one wrong environment.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

import rover
from campaign.runner import Attempt, fork
from campaign.runs import GRID, RUNS, made
from rover.baselines import agent_names
from rover.data import Buffer
from rover.envs import GridWorld
from rover.errors import RoverError
from rover.training.run_folder import load_run_buffer

Misuse = Callable[[random.Random, Path], Any]

_NO_COUNTS = ("10", None, -1, 0, 1.5, float("nan"), float("inf"), 10**400, [3], True, "1e3", b"3")
_NO_PATHS = ("", "x" * 300, "a\x00b", "é" * 200)
_NO_ENVS = (None, 5, "", "nosuch-v0", gym.Env, object(), b"rover/Maze-v0", "x" * 10**5, "a\x00-v0")
_NO_SEEDS = ("0", None, -1, 1.5, 2**64, [1], float("nan"), 10**400)


class Faulty(gym.Env[Any, Any]):
    """An environment of which one thing is wrong.

    Args:
        space, actions: its spaces.
        start: what reset returns.
        step: what a step returns, from the third of an episode on.
    """

    def __init__(
        self,
        space: Any = None,
        actions: Any = None,
        *,
        start: Any = None,
        step: Any = None,
    ) -> None:
        self.observation_space = spaces.Discrete(5) if space is None else space
        self.action_space = spaces.Discrete(2) if actions is None else actions
        self._start, self._answer, self._age = start, step, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        super().reset(seed=seed)
        self._age = 0
        return (self._right(), {}) if self._start is None else self._start[0]

    def _right(self) -> Any:
        space = self.observation_space
        return np.zeros(space.shape, space.dtype) if isinstance(space, spaces.Box) else 0

    def step(self, action: Any) -> Any:
        """Make a step."""
        self._age += 1
        if self._age < 3 or self._answer is None:
            return self._right(), 0.0, False, self._age >= 9, {}
        return self._answer[0]


_VECTOR = spaces.Box(-1.0, 1.0, (2,), np.float32)
_SPACES: Mapping[str, Any] = {
    "Dict": spaces.Dict({"a": spaces.Discrete(3)}),
    "Tuple": spaces.Tuple((spaces.Discrete(3), spaces.Discrete(2))),
    "MultiDiscrete": spaces.MultiDiscrete([3, 2]),
    "MultiBinary": spaces.MultiBinary(3),
    "Text": spaces.Text(5),
    "Graph": spaces.Graph(spaces.Discrete(2), None),
    "empty Box": spaces.Box(-1.0, 1.0, (0,), np.float32),
    "scalar Box": spaces.Box(-1.0, 1.0, (), np.float32),
    "complex images": spaces.Box(0, 255, (3, 4, 5, 6), np.uint8),
    "none": object(),
}
_NO_OBSERVATIONS = (
    (spaces.Discrete(5), (-1, 5, 10**30, 1.5, "a", None, [1], np.array([1, 2]), float("nan"), {})),
    (
        _VECTOR,
        (
            np.array([np.nan, 0], np.float32),
            np.array([np.inf, 0], np.float32),
            np.zeros(3, np.float32),
            np.zeros((2, 1), np.float32),
            "ab",
            None,
            {"a": 1},
            [[1, 2], [3]],
            np.array(["a", "b"]),
            np.zeros(2, np.complex64),
        ),
    ),
    (
        spaces.Box(0, 255, (20, 20, 3), np.uint8),
        (np.zeros((20, 20, 3)), np.zeros((20, 20), np.uint8), None, "image"),
    ),
)
_NO_STEPS = (
    None,
    0,
    (0, 0.0, False, {}),
    (0, 0.0, False, False),
    (0, 0.0, False, False, {}, 1),
    (0, 0.0, None, "no", {}),
    (0, "a", False, False, {}),
    (0, None, False, False, {}),
)


def _agent(rng: random.Random, env: Any, **options: Any) -> Any:
    name = rng.choice(agent_names())
    return rover.make_agent(name, env, **options)


def _wrong_setting(rng: random.Random, _: Path) -> Any:
    name = rng.choice(("checkpoint_every", "threads", "discount", "evaluation_episodes", "nosuch"))
    values = ("many", -1, 10**400, float("nan"), float("inf"), [1], {}, object(), None.__class__)
    return _agent(rng, "rover/Maze-v0", **{name: rng.choice(values)}).learn(30)


def _wrong_spaces(rng: random.Random, _: Path) -> Any:
    name = rng.choice(sorted(_SPACES))
    if rng.random() < 0.3:
        actions = rng.choice([*_SPACES.values(), _VECTOR, spaces.Discrete(4, start=1)])
        return _agent(rng, Faulty(None, actions)).learn(30)
    return _agent(rng, Faulty(_SPACES[name])).learn(30)


def _wrong_vector_env(rng: random.Random, _: Path) -> Any:
    return _agent(rng, gym.make_vec("rover/Maze-v0", num_envs=2)).learn(30)


def _wrong_reset(rng: random.Random, _: Path) -> Any:
    answer = rng.choice((None, 0, (0,), (0, {}, 1), [0, {}, 3], "ab", (0, None), {"a": 1}))
    return _agent(rng, Faulty(start=(answer,))).learn(30)


def _wrong_step(rng: random.Random, _: Path) -> Any:
    return _agent(rng, Faulty(step=(rng.choice(_NO_STEPS[:5]),))).learn(30)


def _wrong_observation(rng: random.Random, _: Path) -> Any:
    space, values = rng.choice(_NO_OBSERVATIONS)
    value = rng.choice(values)
    if rng.random() < 0.3:
        return _agent(rng, Faulty(space, start=((value, {}),))).learn(30)
    return _agent(rng, Faulty(space, step=((value, 0.0, False, False, {}),))).learn(30)


def _wrong_reward(rng: random.Random, _: Path) -> Any:
    reward = rng.choice((float("nan"), float("inf"), "a", None, [1.0, 2.0], 10**400))
    task = Faulty(step=((1, reward, False, True, {}),))
    second = Faulty(step=((1, reward, False, True, {}),))
    return rover.finetune(None, task, total_timesteps=60, evaluation_env=second)


def _one_env_two_agents(rng: random.Random, _: Path) -> Any:
    env = gym.make("rover/Maze-v0")
    first, second = (_agent(rng, env, seed=seed) for seed in (0, 1))
    first.learn(20)
    return second.learn(20)


def _one_folder_two_agents(rng: random.Random, made_run: Path) -> Any:
    first, second = (rover.resume_agent(made_run) for _ in range(2))
    first.learn(20)
    return second.learn(20)


def _folder_twice(rng: random.Random, made_run: Path) -> Any:
    return _agent(rng, "rover/Maze-v0", run_dir=made_run).learn(20)


def _policy(made_run: Path) -> Any:
    return rover.load_policy(made_run / "policy.safetensors")


def _wrong_act(rng: random.Random, made_run: Path) -> Any:
    observation = rng.choice((None, "a", -1, 10**6, 1.5, [1, 2], np.zeros(3), {}, float("nan")))
    policy = _policy(made_run)
    if rng.random() < 0.5:
        return policy.act(observation, np.random.default_rng(0))
    return policy.probs(observation)


def _wrong_finetune(rng: random.Random, made_run: Path) -> Any:
    options: dict[str, Any] = {"total_timesteps": 30}
    policy, env = _policy(made_run), gym.make("rover/Grid-v0", layout=GRID, goal=(2, 2), horizon=9)
    way = rng.choice(("policy", "env", "option", "option", "size"))
    if way == "policy":
        policy = rng.choice((5, "policy.safetensors", made_run, object(), torch.nn.Linear(3, 2)))
    elif way == "env":
        env = rng.choice((*_NO_ENVS, gym.make_vec("rover/Maze-v0", num_envs=2)))
    elif way == "size":
        env = gym.make("rover/Maze-v0", goal=(7, 13))
    else:
        name, values = rng.choice(
            (
                ("total_timesteps", _NO_COUNTS),
                ("algorithm", ("cql", "", None, 5, ["ddpg"])),
                ("transfer", ("all", "", None, 5)),
                ("freeze", ("polcy", ["x"], 5, [5])),
                ("seed", _NO_SEEDS),
                ("preset", ("quick", 5, "")),
                ("nosuch", (1,)),
                ("n_steps", ("many", -1, 10**400, float("nan"))),
            )
        )
        options[name] = rng.choice(values)
    return rover.finetune(policy, env, **options)


def _wrong_offline(rng: random.Random, made_run: Path) -> Any:
    buffer: Any = load_run_buffer(made_run)
    env: Any = gym.make("rover/Grid-v0", layout=GRID, goal=(2, 2))
    options: dict[str, Any] = {"updates": 10}
    way = rng.choice(("buffer", "env", "updates", "reward"))
    if way == "buffer":
        buffer = rng.choice((None, 5, str(made_run), Buffer((), np.int64, 4), made_run, []))
    elif way == "env":
        env = rng.choice(
            (*_NO_ENVS, gym.make("rover/Maze-v0", goal=(7, 13)), gym.make("FrozenLake-v1"))
        )
    elif way == "updates":
        options["updates"] = rng.choice(_NO_COUNTS)
    else:
        options["reward"] = rng.choice((5, lambda: 0, lambda *_: None, lambda *_: np.zeros(3), "r"))
    return rover.train_offline(buffer, env, **options)


def _wrong_grid(rng: random.Random, _: Path) -> Any:
    name, values = rng.choice(
        (
            ("layout", (5, "nosuch", ["S."], b"S.", object(), "x" * 5000, "S\x00", {}, 1.5)),
            ("goal", (5, "here", (1,), (1, 2, 3), ("a", "b"), (1.5, 2), (0, 0), (10**30, 1))),
            ("start", (5, "here", (1,), (float("nan"), 1), (99, 0), {})),
            ("horizon", ("9", -1, 0, 1.5, float("inf"), 10**400, [1])),
            ("slip", ("a", -0.1, 1.1, float("nan"), 10**400, [0.1], None)),
            ("observation", ("pixel", 5, None, ["state"], {})),
            ("reward", ("dense", "many", 5, None, [])),
            ("render_mode", ("human", 5, [])),
            ("rooms", (-1, 0, 1.5, "a", 10**9, 10**400, float("nan"), None)),
            ("nosuch", (1,)),
        )
    )
    layout = {"layout": "multi_rooms"} if name != "layout" else {}
    return GridWorld(**layout, **{name: rng.choice(values)})


def _wrong_action(rng: random.Random, _: Path) -> Any:
    env = GridWorld("maze")
    env.reset(seed=0)
    return env.step(rng.choice((-1, 4, 1.5, "up", None, [0], np.array([0, 1]), {}, 10**30)))


def _wrong_layout_reset(rng: random.Random, _: Path) -> Any:
    options = rng.choice(({"start": 5}, {"begin": 1}, {"start": (0, 0)}, {"start": "goal"}))
    return GridWorld("maze").reset(options=options)


MISUSES: Mapping[str, Misuse] = {
    "env": lambda rng, _: _agent(rng, rng.choice(_NO_ENVS)),
    "seed": lambda rng, _: _agent(rng, "rover/Maze-v0", seed=rng.choice(_NO_SEEDS)),
    "preset": lambda rng, _: _agent(rng, "rover/Maze-v0", preset=rng.choice(("fats", 5, ["a"]))),
    "agent": lambda rng, _: rover.make_agent(rng.choice(("", "rvoer", None, 5)), "rover/Maze-v0"),
    "env_kwargs": lambda rng, _: _agent(
        rng,
        "rover/Maze-v0",
        env_kwargs=rng.choice(({"x": 1}, {5: 1}, {"slip": "a"}, {"layout": None, "goal": 5})),
    ),
    "run_dir": lambda rng, _: _agent(
        rng, "rover/Maze-v0", run_dir=rng.choice((*_NO_PATHS, "/dev/null", "/proc/x"))
    ).learn(20),
    "learn": lambda rng, _: _agent(rng, "rover/Maze-v0").learn(rng.choice(_NO_COUNTS)),
    "load_policy": lambda rng, _: rover.load_policy(rng.choice((*_NO_PATHS, ".", "nosuch"))),
    "save": lambda rng, run: _policy(run).save(rng.choice((*_NO_PATHS, ".", "a/b", "/proc/x"))),
    "resume_agent": lambda rng, _: rover.resume_agent(rng.choice((*_NO_PATHS, ".", "nosuch"))),
    "resume with another environment": lambda rng, run: rover.resume_agent(
        run,
        env=rng.choice((gym.make("rover/Maze-v0"), gym.make("CartPole-v1"), 5, "rover/Maze-v0")),
    ),
    "resume_task": lambda rng, run: rover.resume_task(rng.choice((*_NO_PATHS, ".", run))),
    "setting": _wrong_setting,
    "spaces": _wrong_spaces,
    "vector environment": _wrong_vector_env,
    "reset": _wrong_reset,
    "step": _wrong_step,
    "observation": _wrong_observation,
    "reward": _wrong_reward,
    "one environment, two agents": _one_env_two_agents,
    "one folder, two agents": _one_folder_two_agents,
    "a folder that is taken": _folder_twice,
    "act": _wrong_act,
    "finetune": _wrong_finetune,
    "train_offline": _wrong_offline,
    "grid world": _wrong_grid,
    "action": _wrong_action,
    "reset options": _wrong_layout_reset,
}


def attack(attempt: Attempt) -> None:
    """Make one wrong call, in a process of its own."""
    name = sorted(MISUSES)[attempt.number % len(MISUSES)]
    attempt.count(name)
    run = made(RUNS[0], attempt.shared)
    drawn: list[Any] = []
    rng = attempt.rng
    choose = rng.choice

    def noted(values: Any) -> Any:
        drawn.append(choose(values))
        return drawn[-1]

    rng.choice = noted  # type: ignore[method-assign]

    def call() -> int:
        try:
            MISUSES[name](rng, run)
        except RoverError as error:
            sys.stderr.write(f"rover: error: {' '.join(str(error).split())}\n")
            return 2
        except Exception as error:
            shown = repr(drawn)[:300]
            sys.stderr.write(f"{shown}: {type(error).__name__}: {' '.join(str(error).split())}\n")
            return 3
        sys.stderr.write(f"{drawn!r:.300}\n")
        return 0

    ended = fork(call, attempt.folder, seconds=60, bound_memory=True)
    attempt.check(name, ended, codes=(2,))
