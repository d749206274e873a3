"""Misuse of the Python interface: an error of rover that says what is wrong, and nothing else.

Each misuse is a call that has to be refused, with one wrong argument or one wrong environment.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rover
from rover.baselines import agent_names
from rover.data import Buffer
from rover.envs import GridWorld
from rover.errors import RoverError
from rover.training.run_folder import load_run_buffer

from .processes import ON_LINUX
from .runs import GRID, PRETRAINED, made

pytestmark = [pytest.mark.slow, ON_LINUX]

_NAN, _INF, _HUGE = float("nan"), float("inf"), 10**400
_MAZE = "rover/Maze-v0"
_NO_COUNTS = ("10", None, -1, 0, 1.5, _NAN, _INF, _HUGE, [3], True, "1e3", b"3")
_NO_PATHS = ("", "x" * 300, "a\x00b", "é" * 200, ".")
_NO_ENVS = (None, 5, "", "a:b:c", gym.Env, object(), b"rover/Maze-v0", "x" * 10**5, "a\x00-v0")
_NO_SEEDS = ("0", None, -1, 1.5, 2**64, [1], _NAN, _HUGE)
_VECTOR = spaces.Box(-1.0, 1.0, (2,), np.float32)
_IMAGE = spaces.Box(0, 255, (20, 20, 3), np.uint8)
_SPACES = (
    spaces.Dict({"a": spaces.Text(5)}),
    spaces.Tuple((spaces.Discrete(3), spaces.Sequence(spaces.Discrete(2)))),
    spaces.Dict({"a": _IMAGE, "b": _IMAGE}),
    spaces.Text(5),
    spaces.Box(-1.0, 1.0, (0,), np.float32),
    object(),
)
_NO_VECTORS: Sequence[Any] = ("ab", None, {"a": 1}, [[1, 2], [3]], np.zeros(2, np.complex64))
_NO_NUMBERS: Sequence[Any] = (-1, 5, 10**30, 1.5, "a", None, [1], _NAN, {})
_NO_IMAGES: Sequence[Any] = (np.full((20, 20, 3), 0.5), np.zeros((20, 20), np.uint8), None, "image")
_NO_OBSERVATIONS = (
    *((spaces.Discrete(5), x) for x in _NO_NUMBERS),
    *((_VECTOR, np.full(2, x, np.float32)) for x in (_NAN, _INF)),
    *((_VECTOR, np.zeros(shape, np.float32)) for shape in ((3,), (2, 1), ())),
    *((_VECTOR, x) for x in _NO_VECTORS),
    *((_IMAGE, x) for x in _NO_IMAGES),
)


class _Faulty(gym.Env[Any, Any]):
    """An environment of which one thing is wrong: its spaces, or what its reset or step returns."""

    def __init__(self, space: Any = None, actions: Any = None, **answers: Any) -> None:
        self.observation_space = spaces.Discrete(5) if space is None else space
        self.action_space = spaces.Discrete(2) if actions is None else actions
        self._answers, self._age = answers, 0

    def _right(self) -> Any:
        space = self.observation_space
        return np.zeros(space.shape, space.dtype) if isinstance(space, spaces.Box) else 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        super().reset(seed=seed)
        self._age = 0
        return self._answers.get("reset", (self._right(), {}))

    def step(self, action: Any) -> Any:
        """Make a step; one of an episode, the third, is wrong."""
        self._age += 1
        right: Any = (self._right(), 0.0, False, self._age >= 9, {})
        is_wrong = self._age == self._answers.get("at", 3)
        return self._answers.get("step", right) if is_wrong else right


class _Here(NamedTuple):
    """What a misuse is made with: the name of an agent, and the folder of a whole run."""

    name: str
    run: Path

    def agent(self, env: Any, **options: Any) -> Any:
        return rover.make_agent(self.name, env, **options)

    def twice(self, env: Any) -> None:
        first, second = self.agent(env), self.agent(env)
        for agent in (first, second, first):
            agent.learn(20)

    def resume_twice(self) -> None:
        first, second = rover.resume_agent(self.run), rover.resume_agent(self.run)
        first.learn(20)
        second.learn(20)

    def act(self, observation: Any) -> None:
        policy = rover.load_policy(self.run / "policy.safetensors")
        policy.act(observation, np.random.default_rng(0))

    def finetune(self, policy: Any = None, env: Any = None, **options: Any) -> None:
        policy = policy or rover.load_policy(self.run / "policy.safetensors")
        env = env or gym.make("rover/Grid-v0", layout=GRID, goal=(2, 2))
        rover.finetune(policy, env, **{"total_timesteps": 30, **options})

    def offline(self, buffer: Any = None, env: Any = None, **options: Any) -> None:
        buffer = load_run_buffer(self.run) if buffer is None else buffer
        env = env or gym.make("rover/Grid-v0", layout=GRID, goal=(2, 2))
        rover.train_offline(buffer, env, **{"updates": 10, **options})


def _reward(_: _Here, reward: Any) -> None:
    answer: Any = (1, reward, False, True, {})
    task, other = _Faulty(step=answer), _Faulty(step=answer)
    rover.finetune(None, task, total_timesteps=60, evaluation_env=other)


def _options(**values: Sequence[Any]) -> list[dict[str, Any]]:
    """Keywords with one wrong value."""
    return [{name: value} for name in values for value in values[name]]


_GRID_OPTIONS = _options(
    layout=(5, "nosuch", ["S."], b"S.", object(), "x" * 5000, "S\x00", {}, 1.5),
    goal=(5, "here", (1,), (1, 2, 3), ("a", "b"), (1.5, 2), (0, 0), (10**30, 1)),
    start=(5, "here", (1,), (_NAN, 1), (99, 0), {}),
    horizon=("9", -1, 0, 1.5, _INF, _HUGE, [1]),
    slip=("a", -0.1, 1.1, _NAN, _HUGE, [0.1], None),
    observation=("pixel", 5, None, ["state"], {}),
    reward=("dense", "many", 5, None, []),
    render_mode=("human", 5, []),
    rooms=(-1, 0, 1.5, "a", 10**9, _HUGE, _NAN, None),
)
_SETTINGS = _options(
    checkpoint_every=("many", -1, 1.5, _NAN),
    threads=(0, _HUGE, _INF, "2x", 10**6),
    discount=(1, -1, _NAN, _INF, "high", [0.9], object()),
    nosuch=(1,),
)
_FINETUNE = _options(
    policy=(5, "policy.safetensors", Path("x"), object()),
    env=(*_NO_ENVS[1:2], *_NO_ENVS[3:]),
    total_timesteps=_NO_COUNTS,
    algorithm=("cql", "", None, 5, ["ddpg"]),
    transfer=("all", "", None, 5),
    freeze=("polcy", ["x"], 5, [5]),
    seed=_NO_SEEDS,
    preset=("quick", 5, ""),
    n_steps=("many", -1, _NAN),
)
_OFFLINE = _options(
    buffer=(5, "run", Buffer((), np.int64, 4), Path("x"), []),
    env=(*_NO_ENVS[1:2], *_NO_ENVS[3:], gym.make("FrozenLake-v1")),
    updates=_NO_COUNTS,
    reward=(lambda *_: None, lambda *_: np.zeros(3), lambda *_: "a"),
)

MISUSES: Mapping[str, tuple[Callable[[_Here, Any], Any], Sequence[Any]]] = {
    "env": (_Here.agent, _NO_ENVS),
    "seed": (lambda here, x: here.agent(_MAZE, seed=x), _NO_SEEDS),
    "preset": (lambda here, x: here.agent(_MAZE, preset=x), ("fats", 5, ["a"])),
    "agent": (lambda _, x: rover.make_agent(x, _MAZE), ("", "rvoer", None, 5)),
    "pickle": (lambda here, _: pickle.dumps(here.agent(_MAZE)), (None,)),
    "env_kwargs of an environment": (
        lambda here, x: here.agent(gym.make(_MAZE), env_kwargs=x),
        ({"slip": 0.1},),
    ),
    "env_kwargs": (
        lambda here, x: here.agent(_MAZE, env_kwargs=x),
        ({"x": 1}, {"slip": "a"}, {"layout": None, "goal": 5}),
    ),
    "run_dir": (lambda here, x: here.agent(_MAZE, run_dir=x).learn(20), _NO_PATHS[:-1]),
    "a taken folder": (lambda here, _: here.agent(_MAZE, run_dir=here.run).learn(20), (None,)),
    "learn": (lambda here, x: here.agent(_MAZE).learn(x), _NO_COUNTS),
    "settings": (lambda here, x: here.agent(_MAZE, **x).learn(20), _SETTINGS),
    "load_policy": (lambda _, x: rover.load_policy(x), _NO_PATHS),
    "resume_agent": (lambda _, x: rover.resume_agent(x), _NO_PATHS),
    "resume_task": (lambda _, x: rover.resume_task(x), _NO_PATHS),
    "resume with another environment": (
        lambda here, x: rover.resume_agent(here.run, env=x),
        (gym.make(_MAZE), gym.make("CartPole-v1"), 5, _MAZE),
    ),
    "observation space": (lambda here, x: here.agent(_Faulty(x)).learn(20), _SPACES),
    "action space": (
        lambda here, x: here.agent(_Faulty(None, x)).learn(20),
        (*_SPACES, spaces.Box(-1.0, np.inf, (2,)), spaces.MultiBinary(17)),
    ),
    "vector environment": (
        lambda here, x: here.agent(gym.make_vec(_MAZE, num_envs=x)).learn(20),
        (1, 2),
    ),
    "reset": (
        lambda _, x: rover.check_env(_Faulty(reset=x)),
        (None, 0, (0,), (0, {}, 1), [0, {}, 3], "abc", {"a": 1}),
    ),
    "step": (
        lambda _, x: rover.check_env(_Faulty(step=x, at=1)),
        (None, 0, (0, 0.0, False, {}), (0, 0.0, False, False), (0, 0.0, False, False, {}, 1)),
    ),
    "observation": (
        lambda here, x: here.agent(_Faulty(x[0], step=(x[1], 0.0, False, False, {}))).learn(20),
        _NO_OBSERVATIONS,
    ),
    "first observation": (
        lambda here, x: here.agent(_Faulty(x[0], reset=(x[1], {}))).learn(20),
        _NO_OBSERVATIONS,
    ),
    "reward": (_reward, (_NAN, _INF, "a", None, [1.0, 2.0], _HUGE)),
    "one environment, two agents": (lambda here, _: here.twice(gym.make(_MAZE)), (None,)),
    "one folder, two agents": (lambda here, _: here.resume_twice(), (None,)),
    "act": (_Here.act, (None, "a", 1.5, [1, 2], np.zeros(3), {}, _NAN)),
    "finetune": (lambda here, x: here.finetune(**x), _FINETUNE),
    "train_offline": (lambda here, x: here.offline(**x), _OFFLINE),
    "grid world": (lambda _, x: GridWorld(**{"layout": "multi_rooms", **x}), _GRID_OPTIONS),
    "reset options": (
        lambda _, x: GridWorld("maze").reset(options=x),
        ({"start": 5}, {"start": (0, 0)}, {"start": "goal"}),
    ),
}


@pytest.fixture
def run(shared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made(PRETRAINED[0], shared), tmp_path / "run"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MISUSES)
def test_misuse_is_refused(name: str, run: Path, tmp_path: Path) -> None:
    misuse, values = MISUSES[name]
    agents = agent_names()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for number, value in enumerate(values):
            here = _Here(agents[number % len(agents)], run)
            with pytest.raises(RoverError) as refused:
                misuse(here, value)
            assert len(str(refused.value)) < 4000, value
            assert "pydantic" not in str(refused.value), value
