"""Ctrl-C and SIGTERM: one line that says how to go on, the exit code 128 + signal, no traceback.

The first signal becomes an exception, so that files, progress bars and processes are closed; a
second one ends the process at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_VERBS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class _Stop(KeyboardInterrupt):
    """A signal asked the program to stop."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.exit_code = 128 + number
        advice = _advice[-1]() if _advice else ""
        self.line = f"rover: {_VERBS[signal.Signals(number)]}{advice}\n"


_received: list[_Stop] = []
_advice: list[Callable[[], str]] = []


def stopped_by_signals(command: Callable[[], int]) -> int:
    """Exit code of a command, or of the signal that ended it."""
    if threading.current_thread() is not threading.main_thread():
        return command()  # no signal arrives here
    # nohup has SIGINT ignored: so it stays
    heard = [number for number in _VERBS if signal.getsignal(number) is not signal.SIG_IGN]
    handlers = {number: signal.signal(number, _stop) for number in heard}
    # An exception in a finaliser is printed and dropped: ours is raised again at the next record.
    hook, sys.unraisablehook = sys.unraisablehook, _hide_lost
    _received.clear()
    try:
        return command()
    except BaseException as error:  # a library may have made another exception of ours
        _note_interrupt(error)
        if not _received:
            raise
        sys.stderr.write(_received[0].line)
        return _received[0].exit_code
    finally:
        sys.unraisablehook = hook
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def advised(advice: Callable[[], str]) -> Iterator[None]:
    """Tell an interrupted user, inside a `with` block, how far it came and how to go on."""
    _advice.append(advice)
    try:
        yield
    except KeyboardInterrupt as error:
        _note_interrupt(error)
        raise
    finally:
        _advice.pop()


def raise_if_stopped() -> None:
    """Raise the exception of a signal again, if it was lost in a finaliser or a library."""
    if _received:
        raise _received[0]


def _note_interrupt(error: BaseException) -> None:
    """Take an interrupt that came without a signal, as from a library, for Ctrl-C."""
    if isinstance(error, KeyboardInterrupt) and not _received:
        _received.append(_Stop(signal.SIGINT))


def _stop(number: int, frame: FrameType | None) -> None:
    _received.append(_Stop(number))
    if len(_received) > 1:
        # Not through sys.stderr: the signal may have come while its lock was held.
        os.write(2, _received[0].line.encode())
        # Workers would go on as orphans, writing to run folders that the user thinks are free.
        if "multiprocessing" in sys.modules:
            for process in sys.modules["multiprocessing"].active_children():
                process.terminate()
        # No finalisers: one of them may be what hangs.
        os._exit(_received[0].exit_code)
    raise _received[0]


def _hide_lost(lost: Any) -> None:
    if not isinstance(lost.exc_value, _Stop):
        sys.__unraisablehook__(lost)
