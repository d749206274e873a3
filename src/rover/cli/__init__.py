"""The command line: ``rover pretrain``, ``resume``, ``evaluate``, ``plot``, ``compare``, ...

Only the answer to signals is here: a command's module is imported when the command is run, and
torch when it needs it, so that ``--help`` and wrong input are answered before. Ctrl-C and SIGTERM
give one line that says how to go on, and the exit code 128 + signal. The first signal becomes an
exception, so that files, progress bars and processes are closed; a second one ends the process at
once.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

_VERBS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}

# Module state, because signal handlers take no arguments of ours. The innermost advice belongs to
# the current operation.
_received: list[int] = []
_advice: list[Callable[[], str]] = []


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, the process's arguments by default, and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    # Tests and notebooks run several commands in one process.
    _received.clear()
    # nohup has SIGINT ignored: so it stays
    heard = [number for number in _VERBS if signal.getsignal(number) is not signal.SIG_IGN]
    handlers = {number: signal.signal(number, _stop) for number in heard}
    hook, sys.unraisablehook = sys.unraisablehook, _hide_lost
    try:
        from rover.cli.program import answer

        return answer(words)
    except BaseException as error:
        if not _is_stop(error):
            raise
        number = _received[0] if _received else signal.SIGINT
        advice = "".join(map(str, error.args)) if isinstance(error, KeyboardInterrupt) else ""
        sys.stderr.write(_line(number, advice))
        return 128 + number
    finally:
        sys.unraisablehook = hook
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def advised(advice: Callable[[], str]) -> Iterator[Callable[[], None]]:
    """Tell an interrupted user, inside a `with` block, how far it came and how to go on.

    What the block is given raises the exception of a signal that a finaliser or a library lost
    again.
    """
    _advice.append(advice)
    try:
        yield _raise_if_stopped
    except BaseException as error:
        if _is_stop(error):
            raise KeyboardInterrupt(advice()) from None
        raise
    finally:
        _advice.pop()


def _raise_if_stopped() -> None:
    if _received:
        raise KeyboardInterrupt


def _line(number: int, advice: str) -> str:
    return f"rover: {_VERBS[signal.Signals(number)]}{advice}\n"


def _is_stop(error: BaseException) -> bool:
    # A library may have made another exception of ours, or an interrupt of its own.
    return bool(_received) or isinstance(error, KeyboardInterrupt)


def _stop(number: int, frame: FrameType | None) -> None:
    if _received:
        # Not through sys.stderr, whose lock may be held. No finalisers: one of them may be what
        # hangs. Worker processes end with this one.
        os.write(2, _line(_received[0], _advice[-1]() if _advice else "").encode())
        os._exit(128 + _received[0])
    _received.append(number)
    raise KeyboardInterrupt


def _hide_lost(lost: Any) -> None:
    # Python prints and drops exceptions in finalisers; ours is raised again at the next record.
    if not isinstance(lost.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
