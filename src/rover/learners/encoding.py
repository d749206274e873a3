"""Features of a batch's observations, and the way back to an encoder's parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from rover.features import Encoder
from rover.learners.input_layer import (
    is_single_layer,
    layer_features,
    layer_inputs,
    write_layer_grads,
)
from rover.learners.row_cache import RowCache


@dataclass(frozen=True)
class Encoded:
    """One evaluation of a :class:`BatchEncoder`.

    Attributes:
        features: (m, f) float32, without a graph.
        backward: overwrites the gradients of the encoder's parameters, given that of `features`.
    """

    features: Tensor
    backward: Callable[[Tensor], None]


class BatchEncoder:
    """Evaluates and differentiates one encoder by the least work that its kind allows.

    A single layer is differentiated by hand and anything deeper automatically. An encoder none of
    whose parameters require gradients is evaluated once per observation of the buffer's table
    (:class:`rover.learners.row_cache.RowCache`).

    Args:
        encoder: gradients of the parameters that learn must have been allocated before
            ``backward``.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        parameters = list(encoder.parameters())
        self._learning = [p for p in parameters if p.requires_grad]
        self._is_single_layer = is_single_layer(encoder.spec) and len(self._learning) == len(
            parameters
        )
        self._cache = None if self._learning else RowCache(lambda x: encoder(x).float())

    def encode(self, observations: Tensor, rows: Tensor | None) -> Encoded:
        """Evaluate on `observations` (m, *shape), which are `rows` (m,) of a table."""
        if self._cache is not None:
            return Encoded(self._cache(observations, rows), _carry_nothing)
        if self._is_single_layer:
            with torch.no_grad():
                inputs = layer_inputs(self.encoder, observations)
                features = layer_features(self.encoder, inputs)
            return Encoded(features, partial(write_layer_grads, self.encoder, inputs, features))
        with torch.enable_grad():
            features = self.encoder(observations)
        return Encoded(features.detach(), partial(_carry, self._learning, features))

    @torch.no_grad()
    def features(self, observations: Tensor, rows: Tensor | None) -> Tensor:
        """What :meth:`encode` returns as features, without a way back."""
        if self._cache is not None:
            return self._cache(observations, rows)
        if self._is_single_layer:
            return layer_features(self.encoder, layer_inputs(self.encoder, observations))
        features: Tensor = self.encoder(observations)
        return features

    def forget(self) -> None:
        """Evaluate everything anew: the weights were replaced."""
        if self._cache is not None:
            self._cache.clear()


def _carry_nothing(features_grad: Tensor) -> None:
    """The way back to an encoder that does not learn."""


def _carry(parameters: list[nn.Parameter], features: Tensor, features_grad: Tensor) -> None:
    for parameter in parameters:
        assert parameter.grad is not None
        parameter.grad.zero_()
    features.backward(features_grad)  # type: ignore[no-untyped-call]
