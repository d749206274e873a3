from __future__ import annotations

import random
from pathlib import Path

import pytest

from .processes import Attempt


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "attempt" in metafunc.fixturenames:
        asked: int = metafunc.config.getoption("attempts")
        numbers = range(asked) if asked else metafunc.module.NUMBERS
        metafunc.parametrize("attempt", numbers, indirect=True)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for whole runs, which are made once and not changed."""
    return tmp_path_factory.mktemp("campaign")


@pytest.fixture
def attempt(request: pytest.FixtureRequest, tmp_path: Path, shared: Path) -> Attempt:
    """An attempt, by its number, with random numbers that follow from it and from the seed."""
    seed = request.config.getoption("seed")
    rng = random.Random(f"{seed} {request.node.path.stem} {request.param}")
    return Attempt(request.param, rng, tmp_path, shared)
