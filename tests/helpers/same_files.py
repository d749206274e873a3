"""What two runs with one seed have in common: their files to the bit, but for the clock."""

from pathlib import Path
from typing import Any

from rover.storage import read_json, read_lines

_CLOCKS = ("wall_time", "wall_seconds", "seconds")


def _timeless(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in _CLOCKS}


def content(file: Path | str) -> Any:
    """What is in a file of a run: its bytes, or its values without what the clock said."""
    file = Path(file)
    if file.name == "metrics.jsonl":
        return [_timeless(record) for record in read_lines(file)]
    return _timeless(read_json(file)) if file.name == "summary.json" else file.read_bytes()


def assert_same(first: Path | str, second: Path | str, *names: str) -> None:
    for name in names:
        assert content(Path(first, name)) == content(Path(second, name)), name
