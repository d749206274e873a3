"""Ctrl-C and SIGTERM: one line that says how to go on, the exit code 128 + signal, no traceback.

A signal becomes an exception, so that files, progress bars and processes are closed. Where an
exception can get lost or be taken for another one, the process ends at once: while something is
imported, in a finaliser, after a second signal, and before and after the command itself.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class _Stop(KeyboardInterrupt):
    """A signal asked the program to stop.

    Args:
        number: of the signal.
        advice: what the line says behind "interrupted".
    """

    def __init__(self, number: int, advice: str) -> None:
        super().__init__()
        self.exit_code = 128 + number
        self.line = f"rover: {_WORDS[signal.Signals(number)]}{advice}\n"


class _State:
    """What a signal handler needs to know."""

    is_running = False
    received: _Stop | None = None
    advice: Callable[[], str] = staticmethod(lambda: "")


def end_at_signals() -> None:
    """Let a signal end the process at once, with one line: before there is anything to close.

    At its very end, when Python has forgotten who answers, signals are ignored: all is done.
    """
    for number in _heard():
        signal.signal(number, _answer)
        atexit.register(signal.signal, number, signal.SIG_IGN)


def _heard() -> list[signal.Signals]:
    """The signals that whoever started this process did not have it ignore, as nohup does."""
    return [number for number in _WORDS if signal.getsignal(number) is not signal.SIG_IGN]


def answered(command: Callable[[], int]) -> int:
    """The exit code of a command; a signal ends it, once, by an exception."""
    with _answering():
        try:
            return command()
        except BaseException as error:
            stop = _stop_of(error)
            if stop is None:
                raise
            sys.stderr.write(stop.line)
            return stop.exit_code


@contextmanager
def _answering() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # no signal arrives here
        return
    before = {number: signal.signal(number, _answer) for number in _heard()}
    hook, sys.unraisablehook = sys.unraisablehook, _end_if_lost
    _State.is_running, _State.received = True, None
    try:
        yield
    finally:
        _State.is_running = False
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def advised(advice: Callable[[], str]) -> Iterator[None]:
    """What an interrupted user is told inside a `with` block: how far it came, and how to go on."""
    before, _State.advice = _State.advice, staticmethod(advice)
    try:
        yield
    except KeyboardInterrupt as error:
        if not isinstance(error, _Stop):
            raise _Stop(signal.SIGINT, advice()) from None
        raise
    finally:
        _State.advice = before


def raise_if_stopped() -> None:
    """Raise the exception of a signal again, if it was lost on its way."""
    if _State.received is not None:
        raise _State.received


def _stop_of(error: BaseException) -> _Stop | None:
    """The signal that an exception comes from, perhaps by way of a library that changed it."""
    if isinstance(error, KeyboardInterrupt):
        return error if isinstance(error, _Stop) else _Stop(signal.SIGINT, "")
    return _State.received


def _answer(number: int, frame: FrameType | None) -> None:
    stop, is_first = _Stop(number, _State.advice()), _State.received is None
    if not (is_first and _State.is_running) or _is_importing(frame):
        _end(stop)
    _State.received = stop
    raise stop


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _end_if_lost(lost: Any) -> None:
    if isinstance(lost.exc_value, _Stop):
        _end(lost.exc_value)
    sys.__unraisablehook__(lost)


def _end(stop: _Stop) -> None:
    """Say the line, and end this process and those that it started."""
    with suppress(Exception):
        if "multiprocessing" in sys.modules:
            for process in sys.modules["multiprocessing"].active_children():
                process.terminate()
    with suppress(Exception):
        sys.stdout.flush()
    is_hidden = os.isatty(2)  # by a progress bar: the cursor
    os.write(2, (("\x1b[?25h" if is_hidden else "") + stop.line).encode())
    os._exit(stop.exit_code)
