"""The command line: ``rover pretrain``, ``resume``, ``evaluate``, ``plot``, ``compare``, ...

Nothing is imported here but what answers signals: the commands are when one is run, and torch when
a command needs it, so that ``--help`` and wrong input are answered before.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from rover.cli.signals import answered


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words after ``rover``; those of the process by default.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)

    def command() -> int:
        import rover.cli.evaluating
        import rover.cli.pretraining
        import rover.cli.solving
        import rover.cli.tasks  # noqa: F401  (the five register their commands)
        from rover.cli.commands import answer

        if find_spec("pandas") is not None:  # the extra `bench`
            import_module("rover_bench.commands")

        return answer(words)

    return answered(command)
