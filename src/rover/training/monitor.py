"""Progress of a run for people: a progress bar or lines, TensorBoard, and W&B."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import Progress

from rover.errors import ConfigurationError, choose
from rover.storage import read_json, write_json

Report = Callable[[Mapping[str, Any], Mapping[str, float]], None]
"""Shows one metrics line, and the seconds spent so far by phase."""

Log = Literal["tensorboard", "wandb"]
"""Programs that scalars of a run are written for: TensorBoard, and Weights & Biases by it."""

# Package → its name, and the extra that installs it.
_LOGS = {"tensorboard": ("TensorBoard", "tb"), "wandb": ("Weights & Biases", "wandb")}

_LINE_EVERY = 60.0  # seconds between two lines where there is no terminal for a bar


def check_logs(log: Sequence[Log], run_dir: Path | None) -> None:
    """Refuse, before a run begins, a log that is unknown, not installed or has no folder."""
    for name in log:
        title, extra = _LOGS[choose("log", name, _LOGS)]
        if run_dir is None:
            raise ConfigurationError(f"log={name!r} needs a run_dir to write to")
        if find_spec(name) is None or find_spec("tensorboard") is None:
            raise ConfigurationError(
                f"{title} is not installed: pip install '.[{extra}]', or do not log to it"
            )


@contextmanager
def monitor(
    label: str, done: int, total: int, progress_bar: bool, log: Sequence[Log], run_dir: Path | None
) -> Iterator[list[Report]]:
    """Show a run's progress inside a `with` block, after `done` of `total` steps.

    Scalars are written below `run_dir`, for what `log` names (:func:`check_logs`).
    """
    folder = Path(str(run_dir))
    reports: list[Report] = []
    with ExitStack() as stack:
        if "wandb" in log:
            import wandb

            # Before TensorBoard's writer, whose scalars it takes.
            about, file = read_json(folder / "config.json"), folder / "wandb.json"
            if not file.exists():  # drawn once: a path may be another run's tomorrow
                write_json(file, {"id": secrets.token_hex(8)})
            run_id = read_json(file)["id"]
            how = {"id": run_id, "resume": "allow", "sync_tensorboard": True}
            stack.enter_context(wandb.init(project="rover", dir=run_dir, config=about, **how))
        if log:
            reports.append(stack.enter_context(_tensorboard(folder, done)))
        if progress_bar:
            reports.append(stack.enter_context(_bar_or_lines(label, done, total)))
        yield reports


@contextmanager
def _bar_or_lines(label: str, done: int, total: int) -> Iterator[Report]:
    """A bar on a terminal; elsewhere a line on standard error now and then."""
    console = Console(stderr=True)  # what a command prints can be piped
    if console.is_terminal or console.is_jupyter:
        with Progress(console=console) as progress:
            task = progress.add_task(label, total=total, completed=done)

            def update(record: Mapping[str, Any], _: Mapping[str, float]) -> None:
                shown = f"{label}: {_figures(record)}"
                progress.update(task, completed=record["step"], description=shown)

            yield update
        return
    began = last = time.monotonic()

    def report(record: Mapping[str, Any], _: Mapping[str, float]) -> None:
        nonlocal last
        now, step = time.monotonic(), record["step"]
        if now - last >= _LINE_EVERY:
            last = now
            left = (now - began) * (total - step) / max(1, step - done)
            sys.stderr.write(
                f"{label}: {step:,} of {total:,}, {_figures(record)}, about {left:.0f} s left\n"
            )
            sys.stderr.flush()

    yield report


@contextmanager
def _tensorboard(run_dir: Path, done: int) -> Iterator[Report]:
    from torch.utils.tensorboard.writer import SummaryWriter

    # Points behind the step that a run resumes from would be drawn twice.
    with SummaryWriter(str(run_dir / "tensorboard"), purge_step=done + 1) as writer:

        def report(record: Mapping[str, Any], seconds: Mapping[str, float]) -> None:
            spent = {f"seconds/{phase}": value for phase, value in seconds.items()}
            for name, value in {**record, **spent}.items():
                # The step is the axis of every curve, and none of them.
                if isinstance(value, int | float) and name != "step":
                    writer.add_scalar(name, value, record["step"])

        yield report


def _figures(record: Mapping[str, Any]) -> str:
    """The figures of a metrics line that a person wants to watch."""
    if "greedy_return" in record:
        return f"greedy return {record['greedy_return']:.1f}"
    if record.get("coverage") is not None:
        return f"coverage {record['coverage']:.0%}, J/J* {record['optimality_ratio']:.3f}"
    return f"episode {record['episode'] + 1}"
