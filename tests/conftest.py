"""The examples of property-based tests follow from the tests alone, so that a run can be repeated.

`pytest --hypothesis-profile default` draws others. How long an example takes says how busy the
machine is, and fails no test.
"""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("default"), derandomize=True)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    options = parser.getgroup("campaign", "runs that are killed, in tests/campaign")
    options.addoption("--attempts", type=int, default=0, help="0: a few")
    options.addoption("--seed", type=int, default=0, help="what the attempts follow from")
