"""Choice of representation and kernel for an observation space, where the user made none."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from rover.arrays import IntArray
from rover.contexts.explorer import check_size
from rover.coverage.config import RoverConfig
from rover.errors import ConfigurationError
from rover.features import EncoderConfig, encoder_config
from rover.features.config import EncoderKind

_SMALL_VECTOR = 64
"""Vectors up to this length are taken for physical quantities and only scaled, not encoded."""

_PHYSICAL_VECTOR = 128
"""The same for vectors with an unbounded element, unlike one-hot vectors and images."""

_SMALL_UNIT_VECTOR = 8
"""The same of vectors whose elements all lie in [0, 1], which may be one-hot."""

DEFAULT_BANDWIDTH = 0.1
_UNBOUNDED = 1e6


def resolve(config: RoverConfig, space: spaces.Space[Any]) -> RoverConfig:
    """Fill in what depends on the observations; the result has no None that matters.

    Args:
        config: settings with None where the environment decides.
        space: the observation space.

    Raises:
        ConfigurationError: settings that contradict the space or one another.
    """
    filled: dict[str, Any] = {}
    image = isinstance(space, spaces.Box) and len(space.shape) == 3
    small = isinstance(space, spaces.Box) and not image and _is_small(space)
    tabular = isinstance(space, spaces.Discrete)
    if config.representation is None:
        learns = not (tabular or small) or config.encoder == "custom"
        filled["representation"] = "info_nce" if learns else "identity"
    representation = filled.get("representation", config.representation)
    is_image = image and space.dtype == np.uint8 and config.collect == "plan"
    if config.slow_features is None:
        chosen = config.representation, config.kernel, config.exploration
        is_default = chosen == (None, None, None) and config.encoder == "default"
        filled["slow_features"] = is_image and is_default
    elif config.slow_features and not is_image:
        raise ConfigurationError(
            "slow_features=True is for uint8 images (height, width, channels) and an exploration "
            "plan, collect=plan: leave it out"
        )
    if config.exact_vectors is None:
        own = config.representation, config.kernel, config.bandwidth
        is_default = own == (None, None, None) and config.encoder == "default"
        is_vector = isinstance(space, spaces.Box) and not image and not small
        filled["exact_vectors"] = is_vector and is_default and config.collect == "plan"
    identity = representation == "identity"
    if identity and (image or config.encoder == "custom"):
        raise ConfigurationError(
            "representation='identity' does not suit images, nor an encoder of your own: choose "
            "info_nce, byol or self_predictive"
        )
    if representation in ("identity", "custom"):  # nothing is trained; your own loss is your aim
        filled["encoder_tolerance"] = None
    exact = identity and (tabular or not small)
    if config.kernel == "interpolation" and not (identity and small):
        raise ConfigurationError(
            "kernel='interpolation' is between landmarks of small vectors of physical quantities, "
            "used as they are: choose a gaussian kernel"
        )
    if config.kernel is None:
        filled["kernel"] = "dirac" if exact else "gaussian"
        if small and identity and config.collect == "plan" and config.bandwidth is None:
            filled["kernel"] = "interpolation"
    kernel = filled.get("kernel", config.kernel)
    if config.target is not None:
        if config.contexts:
            raise ConfigurationError(
                "target has no meaning with contexts=True, where each episode has a layout of its "
                "own to cover: leave one of them out"
            )
        filled["contexts"] = False
    if config.contexts:
        check_size(space)
    if kernel == "dirac" and not identity:
        raise ConfigurationError(
            "kernel='dirac' needs exact states: use representation='identity', or a gaussian kernel"
        )
    if kernel == "gaussian" and config.bandwidth is None:
        filled["bandwidth"] = DEFAULT_BANDWIDTH
    if kernel != "gaussian" and config.bandwidth is not None:
        raise ConfigurationError(f"bandwidth has no meaning for the {kernel} kernel: leave it out")
    if config.ridge is None:
        counted = kernel in ("dirac", "interpolation")  # of states, and not of their neighbours
        filled["ridge"] = 1e-6 if counted else (1e-2 if identity else 1e-5)
    if config.predictor != "linear" and config.predictor_width is None:
        filled["predictor_width"] = 1024
    _check_cover(config, space)
    if config.max_exact_states is None:
        # Physical quantities hardly ever repeat, and their neighbours are alike: anchors suffice.
        filled["max_exact_states"] = config.n_anchors if identity and not exact else 1500
    resolved = config.model_copy(update=filled)
    if config.encoder == "custom":
        return resolved
    encoder = choose_encoder(resolved, space)
    filled = {}
    if not identity:
        filled = {"feature_dim": encoder.feature_dim, "normalization": encoder.normalization}
    if encoder.kind == "mlp":
        filled["hidden_sizes"] = encoder.hidden_sizes
    return resolved.model_copy(update=filled)


def _is_small(space: spaces.Box) -> bool:
    if (space.low == 0.0).all() and (space.high == 1.0).all():
        return space.shape[0] <= _SMALL_UNIT_VECTOR
    is_bounded = bool((np.maximum(np.abs(space.low), np.abs(space.high)) <= _UNBOUNDED).all())
    return space.shape[0] <= (_SMALL_VECTOR if is_bounded else _PHYSICAL_VECTOR)


def _check_cover(config: RoverConfig, space: spaces.Space[Any]) -> None:
    """Refuse dimensions that the observations do not have.

    Raises:
        ConfigurationError: there is one.
    """
    cover = config.cover
    if cover is None or cover == "custom":
        return
    shape = space.shape or ()
    if len(shape) != 1:
        raise ConfigurationError(
            "cover by numbers needs vector observations; pass a function from observations to what "
            "is to be covered of them"
        )
    if not cover or max(cover) >= shape[0] or len(set(cover)) < len(cover):
        raise ConfigurationError(
            f"cover must name different dimensions from 0 to {shape[0] - 1}, not {list(cover)}"
        )


def choose_encoder(config: RoverConfig, space: spaces.Space[Any]) -> EncoderConfig:
    """The encoder of a configuration whose representation is known, for a space.

    Raises:
        ConfigurationError: a dtype that encoders do not take, or a setting that has no meaning
            for this kind of encoder.
    """
    assert config.encoder != "custom"
    kind: EncoderKind | None = None
    if config.representation == "identity":
        kind = "identity" if isinstance(space, spaces.Discrete) else "scale"
    encoder = encoder_config(
        space,
        kind=kind,
        architecture=config.encoder,
        feature_dim=config.feature_dim,
        hidden_sizes=config.hidden_sizes,
        normalization=config.normalization,
    )
    if encoder.low is None or encoder.high is None:
        return encoder
    low, high = np.array(encoder.low), np.array(encoder.high)
    unbounded = unbounded_dimensions(space, encoder)
    low[unbounded], high[unbounded] = -1.0, 1.0
    return encoder.model_copy(update={"low": tuple(low.tolist()), "high": tuple(high.tolist())})


def unbounded_dimensions(space: spaces.Space[Any], encoder: EncoderConfig) -> IntArray:
    """Dimensions of a scaled Box whose bounds are infinite, or as good as; (0,) of others."""
    if encoder.kind != "scale" or not isinstance(space, spaces.Box):
        return np.zeros(0, np.int64)
    bounds = np.abs(np.stack([space.low, space.high]).astype(np.float64)).reshape(2, -1)
    return np.flatnonzero((bounds > _UNBOUNDED).any(axis=0))
