"""Where the wall-clock time of a run goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

PHASES = ("collect", "represent", "estimate", "improve", "evaluate", "store")


class Stopwatch:
    """Seconds spent per phase of the algorithm; phases do not nest.

    Attributes:
        seconds: seconds per phase, added up over a run and its resumptions.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time of a `with` block to `phase`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] += time.perf_counter() - began
