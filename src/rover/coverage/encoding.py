"""Which representation and kernel suit an observation space, when the user did not say."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rover.coverage.config import RoverConfig
from rover.errors import ConfigurationError
from rover.features import (
    EncoderSpec,
    ObservationDtype,
    default_encoder_spec,
    paper_encoder_spec,
)

SMALL_VECTOR = 8
"""Vectors up to this length are taken for physical quantities and only scaled, not encoded."""

DEFAULT_DISCOUNT = 0.99
DEFAULT_BANDWIDTH = 0.1

_DTYPES: dict[str, ObservationDtype] = {
    "uint8": "uint8",
    "int64": "int64",
    "float32": "float32",
    "float64": "float64",
}


def is_image(space: spaces.Space[Any]) -> bool:
    """Whether the space holds images, as `check_spaces` accepts them."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3


def observation_dtype(space: spaces.Space[Any]) -> ObservationDtype:
    """The dtype of a space's observations, as an encoder's spec names it.

    Raises:
        ConfigurationError: a dtype that encoders do not take.
    """
    name = "int64" if isinstance(space, spaces.Discrete) else str(np.dtype(space.dtype))
    dtype = _DTYPES.get(name)
    if dtype is None:
        raise ConfigurationError(
            f"observations of dtype {name} are not supported; wrap the environment to return "
            "float32, float64, uint8 or int64"
        )
    return dtype


def resolve(config: RoverConfig, space: spaces.Space[Any], discount: float | None) -> RoverConfig:
    """Fill in what depends on the environment; the result has no None that matters.

    Args:
        config: settings with None where the environment decides.
        space: the observation space.
        discount: the discount that the environment suggests, or None.

    Raises:
        ConfigurationError: settings that contradict the space or one another.
    """
    filled: dict[str, Any] = {}
    small = isinstance(space, spaces.Box) and space.shape[0] <= SMALL_VECTOR and not is_image(space)
    tabular = isinstance(space, spaces.Discrete)
    if config.representation is None:
        filled["representation"] = "identity" if tabular or small else "info_nce"
    representation = filled.get("representation", config.representation)
    identity = representation == "identity"
    if identity and is_image(space):
        raise ConfigurationError(
            "representation='identity' does not suit images: choose info_nce, byol or "
            "self_predictive"
        )
    exact = identity and (tabular or not small)
    if config.kernel is None:
        filled["kernel"] = "dirac" if exact else "gaussian"
    kernel = filled.get("kernel", config.kernel)
    if kernel == "dirac" and not identity:
        raise ConfigurationError(
            "kernel='dirac' needs exact states: use representation='identity', or a gaussian kernel"
        )
    if kernel in ("gaussian", "laplacian") and config.bandwidth is None:
        filled["bandwidth"] = DEFAULT_BANDWIDTH
    if kernel in ("linear", "dirac") and config.bandwidth is not None:
        raise ConfigurationError(f"bandwidth has no meaning for the {kernel} kernel: leave it out")
    if config.ridge is None:
        filled["ridge"] = 1e-6 if kernel == "dirac" else (1e-2 if identity else 1e-5)
    if config.max_exact_states is None:
        # Physical quantities hardly ever repeat, and their neighbours are alike: anchors suffice.
        filled["max_exact_states"] = config.n_anchors if identity and not exact else 1500
    if config.discount is None:
        filled["discount"] = DEFAULT_DISCOUNT if discount is None else discount
    return config.model_copy(update=filled)


def make_encoder_spec(config: RoverConfig, space: spaces.Space[Any]) -> EncoderSpec:
    """The encoder of a resolved configuration for a space.

    Raises:
        ConfigurationError: a dtype that encoders do not take.
    """
    assert isinstance(space, spaces.Discrete | spaces.Box)
    shape = () if isinstance(space, spaces.Discrete) else tuple(space.shape)
    dtype = observation_dtype(space)
    n_states = int(space.n) if isinstance(space, spaces.Discrete) else None
    if config.representation == "identity":
        if isinstance(space, spaces.Discrete):
            return EncoderSpec(
                kind="identity",
                observation_shape=(),
                observation_dtype="int64",
                n_states=n_states,
            )
        low, high = space.low.reshape(-1), space.high.reshape(-1)
        return EncoderSpec(
            kind="scale",
            observation_shape=shape,
            observation_dtype=dtype,
            low=tuple(map(float, low)),
            high=tuple(map(float, high)),
        )
    if config.encoder == "paper":
        return paper_encoder_spec(shape, observation_dtype=dtype, n_states=n_states)
    return default_encoder_spec(shape, observation_dtype=dtype, n_states=n_states).model_copy(
        update={
            "feature_dim": config.feature_dim,
            "hidden_sizes": config.hidden_sizes,
            "normalization": config.normalization,
        }
    )
