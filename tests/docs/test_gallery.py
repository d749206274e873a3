"""Every example of the gallery runs, as a reader runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.slow


def run(script: Path, folder: Path, *words: str) -> None:
    """Run a script in an empty folder, without a window; its errors are those of the test."""
    paths = os.pathsep.join([str(EXAMPLES), *sys.path])
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, str(script), *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("name", sorted(path.stem for path in (EXAMPLES / "gallery").glob("*.py")))
def test_every_example_of_the_gallery_runs(name, tmp_path):
    run(EXAMPLES / "gallery" / f"{name}.py", tmp_path)
