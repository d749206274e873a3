"""Runs side by side, each in a process and thread of its own.

A finished run is never repeated, and one that fails is reported while the others go on.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from rover.baselines import make_agent, resume_agent
from rover.envs import IMPORTED, import_modules
from rover.errors import ConfigurationError, RoverError
from rover.finetuning import (
    FinetuneConfig,
    OfflineConfig,
    finetune,
    make_task,
    resume_task,
    train_offline,
)
from rover.policies import load_policy
from rover.storage import JsonLines, RunLock, flatten, is_complete, read_json
from rover.sweeps.measure import provenance
from rover.sweeps.study import SCRATCH, Case, Learning, Run
from rover.training.agent import Agent
from rover.training.run_folder import load_run_buffer, read_run_config

Say = Callable[[str], None]
"""Receives one line when a run begins and one when it ends."""


def execute(
    runs: Sequence[Run], *, jobs: int, say: Say, report_only: bool = False
) -> tuple[list[Run], dict[Path, str]]:
    """Bring every run to its end, and before them the pretrained runs that they start from.

    Args:
        runs: runs that share a folder are made once.
        jobs: runs side by side, ≥ 1.
        say: receives one line when a run begins and one when it ends.
        report_only: only ask which runs are finished.

    Returns:
        The finished runs, and the folder of each run that failed → one sentence.

    Raises:
        ConfigurationError: `jobs` is not positive.
    """
    if jobs < 1:
        raise ConfigurationError(f"jobs must be at least 1, not {jobs}")
    every, failures = {run.folder: run for run in runs}, dict[Path, str]()
    finished = {folder for folder, run in every.items() if _is_done(run, failures)}
    if not report_only:
        unmade = [run for run in every.values() if run.folder not in finished]
        sources = {run.source.folder: run.source for run in unmade if run.source is not None}
        # One thread each: more would change the bits, and two runs would fight over the cores.
        with _environment(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1"):
            first = [run for run in sources.values() if not _is_done(run, failures)]
            _make(first, failures, jobs=jobs, say=say)
            finished |= sources.keys() - failures.keys()
            for run in unmade:
                if run.source is not None and (reason := failures.get(run.source.folder)):
                    text = f"{run.source.name}, which it starts from, failed: {reason}"
                    failures.setdefault(run.folder, text)
            _make(list(every.values()), failures, finished, jobs=jobs, say=say)
        finished = every.keys() - failures.keys()
    return [run for run in runs if run.folder in finished], failures


def _is_done(run: Run, failures: dict[Path, str]) -> bool:
    """Whether a run is finished; one that cannot be made is noted among the failures."""
    try:
        return _is_finished(run)
    except RoverError as error:
        failures[run.folder] = reason_of(error)
        return False


def reason_of(error: Exception) -> str:
    """What went wrong, in one sentence."""
    return f"{type(error).__name__}: {error}"


def _make(
    runs: Sequence[Run],
    failures: dict[Path, str],
    finished: Collection[Path] = (),
    *,
    jobs: int,
    say: Say,
) -> None:
    """Bring runs to their end, `jobs` at a time, and note why others fail."""
    numbers, lock, about = itertools.count(1), threading.Lock(), provenance(jobs=jobs)
    others, stopped = set(multiprocessing.active_children()), threading.Event()
    spawn = multiprocessing.get_context("spawn")

    def make(run: Run) -> None:
        failure, end, began = failures.get(run.folder), "finished already", time.perf_counter()
        try:
            if failure is None and run.folder not in finished:
                verb = "starts" if _is_new(run) else "is resumed"
                say(f"{run.name}: {verb}, {run.case.budget:,} steps")
                # a process of its own: one that is killed takes no other with it
                with ProcessPoolExecutor(1, spawn) as process:
                    failure = process.submit(_work, run, about, tuple(IMPORTED)).result()
                end = f"done in {time.perf_counter() - began:.0f} s"
                end += "" if failure else f"; {_result(run)}"
        except BrokenProcessPool:
            if stopped.wait(1.0):  # a signal reaches the parent and its processes in any order
                say(f"{run.name}: stopped")
                return
            failure = (
                "its process ended without a word (killed for lack of memory?); run the command "
                "again to resume it"
            )
        except Exception as error:
            failure = reason_of(error)
        if failure is not None:
            failures[run.folder], end = failure, f"FAILED: {failure}"
        with lock:
            say(f"[{next(numbers)}/{len(runs)}] {run.name}: {end}")

    threads = ThreadPoolExecutor(jobs, initializer=_block_interrupts)
    futures = [threads.submit(make, run) for run in runs]
    try:
        for future in futures:
            future.result()
    except BaseException:  # above all KeyboardInterrupt: every run can be resumed
        stopped.set()
        threads.shutdown(wait=False, cancel_futures=True)
        while not all(future.done() for future in futures):  # a process may just be starting
            for process in set(multiprocessing.active_children()) - others:
                process.terminate()
            time.sleep(0.05)
        raise
    finally:
        threads.shutdown()


def _block_interrupts() -> None:
    """Keep Ctrl-C, which reaches all processes of a terminal, from those that a thread starts.

    It is the parent that ends them. They inherit the block, and have it from their first moment.
    """
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # which starts with the first process, and lifts a block
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


def _work(run: Run, about: Mapping[str, Any], modules: Sequence[str]) -> str | None:
    """What a process does: bring a run to its end; what went wrong, or None.

    Args:
        run: the run.
        about: where and when it is made.
        modules: what the user asked to import.
    """

    def show(message: Warning | str, *where: Any, **others: Any) -> None:
        del where, others  # not the line of code that warned, but which of many runs
        sys.stderr.write(f"{run.name}: warning: {message}\n")

    warnings.showwarning = show
    try:
        import_modules(modules)
        run.folder.mkdir(parents=True, exist_ok=True)
        with RunLock(run.folder):
            JsonLines(run.folder / "provenance.jsonl").append(about)
        _bring_to_end(run)
    except Exception as error:
        if not isinstance(error, RoverError):
            traceback.print_exc()  # not one of ours, so where it happened matters
        return reason_of(error)
    return None


def _result(run: Run) -> str:
    """What came of a finished run, in a few words."""
    summary = read_json(run.folder / "summary.json")
    metrics = run.folder / "metrics.jsonl"
    if not (metrics.exists() and metrics.stat().st_size):
        return "WARNING: too few steps for an update of the policy, which is uniformly random"
    known = {"greedy_return": "return {:g}", "optimality_ratio": "J/J* {:.4f}", "cells": "{} cells"}
    for key, words in known.items():
        if summary.get(key) is not None:
            return words.format(summary[key])
    return f"{summary.get('observations')} observations"


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Set environment variables, which processes started inside the `with` block inherit."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _is_finished(run: Run) -> bool:
    """Whether a run has made all its steps.

    Raises:
        ConfigurationError: the folder holds a run with other settings; the message names them.
        ArtefactError: a damaged file.
    """
    if _is_new(run):
        return False
    found = flatten(read_run_config(run.folder).model_dump(mode="json"))
    asked = flatten({**_asked(run.case.model_dump_json()), "seed": run.seed})
    differing = [
        f"{key} {found.get(key)!r}, not {value!r}"
        for key, value in asked.items()
        if found.get(key) != value
    ]
    if differing:
        raise ConfigurationError(
            f"{run.folder} holds a run with other settings than are asked for "
            f"({'; '.join(differing)}); delete that folder or choose another one for the runs"
        )
    if not is_complete(run.folder):
        return False
    steps = read_json(run.folder / "summary.json")["steps"]  # fewer where it was told to stop
    return bool(steps >= run.case.budget)


def _is_new(run: Run) -> bool:
    return not (run.folder / "config.json").exists()


@lru_cache
def _asked(case_json: str) -> dict[str, Any]:
    """What the configurations of a case's runs must say; an agent is made to say it."""
    case = Case.model_validate_json(case_json)
    if (learn := case.learn) is None:
        config = _make_agent(case).describe(case.steps)
        return config.model_dump(mode="json", exclude={"format", "version", "style"})
    make = OfflineConfig.make if learn.offline else FinetuneConfig.make
    return {
        "kind": "offline" if learn.offline else "finetune",
        "algorithm": learn.algorithm,
        "total_timesteps": learn.steps,
        "transfer": None if learn.offline or case.agent == SCRATCH else learn.transfer,
        "settings": make(learn.algorithm, learn.preset, learn.settings).model_dump(mode="json"),
    }


