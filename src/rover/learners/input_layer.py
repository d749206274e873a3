"""Encoders of one layer, evaluated and differentiated without a graph.

The actor, the critics and their targets read the same inputs through a layer each. Those inputs
are prepared once, and the derivative of one layer with ReLU is two products.
"""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rover.errors import ConfigurationError
from rover.representation import Encoder, EncoderSpec, MLPEncoder


def is_single_layer(spec: EncoderSpec) -> bool:
    """Whether the encoder is one layer with ReLU, so that this module can stand in for it."""
    return (
        spec.kind == "mlp"
        and spec.hidden_sizes == ()
        and spec.output_relu
        and spec.normalization == "none"
    )


def layer_inputs(encoder: Encoder, observations: Tensor) -> Tensor:
    """What the layer of `encoder` sees, (m, d) float32, of raw observations (m, *shape).

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
        return F.one_hot(observations, spec.n_states).float()
    return (observations.flatten(1).float() - encoder.center) / encoder.scale


def layer_features(encoder: Encoder, inputs: Tensor) -> Tensor:
    """Features (m, f) of inputs (m, d), bit for bit those that `encoder` computes."""
    layer = _layer(encoder)
    return F.relu(F.linear(inputs, layer.weight, layer.bias))


def write_layer_grads(
    encoder: Encoder, inputs: Tensor, features: Tensor, features_grad: Tensor
) -> None:
    """Overwrite the gradients of the layer, given those of its features (m, f)."""
    layer = _layer(encoder)
    assert layer.weight.grad is not None
    gradient = features_grad * features.sign()
    torch.mm(gradient.T, inputs, out=layer.weight.grad)
    # The layer of one-hot inputs has no bias, whatever the type says.
    if cast("Tensor | None", layer.bias) is not None:
        assert layer.bias.grad is not None
        torch.sum(gradient, dim=0, out=layer.bias.grad)


def _layer(encoder: Encoder) -> nn.Linear:
    assert isinstance(encoder, MLPEncoder)
    return cast("nn.Linear", encoder.layers[0])
