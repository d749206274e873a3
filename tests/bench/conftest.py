"""The laboratory comes with an extra: without it there is nothing of it to test."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pandas") else ["test_*.py"]
