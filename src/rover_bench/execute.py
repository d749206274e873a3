"""Runs side by side, here or on a cluster, each in a process and thread of its own.

A finished run is never repeated, and one that fails is reported while the others go on.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from rover.baselines import make_agent, resume_agent
from rover.envs import import_modules
from rover.envs.registration import IMPORTED
from rover.errors import ConfigurationError, RoverError
from rover.finetuning import (
    AdaptConfig,
    FinetuneConfig,
    OfflineConfig,
    Task,
    adapt,
    finetune,
    resume_task,
    train_offline,
)
from rover.policies import load_policy
from rover.storage import append_line, is_complete, read_json, read_run_config, run_lock
from rover.training.agent import Agent
from rover.training.monitor import Log, check_logs
from rover.training.run_folder import load_run_buffer
from rover_bench.executors import EXECUTORS, LocalConfig, Pool
from rover_bench.measure import machine, provenance
from rover_bench.study import SCRATCH, Case, Learning, Run

_TASK_CONFIGS: Mapping[str, type[FinetuneConfig | AdaptConfig | OfflineConfig]] = {
    "finetune": FinetuneConfig,
    "adapt": AdaptConfig,
    "offline": OfflineConfig,
}

# Seconds in which a process that was lost lets go of its run.
_PATIENCE = 10.0

_POLL_SECONDS = 0.5
"""Seconds between two readings of the jobs."""

Say = Callable[[str], None]
"""Receives one line when a run ends."""


def execute(
    runs: Sequence[Run],
    *,
    jobs: int,
    say: Say,
    executor: LocalConfig = EXECUTORS["local"],
    log: Sequence[Log] = (),
    report_only: bool = False,
) -> tuple[list[Run], dict[Path, str]]:
    """Bring every run to its end, `jobs` ≥ 1 of them side by side, and before them the pretrained
    runs that they start from; runs that share a folder are made once.

    `say` receives one line when a run ends; `report_only` only asks which runs are finished.
    Returned are the finished runs, and the folder of each run that failed → one sentence.
    ConfigurationError: `jobs` is not positive, or what `executor` or `log` names is not there.
    """
    if jobs < 1:
        raise ConfigurationError(f"jobs must be at least 1, not {jobs}")
    check_logs(log, Path())
    # By folder: cases of a study, or several studies, may share runs.
    every, failures = {run.folder: run for run in runs}, dict[Path, str]()
    finished = {folder for folder, run in every.items() if _is_done(run, failures)}
    if not report_only:
        unmade = [run for folder, run in every.items() if folder not in finished]
        sources = {run.source.folder: run.source for run in unmade if run.source is not None}
        first = [run for run in sources.values() if not _is_done(run, failures)]
        say(f"{len(unmade)} of {len(every)} runs to be made, {jobs} side by side")
        with _one_thread():
            # With nothing to make no cluster is asked for.
            pool = (executor if unmade else EXECUTORS["local"]).open(jobs)
            context = (provenance(jobs=jobs), tuple(IMPORTED), Path.cwd(), tuple(log))
            try:
                # What tasks start from is made before any of them, and fails all of its tasks.
                _make(first, failures, pool=pool, context=context, say=say)
                for run in unmade:
                    if run.source is not None and (reason := failures.get(run.source.folder)):
                        text = f"{run.source.name}, which it starts from, failed: {reason}"
                        failures[run.folder] = text
                _make(unmade, failures, pool=pool, context=context, say=say)
            finally:  # above all on KeyboardInterrupt: every run can be resumed
                pool.stop()
        finished = every.keys() - failures.keys()
    return [run for run in runs if run.folder in finished], failures


@contextmanager
def _one_thread() -> Iterator[None]:
    """Give processes that are started inside a `with` block one thread each.

    More would change the bits, and two runs would fight over the cores.
    """
    before = dict(os.environ)
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _is_done(run: Run, failures: dict[Path, str]) -> bool:
    """Tell whether a run is finished; one that cannot be made is noted among the failures."""
    try:
        return _is_finished(run)
    except RoverError as error:
        failures[run.folder] = reason_of(error)
        return False


def reason_of(error: Exception) -> str:
    """Error as one sentence."""
    return f"{type(error).__name__}: {error}"


def _make(
    runs: Sequence[Run],
    failures: dict[Path, str],
    *,
    pool: Pool,
    context: Sequence[Any],
    say: Say,
) -> None:
    """Bring runs to their end in a pool, and note why others fail; `context` as of `_work`."""
    ready = [run for run in runs if run.folder not in failures]
    for run in runs:
        if run.folder in failures:
            say(f"{run.name}: FAILED: {failures[run.folder]}")
    started = pool.start(_work, [(run, *context) for run in ready])
    waiting = list(zip(started, ready, strict=True))
    numbers = itertools.count(1)
    while waiting:
        ended = [(job, run) for job, run in waiting if job.done()]
        waiting = [(job, run) for job, run in waiting if not job.done()]
        for job, run in ended:
            try:
                failure = job.result()
            except BrokenExecutor as error:
                failure = f"{error}; run the command again to resume it"
            except Exception as error:
                failure = reason_of(error)
            if failure is not None:
                failures[run.folder] = failure
            text = f"FAILED: {failure}" if failure else f"done, {_result(run)}"
            say(f"[{next(numbers)}/{len(ready)}] {run.name}: {text}")
        time.sleep(0.0 if ended else _POLL_SECONDS)


def _result(run: Run) -> str:
    """Result of a finished run, in a few words."""
    summary = read_json(run.folder / "summary.json")
    forms = {"greedy_return": "return {:g}", "optimality_ratio": "J/J* {:.4f}"}
    forms |= {"cells": "{:.0f} cells", "observations": "{} observations"}
    shown = (form.format(summary[k]) for k, form in forms.items() if summary.get(k) is not None)
    return f"in {summary['wall_seconds']:.0f} s: {next(shown, 'finished')}"


def _work(
    run: Run,
    about: Mapping[str, Any],
    modules: Sequence[str] = (),
    folder: Path = Path(),
    log: Sequence[Log] = (),
) -> str | None:
    """Bring a run to its end in a process of its own; the reason if it fails, else None."""

    def show(message: Warning | str, *where: Any, **others: Any) -> None:
        del where, others  # not the line of code that warned, but which of many runs
        sys.stderr.write(f"{run.name}: warning: {message}\n")

    warnings.showwarning = show
    try:
        os.chdir(folder)
        import_modules(modules)
        if _is_finished(run):  # by a process or machine that was lost before it could say so
            return None
        run.folder.mkdir(parents=True, exist_ok=True)
        # One line for each session of a run, perhaps on several machines. The run's lock may still
        # be held by a process that was lost a moment ago.
        with run_lock(run.folder, patience=_PATIENCE):
            append_line(run.folder / "provenance.jsonl", {**about, **machine()})
        _bring_to_end(run, log)
    except Exception as error:
        if not isinstance(error, RoverError):
            traceback.print_exc()  # not one of ours, so where it happened matters
        return reason_of(error)
    return None


def _is_finished(run: Run) -> bool:
    """Tell whether a run has made all its steps."""
    if _is_new(run):
        return False
    # A folder is never taken for a run that it does not hold, whatever its name says.
    stored = read_run_config(run.folder).model_dump(mode="json")
    asked = {**_asked(run.case.model_dump_json()), "seed": run.seed}
    stored, asked = ({**one, **one["settings"], "settings": None} for one in (stored, asked))
    differing = [
        f"{key} {stored.get(key)!r}, not {value!r}"
        for key, value in asked.items()
        if stored.get(key) != value
    ]
    if differing:
        raise ConfigurationError(
            f"{run.folder} holds a run with other settings than are asked for "
            f"({'; '.join(differing)}); delete that folder or choose another one for the runs"
        )
    if not is_complete(run.folder):
        return False
    # A complete run may have fewer steps than requested now, if it was stopped.
    steps = read_json(run.folder / "summary.json")["steps"]
    return bool(steps >= run.case.budget)


def _is_new(run: Run) -> bool:
    return not (run.folder / "config.json").exists()


@lru_cache
def _asked(case_json: str) -> dict[str, Any]:
    """Configuration that runs of a case must have; an agent is made for it."""
    # Cached by its text: a study asks once for each of its seeds, and agents take a while to make.
    case = Case.model_validate_json(case_json)
    if (learn := case.learn) is None:
        config = _make_agent(case).describe(case.steps)
        return config.model_dump(mode="json", exclude={"format", "version", "versions"})
    # What a run folder says where nothing is taken over is None, whatever the study says.
    transfers = learn.kind == "finetune" and case.agent != SCRATCH
    settings = _TASK_CONFIGS[learn.kind].make(learn.algorithm, learn.preset, _settings(learn))
    return {
        "kind": learn.kind,
        "algorithm": learn.algorithm,
        "total_timesteps": learn.steps,
        "transfer": learn.transfer if transfers else None,
        "settings": settings.model_dump(mode="json"),
    }


def _settings(learn: Learning) -> dict[str, Any]:
    """Settings of a task: curves of a study are compared step by step, so that none stops early."""
    stops = {"stop_after": None} if learn.kind == "finetune" else {}
    return {**stops, **learn.settings}


def _bring_to_end(run: Run, log: Sequence[Log] = ()) -> None:
    """Begin a run, or resume it, and bring it to its end."""
    # A run that has begun knows all that it needs, and goes on from its last checkpoint.
    if run.case.learn is not None:
        if _is_new(run):
            _learn_task(run, run.case.learn, log)
        else:
            resume_task(run.folder, log=log)
    elif _is_new(run):
        _make_agent(run.case, seed=run.seed, run_dir=run.folder).learn(run.case.steps, log=log)
    else:
        resume_agent(run.folder).finish(log=log)


def _make_agent(case: Case, **options: Any) -> Agent[Any]:
    options |= {"env_kwargs": case.env_kwargs, **case.settings}
    return make_agent(case.agent, case.env, case.preset or None, **options)


def _learn_task(run: Run, learn: Learning, log: Sequence[Log]) -> None:
    case, start = run.case, run.source
    env = Task.make(case.env, case.env_kwargs, goal=learn.goal, reward=learn.reward)
    common: dict[str, Any] = {
        "seed": run.seed,
        "run_dir": run.folder,
        "log": log,
        **_settings(learn),
    }
    if learn.kind == "adapt":
        assert start is not None
        adapt(start.folder, env, total_timesteps=learn.steps, **common)
        return
    common |= {"algorithm": learn.algorithm, "preset": learn.preset}
    policy = None
    if start is not None:
        common["source"] = str(start.folder)
        if learn.offline:
            train_offline(load_run_buffer(start.folder), env, updates=learn.steps, **common)
            return
        policy = load_policy(start.folder / "policy.safetensors")
    finetune(policy, env, total_timesteps=learn.steps, transfer=learn.transfer, **common)
