"""Situations that are drawn, as many as --attempts asks for."""

import random

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "drawn" in metafunc.fixturenames:
        metafunc.parametrize("attempt", range(metafunc.config.getoption("attempts") or 6))


@pytest.fixture
def drawn(attempt: int, request: pytest.FixtureRequest) -> random.Random:
    return random.Random(f"{request.config.getoption('seed')} {attempt}")
