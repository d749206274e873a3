"""Runs in processes of their own that kill themselves at a given step or in the middle of a write.

The processes are forked from a server that has imported torch already, so one costs milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
from small_envs import ENVIRONMENTS

from rover.baselines import make_agent, resume_agent

Moment = tuple[Literal["step", "write"], int]

FORKED = multiprocessing.get_context("forkserver")
# torch imports the latter, which takes a second, with its first optimizer.
FORKED.set_forkserver_preload(["rover.coverage.agent", "rover_bench.execute", "torch._dynamo"])


def pretrain_in_process(
    folder: Path,
    name: str,
    steps: int,
    settings: Mapping[str, Any],
    kill_at: Moment | None,
    *,
    method: str = "rover",
) -> int:
    """Begin or continue a run; returns the exit code of its process (−9: it was killed)."""
    process = FORKED.Process(
        target=_pretrain, args=(folder, name, steps, dict(settings), kill_at, method)
    )
    process.start()
    process.join(timeout=120)
    assert process.exitcode is not None, "the run hangs"
    return process.exitcode


def _pretrain(
    folder: Path,
    name: str,
    steps: int,
    settings: dict[str, Any],
    kill_at: Moment | None,
    method: str,
) -> None:
    warnings.simplefilter("ignore")
    env = ENVIRONMENTS[name]()
    if kill_at is not None:
        (_kill_in_step if kill_at[0] == "step" else _kill_in_write)(env, kill_at[1])
    if (folder / "config.json").exists():
        agent = resume_agent(folder, env=env)
        agent.finish()
    else:
        make_agent(method, env, seed=5, run_dir=folder, **settings).learn(steps)


def _kill_in_step(env: gym.Env[Any, Any], number: int) -> None:
    # On the class, so that a copy of the environment steps itself and not this one.
    kind, calls = type(env.unwrapped), [0]
    real_step = kind.step

    def step(self: gym.Env[Any, Any], action: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return real_step(self, action)

    kind.step = step  # type: ignore[method-assign]


def _kill_in_write(_: gym.Env[Any, Any], number: int) -> None:
    real_write, calls = os.write, [0]

    def write(file: int, data: Any) -> int:
        calls[0] += 1
        if calls[0] == number:
            real_write(file, memoryview(data)[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return real_write(file, data)

    os.write = write
