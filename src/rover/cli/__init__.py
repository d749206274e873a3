"""The command line: ``rover pretrain``, ``resume``, ``evaluate``, ``plot``, ``compare``, ...

Only what parses arguments is imported here, so that ``--help`` and wrong input are answered before
torch is loaded.
"""

from rover.cli.application import main

__all__ = ["main"]
