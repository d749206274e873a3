"""Small runs of every agent, observation and learner, as command lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from small_agents import SMALL

from rover.plots.runs import flatten

from .processes import rover

STEPS = 100
GRID = "S..\n.#.\n..G"
_GOAL = "goal=2,2"

_QUICK = {"checkpoint_every": 20, "evaluation_episodes": 2}
_ROVER = {"policy_every": 20, "mirror_steps": 5}
_ENCODER = {"encoder_every": 15, "encoder_updates": 2, "batch_size": 16, "feature_dim": 8}
_PAPER = {"plan_transitions": 50, "seed_steps": 25, "first_policy": 5, "sink_warmup": 60}
_SETTINGS: Mapping[str, Mapping[str, object]] = {  # of agents, with a preset that is not the first
    "rover": _ROVER,
    "rover:paper": {**_ROVER, **_PAPER},
    **SMALL,
}
_LEARNER = {"learner.hidden_sizes": (16, 8), "learner.batch_size": 16}
_TASK_SETTINGS = {"evaluate_every": 20, "checkpoint_every": 20, **_LEARNER}


class Run(NamedTuple):
    """A run as a command line.

    Attributes:
        name: for the counts.
        words: the command line, without a run folder.
        source: the run that it begins with, whose folder follows the first word.
    """

    name: str
    words: Sequence[str]
    source: Run | None = None

    def command(self, folder: Path, shared: Path, steps: int | None = None) -> list[str]:
        """The command line that makes this run in `folder`."""
        words = list(self.words)
        if self.source is not None:
            words.insert(1, str(made(self.source, shared)))
        return [*words, "--steps", str(steps or STEPS), "--run-dir", str(folder)]


def made(run: Run, shared: Path) -> Path:
    """The folder of a whole run, made once."""
    folder = shared / run.name.replace(" ", "-").replace(",", "")
    if not folder.exists():
        ended = rover(run.command(folder, shared), shared)
        if ended.code != 0:
            raise RuntimeError(f"{run.name} cannot be made: {ended.err[-800:]}")
    return folder


def _set(settings: Mapping[str, object]) -> list[str]:
    words = []
    for name, value in flatten(settings).items():
        text = list(value) if isinstance(value, tuple) else value
        words += ["--set", f"{name}={text}"]
    return words


def _pretrain(agent: str, observation: str) -> Run:
    name, _, preset = agent.partition(":")
    settings = dict(_SETTINGS[agent])
    if observation == "vector":
        env = ["MountainCar-v0", "--env", "max_episode_steps=12"]
    else:
        env = ["rover/Grid-v0", "--env", f"layout={GRID}", "--env", "horizon=12"]
        env += ["--env", f"observation={observation}"]
    if name == "rover" and observation in ("onehot", "pixels"):
        settings |= {**_ENCODER, "representation": "info_nce"}
    words = ["pretrain", *env, "--agent", name, *_set(settings | _QUICK)]
    words += ["--preset", preset] if preset else []
    return Run(f"pretrain {agent}, {observation}", words)


PRETRAINED = [
    *(_pretrain(agent, see) for see in ("state", "onehot", "pixels") for agent in _SETTINGS),
    *(_pretrain(agent, "vector") for agent in ("rover", "rnd", "mepol")),
]
_BY_NAME = {run.name.removeprefix("pretrain "): run for run in PRETRAINED}


def _finetune(source: str, algorithm: str, origin: str) -> Run:
    words = ["finetune", "--task", _GOAL, "--algorithm", algorithm]
    words += ["--from", origin] if origin == "scratch" else ["--transfer", origin]
    words += _set({"seed_steps": 10, "warmup_steps": 15, "learner.update_every": 5})
    words += _set(_TASK_SETTINGS)
    name = f"finetune {algorithm} {origin} of {source}"
    return Run(name, words, _BY_NAME[source])


def _offline(source: str, algorithm: str) -> Run:
    words = [
        "finetune",
        "--offline",
        "--task",
        _GOAL,
        "--algorithm",
        algorithm,
        *_set(_TASK_SETTINGS),
    ]
    return Run(f"offline {algorithm} on {source}", words, _BY_NAME[source])


def _adapt(source: str) -> Run:
    task = [] if source.endswith("vector") else ["--task", _GOAL]
    settings = {"evaluate_every": 20, "checkpoint_every": 20, "learner.plan_every": 10}
    return Run(f"adapt {source}", ["adapt", *task, *_set(settings)], _BY_NAME[source])


_STARTS = (
    ("rover, state", "policy"),
    ("rover, onehot", "both"),
    ("rover, pixels", "encoder"),
    ("rnd, onehot", "policy"),
    ("cic, state", "policy"),
    ("mepol, state", "scratch"),
)
_DATA = ("rover, state", "rnd, onehot", "random, pixels")
RUNS = [
    *PRETRAINED,
    *(_finetune(source, name, origin) for name in ("ddpg", "sac") for source, origin in _STARTS),
    *(_offline(source, name) for name in ("cql", "ddpg") for source in _DATA),
    *(_adapt(source) for source in ("rover, state", "rnd, onehot", "rover, pixels", "rnd, vector")),
]
