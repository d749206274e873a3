"""The training loop: pretraining, fine-tuning and offline learning are all runs.

The loop knows no algorithm. A run makes a step and sometimes returns a metrics line; the loop shows
and stores the line, writes checkpoints, and can continue from any of them in the same bits. A
checkpoint is taken right after a metrics line, where the state of an algorithm is smallest.
"""

from __future__ import annotations

import re
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from rover.data.copies import Copies
from rover.errors import RoverWarning
from rover.features import learning_mode
from rover.storage import RunConfig, fitting
from rover.training.monitor import Log, Report, check_logs, monitor
from rover.training.run_folder import RunFolder


class _StepCallback(Protocol):
    def on_step(self, run: Any, /) -> bool | None: ...


Callback = Callable[[Mapping[str, Any]], bool | None] | _StepCallback
"""Receives each metrics line, and returning False stops the run; or an object whose ``on_step``
receives the run after each step, and returning False makes the next step the last."""

PHASES = ("collect", "represent", "estimate", "improve", "evaluate", "store")


class Run(ABC):
    """One run: its loop, its folder, its checkpoints.

    A subclass says what a step is, what its state is, and which files it leaves.

    Args:
        run_dir: the run folder, which must not hold a run yet; None leaves no files.
        checkpoint_every: steps between checkpoints.
        threads: torch threads while learning.

    Attributes:
        num_timesteps: environment steps (of an offline run: updates) so far.
        total_timesteps: those that the run is to have at its end.
        run_dir: the run folder, or None.
        seconds: spent in each phase of the algorithm, added up over a run and its resumptions.
        wall_seconds: time spent up to the latest metrics line, added up likewise.
    """

    activity: ClassVar[str]
    """One word for what goes on, beside the progress bar."""

    _copies: Copies | None = None  # of the environment, which are open while steps are made

    def __init__(self, *, run_dir: str | Path | None, checkpoint_every: int, threads: int) -> None:
        self.num_timesteps = 0
        self.total_timesteps = 0
        self.run_dir = None if run_dir is None else Path(run_dir)
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._folder = None if run_dir is None else RunFolder(run_dir)
        self._checkpoint_every = checkpoint_every
        self._threads = threads
        self._has_begun = False
        self._is_finished = False  # no further step is needed, after a metrics line
        self._last_record = -1
        self._last_checkpoint = 0
        self.wall_seconds = 0.0
        self._began = 0.0  # on the clock, had all of the run been made at once

    @abstractmethod
    def describe(self, total_timesteps: int) -> RunConfig:
        """The contents of config.json for a run of `total_timesteps` steps."""

    @abstractmethod
    def _begin(self) -> Mapping[str, Any] | None:
        """Prepare the first step; a metrics line if there is anything to measure before it."""

    @abstractmethod
    def _step(self, *, is_last: bool) -> Mapping[str, Any] | None:
        """Make one step; a metrics line where one is due."""

    @abstractmethod
    def _figures(self) -> Mapping[str, Any]:
        """The figures of summary.json."""

    @abstractmethod
    def _state(self) -> Mapping[str, Any]:
        """Everything that the next step depends on, right after a metrics line.

        Of numpy's generators those that are attributes are stored and restored with it.
        """

    @abstractmethod
    def _load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`_state` returned."""

    @abstractmethod
    def _save_results(self, folder: Path) -> None:
        """Write the policy and whatever else the run leaves."""

    @abstractmethod
    def _conclude(self) -> None:
        """Choose and measure the final policy after the last step; warn of doubts."""

    def _prepare_folder(self, folder: Path) -> None:
        """Write what the run begins with, before its config.json."""
        del folder

    @contextmanager
    def stopwatch(self, phase: str) -> Iterator[None]:
        """Add the time of a `with` block to `phase`; phases do not nest."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - began

    def summary(self) -> dict[str, Any]:
        """The contents of summary.json; figures are None where they are not known."""
        return {**self._figures(), "wall_seconds": self.wall_seconds, "seconds": dict(self.seconds)}

    def finish(
        self,
        *,
        progress_bar: bool = False,
        log: Sequence[Log] = (),
        callback: Callback | None = None,
    ) -> Self:
        """Make the steps that are left up to :attr:`total_timesteps`, and write the results.

        Args:
            progress_bar: draw a progress bar.
            log: write scalars for these to the run folder.
            callback: called with each metrics line, where returning False stops the run; or an
                object with ``on_step``, called with the run after each step.
        """
        if log:
            check_logs(log, self.run_dir)
        self._began = time.perf_counter() - self.wall_seconds
        with ExitStack() as stack:
            stack.enter_context(learning_mode(self._threads))
            stack.enter_context(_each_warning_once())
            if self._copies is not None:
                stack.push(self._copies)
            if self._folder is not None:
                config = self.describe(self.total_timesteps)
                stack.enter_context(self._folder.open(config, self._prepare_folder))
            reports: list[Report] = []
            if progress_bar or log:
                steps = self.num_timesteps, self.total_timesteps
                shown = monitor(self.activity, *steps, progress_bar, log, self.run_dir)
                reports = stack.enter_context(shown)
            self._loop(reports, callback)
            self._conclude()
            if self._folder is not None:
                self._write_results(self._folder)
            self.wall_seconds = time.perf_counter() - self._began
        return self

    def _loop(self, reports: Sequence[Report], callback: Callback | None) -> None:
        """Make steps until there are as many as asked for, or the run or its callback ends it."""
        on_record = callback if callable(callback) else None
        on_step, total = getattr(callback, "on_step", None), self.total_timesteps
        record = None if self._has_begun else self._begin()
        self._has_begun = True
        while True:
            # Shown, stored, called back, in this order: a callback that stops the run finds its
            # line on disk.
            if record is not None:
                # Python's numbers in the place of numpy's scalars.
                values = (v.item() if isinstance(v, np.generic) else v for v in record.values())
                record = dict(zip(record, values, strict=True))
                spacing = self.num_timesteps - self._last_record
                self._last_record = self.num_timesteps
                for report in reports:
                    report(record, self.seconds)
                if self._folder is not None:
                    is_last = self.num_timesteps + spacing > total
                    self._store(self._folder, record, is_last=is_last)
                is_stopped = on_record is not None and on_record(record) is False
                if is_stopped or self._is_finished:
                    return
            if self.num_timesteps >= total:
                return
            record = self._step(is_last=self.num_timesteps + 1 == total)
            if on_step is not None and on_step(self) is False:
                total = min(total, self.num_timesteps + 1)

    def _store(self, folder: RunFolder, record: Mapping[str, Any], *, is_last: bool) -> None:
        self.wall_seconds = time.perf_counter() - self._began
        with self.stopwatch("store"):
            folder.append_metrics({**record, "wall_time": round(self.wall_seconds, 3)})
            # Right after a line, where an agent's state is smallest.
            due = self.num_timesteps - self._last_checkpoint >= self._checkpoint_every
            if (due or is_last) and self.num_timesteps < self.total_timesteps:
                self._checkpoint(folder)  # the last one is written when all results are there

    def _generators(self) -> dict[str, np.random.Generator]:
        """The sources of random numbers of this run, by the names of its attributes."""
        return {k: v for k, v in vars(self).items() if isinstance(v, np.random.Generator)}

    def _checkpoint(self, folder: RunFolder) -> None:
        self._last_checkpoint = self.num_timesteps
        # The clock is part of the state, so that the times of a resumed run add up.
        state = {
            "step": self.num_timesteps,
            "seconds": self.seconds,
            "wall_seconds": self.wall_seconds,
            "content": dict(self._state()),
            "generators": {k: v.bit_generator.state for k, v in self._generators().items()},
        }
        folder.write_checkpoint(state)
        folder.write_summary(self.summary(), complete=False, ended=False)

    def _write_results(self, folder: RunFolder) -> None:
        with self.stopwatch("store"):
            self._save_results(folder.path)
        self.wall_seconds = time.perf_counter() - self._began
        # After the results: a kill in between leaves a run that resumes and writes them again.
        if self._last_record == self.num_timesteps != self._last_checkpoint:
            self._checkpoint(folder)
        is_complete = self._is_finished or self.num_timesteps >= folder.planned
        folder.write_summary(self.summary(), complete=is_complete, ended=True)

    def restore(self) -> None:
        """Take over the state that the run folder's run has come to.

        Steps behind the latest checkpoint, up to the end that the run had, are made again.
        """
        assert self._folder is not None
        state, n_steps = self._folder.read_checkpoint()
        misfit = f"the checkpoint in {self._folder.path} does not fit this run"
        with learning_mode(self._threads):
            if state is not None:
                with fitting(misfit):
                    self._load_state(state["content"])
                    # Last: whatever was made anew of the content may have drawn from them.
                    for name, generator in self._generators().items():
                        generator.bit_generator.state = state["generators"][name]
                    # Only now: a state that does not fit must leave a run that can be refused.
                    self.num_timesteps = self._last_checkpoint = int(state["step"])
                    self._last_record, self._has_begun = self.num_timesteps, True
                    self.seconds.update(state["seconds"])
                    self.wall_seconds = float(state["wall_seconds"])
            if self.num_timesteps < n_steps:
                with warnings.catch_warnings(action="ignore", category=RoverWarning):
                    self._make_again(n_steps)

    def _make_again(self, n_steps: int) -> None:
        """Make steps that the run has made before, and whose lines are stored."""
        records = [] if self._has_begun else [self._begin()]
        self._has_begun = True
        while self.num_timesteps < n_steps:
            records.append(self._step(is_last=self.num_timesteps + 1 == n_steps))
            if records[-1] is not None:
                self._last_record = self.num_timesteps
        assert self._folder is not None
        self._folder.take_in_lines(len(records) - records.count(None))


@contextmanager
def _each_warning_once() -> Iterator[None]:
    """Show this package's warnings once for each line that issues them, whatever their figures."""
    with warnings.catch_warnings():
        # Wrapped and not filtered: filters match texts, which carry figures that differ every time.
        show = warnings.showwarning
        seen: set[tuple[str, int, str]] = set()

        def show_first(
            message: Any, category: Any, filename: str, lineno: int, *others: Any, **more: Any
        ) -> None:
            key = filename, lineno, re.sub(r"[-+]?[\d.,]+", "", str(message))
            if not (issubclass(category, RoverWarning) and key in seen):
                seen.add(key)
                show(message, category, filename, lineno, *others, **more)

        warnings.showwarning = show_first
        yield
