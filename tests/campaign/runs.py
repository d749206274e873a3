"""Small runs of every agent, observation and learner, as command lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from small_agents import SMALL

from .processes import rover

STEPS = 100
GRID = "S..\n.#.\n..G"
_GOAL = ("--task", "goal=2,2")

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
_TASK = {"evaluate_every": 20, "checkpoint_every": 20}


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
    for name, value in settings.items():
        if isinstance(value, Mapping):
            words += _set({f"{name}.{key}": one for key, one in value.items()})
            continue
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


_STATE, _RND = _pretrain("rover", "state"), _pretrain("rnd", "onehot")
_ONLINE = {"seed_steps": 10, "warmup_steps": 15, "learner.update_every": 5}
# Every way to observe and every way to learn, agents with networks of their own, and the paper's
# preset.
RUNS = [
    _STATE,
    _pretrain("rover:paper", "onehot"),
    _pretrain("rover", "pixels"),
    _RND,
    _pretrain("mepol", "vector"),
    Run("finetune", ["finetune", *_GOAL, *_set(_TASK | _LEARNER | _ONLINE)], _RND),
    Run("offline", ["finetune", "--offline", *_GOAL, *_set(_TASK | _LEARNER)], _STATE),
    Run("adapt", ["adapt", *_GOAL, *_set(_TASK | {"learner.plan_every": 10})], _STATE),
]
