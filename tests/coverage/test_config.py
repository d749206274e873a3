"""Settings: presets, mistakes, and what the environment decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from rover import Rover
from rover.coverage.config import RoverConfig
from rover.coverage.resolve import choose_encoder, resolve
from rover.envs import GridWorld
from rover.errors import ConfigurationError
from rover.training.config import DEFAULT_DISCOUNT, validate_settings

STATES = spaces.Discrete(9)
SHORT = spaces.Box(-1.0, 1.0, (3,), np.float32)
LONG = spaces.Box(0.0, 1.0, (20,), np.float32)
IMAGE = spaces.Box(0, 255, (16, 16, 3), np.uint8)
SPACES = {"states": STATES, "short": SHORT, "long": LONG, "image": IMAGE}


def make_config(preset: str, **overrides: Any) -> RoverConfig:
    return validate_settings(RoverConfig, {**Rover.presets[preset], **overrides})


KINDS = {
    "states": ("identity", "dirac", "identity"),
    "short": ("identity", "interpolation", "scale"),
    "long": ("info_nce", "gaussian", "mlp"),
    "image": ("info_nce", "gaussian", "conv"),
}


@pytest.mark.parametrize("name", SPACES)
def test_the_space_decides_what_the_user_did_not(name: str) -> None:
    config = resolve(make_config("default"), SPACES[name])
    representation, kernel, encoder = KINDS[name]
    assert (config.representation, config.kernel) == (representation, kernel)
    assert choose_encoder(config, SPACES[name]).kind == encoder
    assert (config.bandwidth is None) == (kernel in ("dirac", "interpolation"))
    for field in ("ridge", "max_exact_states"):
        assert getattr(config, field) is not None


def test_the_environment_suggests_a_discount_and_the_user_has_the_last_word() -> None:
    assert Rover(GridWorld("S..")).config.discount == DEFAULT_DISCOUNT
    assert Rover(GridWorld("middle_room")).config.discount == 0.9
    assert Rover(GridWorld("middle_room"), discount=0.5).config.discount == 0.5


MISTAKES = {
    "misspelt": ({"discont": 0.9}, r"unknown setting 'discont'; did you mean 'discount'\?"),
    "discount of one": ({"discount": 1.0}, r"setting discount=1\.0: .*less than 1"),
    "nan": ({"step_size": float("nan")}, r"setting step_size=nan"),
    "infinite": ({"ridge": float("inf")}, r"setting ridge=inf"),
    "kernel": ({"kernel": "rbf"}, r"setting kernel='rbf': .*'linear', 'gaussian'"),
    "hidden": ({"hidden_sizes": (64, "x")}, r"setting hidden_sizes\.1='x'"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_named(name: str) -> None:
    overrides, words = MISTAKES[name]
    with pytest.raises(ConfigurationError, match=words):
        make_config("default", **overrides)


CONTRADICTIONS = {
    "identity of images": ("image", {"representation": "identity"}, "does not suit images"),
    "dirac on learned": ("long", {"kernel": "dirac"}, "kernel='dirac' needs exact states"),
    "bandwidth of dirac": ("states", {"bandwidth": 0.1}, "bandwidth has no meaning for the dirac"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_named(name: str) -> None:
    space, overrides, words = CONTRADICTIONS[name]
    with pytest.raises(ConfigurationError, match=words):
        resolve(make_config("default", **overrides), SPACES[space])


@given(st.sampled_from(sorted(RoverConfig.model_fields)), st.integers(-3, 3))
def test_a_setting_is_taken_or_refused_by_name(name: str, value: int) -> None:
    try:
        config = make_config("default", **{name: value})
    except ConfigurationError as error:
        refusal = str(error)
    else:
        refusal = name
        assert getattr(config, name) == value
    assert name in refusal


def test_every_setting_is_described() -> None:
    assert all(field.description for field in RoverConfig.model_fields.values())


@pytest.mark.parametrize(
    ("low", "size", "representation"),
    [(0, 8, "identity"), (0, 9, "info_nce"), (-1, 10, "identity"), (-1, 11, "info_nce")],
)
def test_physical_quantities_are_scaled_and_what_may_be_one_hot_is_encoded(
    low: int, size: int, representation: str
) -> None:
    space = spaces.Box(float(low), 1.0, (size,), np.float32)
    assert resolve(RoverConfig(), space).representation == representation


def test_a_long_wrong_value_is_shown_in_part() -> None:
    with pytest.raises(ConfigurationError, match=r"setting ridge='x{99}\.\.\.: ") as caught:
        make_config("default", ridge="x" * 10**6)
    assert len(str(caught.value)) < 300
