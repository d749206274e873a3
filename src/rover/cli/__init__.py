"""The command line: ``rover pretrain``, ``resume``, ``evaluate``, ``plot``, ``compare``, ...

Only the answer to signals is imported here: a command's module is when the command is run, and
torch when it needs it, so that ``--help`` and wrong input are answered before.
"""

import sys
from collections.abc import Sequence

from rover.cli.signals import stopped_by_signals


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, the process's arguments by default, and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)

    def command() -> int:
        from rover.cli.program import answer

        return answer(words)

    return stopped_by_signals(command)
