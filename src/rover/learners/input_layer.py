"""Encoders of one layer, evaluated and differentiated without a graph.

The derivative of one layer with ReLU is two products. Of one-hot inputs and of Discrete states not
even that: their features are columns of the weights, and the bits are those of the products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rover.errors import ConfigurationError
from rover.features import Encoder, EncoderSpec, MLPEncoder


def is_single_layer(spec: EncoderSpec) -> bool:
    """Whether the encoder is one layer with ReLU, so that this module can stand in for it."""
    return (
        spec.kind == "mlp"
        and spec.hidden_sizes == ()
        and spec.output_relu
        and spec.normalization == "none"
    )


@dataclass(frozen=True)
class LayerInputs:
    """What a layer sees of m observations, in one of two forms.

    Attributes:
        dense: (m, d) float32.
        states: (m,) int64, where the observations are one-hot: which of the d entries is one.
    """

    dense: Tensor | None = None
    states: Tensor | None = None


def layer_inputs(encoder: Encoder, observations: Tensor) -> LayerInputs:
    """What the layer of `encoder` sees of raw observations (m, *shape).

    Raises:
        ConfigurationError: observations of another shape or dtype than the encoder's, or a
            Discrete state out of range.
    """
    spec = encoder.spec
    if (
        tuple(observations.shape[1:]) != spec.observation_shape
        or observations.ndim == 0
        or observations.dtype != getattr(torch, spec.observation_dtype)
    ):
        raise ConfigurationError(
            f"the learner was built for {spec.observation_dtype} observations of shape (m, "
            f"{', '.join(map(str, spec.observation_shape))}) and was given {observations.dtype} "
            f"{tuple(observations.shape)}: build it for this observation space"
        )
    if spec.n_states is not None and spec.observation_shape == ():
        low, high = (int(bound) for bound in torch.aminmax(observations))
        if low < 0 or high >= spec.n_states:
            raise ConfigurationError(
                f"states must lie in 0 … {spec.n_states - 1}, got {low} … {high}: set n_states to "
                "the size of the environment's Discrete space"
            )
        return LayerInputs(states=observations)
    if not spec.bias and observations.ndim == 2 and _is_plain(encoder):
        ones, states = observations.max(dim=1)
        if bool((ones == 1).all()) and int(torch.count_nonzero(observations)) == len(states):
            return LayerInputs(states=states)
    return LayerInputs(dense=(observations.flatten(1).float() - encoder.center) / encoder.scale)


def _is_plain(encoder: Encoder) -> bool:
    """Whether inputs reach the layer as they are."""
    return not bool(encoder.center.any()) and bool((encoder.scale == 1).all())


def layer_features(encoder: Encoder, inputs: LayerInputs) -> Tensor:
    """Features (m, f) of the inputs, bit for bit those that `encoder` computes."""
    layer = _layer(encoder)
    bias = cast("Tensor | None", layer.bias)
    if inputs.states is None:
        assert inputs.dense is not None
        return F.relu(F.linear(inputs.dense, layer.weight, bias))
    columns = layer.weight.t()[inputs.states]
    return F.relu(columns if bias is None else columns + bias)


def write_layer_grads(
    encoder: Encoder, inputs: LayerInputs, features: Tensor, features_grad: Tensor
) -> None:
    """Overwrite the gradients of the layer, given those of its features (m, f)."""
    layer = _layer(encoder)
    assert layer.weight.grad is not None
    gradient = features_grad * features.sign()
    if inputs.states is None:
        assert inputs.dense is not None
        torch.mm(gradient.T, inputs.dense, out=layer.weight.grad)
    else:
        layer.weight.grad.zero_()
        layer.weight.grad.t().index_add_(0, inputs.states, gradient)
    # The layer of one-hot inputs has no bias, whatever the type says.
    if cast("Tensor | None", layer.bias) is not None:
        assert layer.bias.grad is not None
        torch.sum(gradient, dim=0, out=layer.bias.grad)


def _layer(encoder: Encoder) -> nn.Linear:
    assert isinstance(encoder, MLPEncoder)
    return cast("nn.Linear", encoder.layers[0])