def _bring_to_end(run: Run) -> None:
    """Begin a run, or resume it, and bring it to its end.

    Raises:
        ConfigurationError: the run cannot be made, or cannot be resumed.
        StorageError: the folder cannot be written, or another process is at the run.
    """
    if run.case.learn is not None:
        if _is_new(run):
            _learn_task(run, run.case.learn)
        else:
            resume_task(run.folder)
    elif _is_new(run):
        _make_agent(run.case, seed=run.seed, run_dir=run.folder).learn(run.case.steps)
    else:
        resume_agent(run.folder).finish()


def _make_agent(case: Case, **options: Any) -> Agent[Any]:
    options |= {"env_kwargs": case.env_kwargs, **case.settings}
    return make_agent(case.agent, case.env, case.preset or None, **options)


def _learn_task(run: Run, learn: Learning) -> None:
    case, start = run.case, run.source
    env = make_task(case.env, case.env_kwargs, goal=learn.goal, reward=learn.reward).make_env()
    common: dict[str, Any] = {
        "algorithm": learn.algorithm,
        "preset": learn.preset,
        "seed": run.seed,
        "run_dir": run.folder,
        **learn.settings,
    }
    policy = None
    if start is not None:
        common["source"] = str(start.folder)
        if learn.offline:
            train_offline(load_run_buffer(start.folder), env, updates=learn.steps, **common)
            return
        policy = load_policy(start.folder / "policy.safetensors")
    finetune(policy, env, total_timesteps=learn.steps, transfer=learn.transfer, **common)
