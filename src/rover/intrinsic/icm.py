"""Features from inverse and forward dynamics (Pathak, Agrawal, Efros and Darrell, 2017)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rover.intrinsic.merging import MergedTransitions
from rover.intrinsic.observation import ObservationSpec, make_observation_encoder
from rover.intrinsic.training import make_linear


class IntrinsicCuriosity(nn.Module):
    """Features φ that tell which action was taken, and a model of where it leads.

        L = (1 − β) L_I + β L_F
        L_I = − log softmax(g(φ(x), φ(x')))_a        (which action was it?)
        L_F = ½ ‖f(φ(x), a) − φ(x')‖²                 (where does it lead?)

    φ(x) = tanh(LayerNorm(h(x))), with h one linear layer for vectors (unless `hidden_sizes` says
    more) and convolutions for images; g and f have one hidden layer. Gradients of both losses
    reach φ.

    Args:
        spec: the observations.
        n_actions: number of actions.
        feature_dim: width of φ.
        hidden_sizes: hidden layers of h (not for images).
        model_hidden: hidden units of f and of g.
        generator: source of the initial weights.
    """

    def __init__(
        self,
        spec: ObservationSpec,
        n_actions: int,
        *,
        feature_dim: int,
        hidden_sizes: tuple[int, ...],
        model_hidden: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.encoder = make_observation_encoder(
            spec, hidden_sizes=hidden_sizes, feature_dim=feature_dim, generator=generator
        )
        self.feature_dim = feature_dim
        # The first layers of f and g act on φ of each distinct observation, all in one product:
        # f on φ(x), g on φ(x) and g on φ(x'). What they have of the action is one row for each.
        self.first = make_linear(feature_dim, 3 * model_hidden, generator=generator)
        action = torch.empty(n_actions, model_hidden)
        nn.init.orthogonal_(action, generator=generator)
        self.action = nn.Parameter(action)
        self.forward_output = make_linear(model_hidden, feature_dim, generator=generator)
        self.inverse_output = make_linear(model_hidden, n_actions, generator=generator)

    def forward(self, observations: Tensor) -> Tensor:
        """Features (m, feature_dim) in (−1, 1) of raw observations (m, *shape)."""
        hidden: Tensor = self.encoder(observations)
        return F.layer_norm(hidden, (self.feature_dim,)).tanh()

    def losses(self, features: Tensor, merged: MergedTransitions) -> tuple[Tensor, Tensor]:
        """L_I and L_F, averaged over the transitions before merging.

        Args:
            features: (m, feature_dim), of the batch's observations.
            merged: the distinct transitions between them.

        Returns:
            Two scalars, both at least 0; L_I in nats.
        """
        weights = merged.counts / merged.counts.sum()  # (p,)
        dynamics, source, destination = self.first(features).chunk(3, dim=1)  # (m, h) each
        hidden = dynamics.index_select(0, merged.index) + self.action[merged.actions]
        predicted = self.forward_output(F.relu(hidden))  # (p, z)
        error = (predicted - features.index_select(0, merged.next_index)).square().sum(dim=1)
        hidden = source.index_select(0, merged.index)
        hidden = hidden + destination.index_select(0, merged.next_index)
        logits = self.inverse_output(F.relu(hidden))  # (p, A)
        surprise = F.cross_entropy(logits, merged.actions, reduction="none")
        return (weights * surprise).sum(), 0.5 * (weights * error).sum()
