"""The command line: ``rover pretrain``, ``resume``, ``evaluate``, ``plot``, ``compare``, ...

Nothing is imported here but what answers signals: the commands are when one is run, and torch when
a command needs it, so that ``--help`` and wrong input are answered before.
"""

import sys
from collections.abc import Sequence

from rover.cli.signals import answered, stop_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words after ``rover``; those of the process by default.

    Returns:
        The exit code.
    """
    with answered():
        try:
            from rover.cli.application import answer

            return answer(list(sys.argv[1:] if arguments is None else arguments))
        except BaseException as error:
            stop = stop_of(error)
            if stop is None:
                raise
            sys.stderr.write(stop.line)
            return stop.exit_code
