"""Progress of a run for people: a progress bar or lines, TensorBoard, and W&B."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rover.errors import ConfigurationError, choose

Report = Callable[[Mapping[str, Any], Mapping[str, float]], None]
"""Shows one metrics line, and the seconds spent so far by phase."""


Log = Literal["tensorboard", "wandb"]
"""Programs that scalars of a run are written for, in its folder: TensorBoard, Weights & Biases."""

# Package → its name, and the extra that installs it.
_LOGS = {"tensorboard": ("TensorBoard", "tb"), "wandb": ("Weights & Biases", "wandb")}

LINE_EVERY = 30.0
"""Seconds between two lines where there is no terminal for a bar."""

_TAGS_OF_SB3 = {
    "training_return": "rollout/ep_rew_mean",
    "greedy_return": "eval/mean_reward",
    "critic_loss": "train/critic_loss",
}
"""Figures of a metrics line by the tags that Stable-Baselines3 gives them."""

_OF_RUN = ("episode", "observations", "states_seen")
_OF_POLICY = ("coverage", "objective", "optimality", "entropy", "cells", "return")


def check_logs(log: Sequence[Log], run_dir: Path | None) -> None:
    """Refuse, before a run begins, a log that is unknown, not installed or has no folder."""
    for name in log:
        title, extra = _LOGS[choose("log", name, _LOGS)]
        if run_dir is None:
            raise ConfigurationError(f"log={name!r} needs a run_dir to write to")
        if find_spec(name) is None:
            raise ConfigurationError(
                f"{title} is not installed: pip install '.[{extra}]', or do not log to it"
            )


@contextmanager
def monitor(
    label: str,
    done: int,
    total: int,
    *,
    progress_bar: bool,
    log: Sequence[Log] = (),
    run_dir: Path | None = None,
    config: Mapping[str, Any],
) -> Iterator[Report]:
    """Show a run's progress inside a `with` block, after `done` of `total` steps.

    Scalars are written below `run_dir`, for what `log` names (:func:`check_logs`).
    """
    with ExitStack() as stack:
        reports: list[Report] = []
        for name in log:
            assert run_dir is not None
            begin = {"tensorboard": _tensorboard, "wandb": _wandb}[name]
            reports.append(stack.enter_context(begin(run_dir, done, config)))
        if progress_bar:
            reports.append(stack.enter_context(_bar_or_lines(label, done, total)))

        def report(record: Mapping[str, Any], seconds: Mapping[str, float]) -> None:
            for each in reports:
                each(record, seconds)

        yield report


@contextmanager
def _bar_or_lines(label: str, done: int, total: int) -> Iterator[Report]:
    """A bar on a terminal; elsewhere a line on standard error now and then."""
    # On standard error, so that what a command prints can be piped.
    console = Console(stderr=True)
    if console.is_terminal or console.is_jupyter:
        columns = (
            *(SpinnerColumn(), TextColumn(f"[bold]{label}"), BarColumn(), MofNCompleteColumn()),
            *(TextColumn("{task.fields[figures]}"), TextColumn("{task.fields[rate]}")),
            TimeElapsedColumn(),
            *(TextColumn("eta"), TimeRemainingColumn()),
        )
        with Progress(*columns, console=console) as progress:
            task = progress.add_task(label, total=total, completed=done, figures="", rate="")
            begun = time.monotonic()

            def update(record: Mapping[str, Any], _: Mapping[str, float]) -> None:
                rate = _rate(record["step"] - done, time.monotonic() - begun)
                options: dict[str, Any] = {"figures": _figures(record), "rate": rate}
                progress.update(task, completed=record["step"], **options)

            yield update
        return
    began = last = time.monotonic()
    first = done

    def report(record: Mapping[str, Any], _: Mapping[str, float]) -> None:
        nonlocal last
        now = time.monotonic()
        # A log file of a batch system should not grow by a line for each update.
        if now - last >= LINE_EVERY:
            last, step = now, record["step"]
            spent = now - began
            left = spent * (total - step) / max(1, step - first)
            line = (
                f"{label}: {step:,} of {total:,}, {_figures(record)}, "
                f"{_rate(step - first, spent)}, {spent:.0f} s, about {left:.0f} s left\n"
            )
            sys.stderr.write(line)
            sys.stderr.flush()

    yield report


@contextmanager
def _tensorboard(run_dir: Path, done: int, config: Mapping[str, Any]) -> Iterator[Report]:
    from torch.utils.tensorboard.writer import SummaryWriter

    # Points behind the step that a run resumes from would be drawn twice.
    with SummaryWriter(str(run_dir / "tensorboard"), purge_step=done) as writer:
        began = time.monotonic()

        def report(record: Mapping[str, Any], seconds: Mapping[str, float]) -> None:
            step = record["step"]
            scalars = _scalars(record, seconds)
            # Under the names of Stable-Baselines3, too, so that its runs share the charts.
            scalars |= {
                tag: record[name]
                for name, tag in _TAGS_OF_SB3.items()
                if record.get(name) is not None
            }
            if step > done:
                scalars["time/fps"] = (step - done) / max(time.monotonic() - began, 1e-9)
            for name, value in scalars.items():
                writer.add_scalar(name, value, step)

        yield report


@contextmanager
def _wandb(run_dir: Path, done: int, config: Mapping[str, Any]) -> Iterator[Report]:
    import wandb

    # The place identifies a run: one that is resumed continues its curves.
    place = run_dir.absolute()
    try:
        run = wandb.init(
            project="rover",
            name="/".join(place.parts[-3:]),
            id=hashlib.sha256(str(place).encode()).hexdigest()[:16],  # a resumed run goes on there
            resume="allow",
            dir=run_dir,
            config=dict(config),
            settings=wandb.Settings(console="off", silent=True),
        )
    except wandb.Error as error:
        raise ConfigurationError(
            f"Weights & Biases does not begin: {' '.join(str(error).split())}; log in with `wandb "
            "login`, or set WANDB_MODE=offline"
        ) from None
    with run:
        yield lambda record, seconds: run.log(_scalars(record, seconds), step=record["step"])


def _scalars(record: Mapping[str, Any], seconds: Mapping[str, float]) -> dict[str, float]:
    """The numbers of a metrics line, in groups, and the seconds by phase."""
    scalars = {f"seconds/{phase}": spent for phase, spent in seconds.items()}
    for name, value in record.items():
        # The step is the axis of every curve, and none of them.
        if isinstance(value, int | float) and name != "step":
            is_policy = any(part in name for part in _OF_POLICY)
            group = "run" if name in _OF_RUN else "policy" if is_policy else "learning"
            scalars[f"{group}/{name}"] = value
    return scalars


def _rate(n_steps: int, seconds: float) -> str:
    """Steps a second, in words."""
    return f"{n_steps / max(seconds, 1e-9):.3g} steps/s"


def _figures(record: Mapping[str, Any]) -> str:
    """The figures of a metrics line that a person wants to watch."""
    if "greedy_return" in record:
        return f"greedy return {record['greedy_return']:.1f}"
    parts = []
    if record.get("coverage") is not None:
        parts.append(f"coverage {record['coverage']:.0%}  J/J* {record['optimality_ratio']:.3f}")
    else:
        # different observations have no meaning for continuous states
        parts.append(f"episode {record['episode'] + 1}")
        if record.get("cells") is not None:
            parts.append(f"{record['cells']:.0f} cells")
    if record.get("pairs") is not None:
        parts.append(f"{record['pairs']:,} pairs tried")
    return "  ".join(parts)
