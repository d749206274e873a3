"""Features from inverse and forward dynamics (Pathak, Agrawal, Efros and Darrell, 2017)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rover.baselines.merging import MergedTransitions
from rover.baselines.observation import ObservationSpec, make_observation_encoder
from rover.baselines.training import make_linear


class IntrinsicCuriosity(nn.Module):
    """Features φ that tell which action was taken, and a model of where it leads.

        L = (1 − β) L_I + β L_F
        L_I = − log softmax(g(φ(x), φ(x')))_a        (which action was it?)
        L_F = ½ ‖f(φ(x), a) − φ(x')‖²                 (where does it lead?)

    φ(x) = tanh(LayerNorm(h(x))), with h one linear layer for vectors (unless `hidden_sizes` says
    more) and convolutions for images; g and f have one hidden layer. L_F is
    least for features that do not differ at all; with ``forward_trains_features=False`` its
    gradient stops at φ, which then learns from L_I alone (Burda et al., 2018, "inverse dynamics
    features").

    Args:
        spec: the observations.
        n_actions: number of actions.
        feature_dim: width of φ.
        hidden_sizes: hidden layers of h (not for images).
        model_hidden: hidden units of f and of g.
        forward_trains_features: whether the gradient of L_F reaches φ.
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
        forward_trains_features: bool,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.encoder = make_observation_encoder(
            spec, hidden_sizes=hidden_sizes, feature_dim=feature_dim, generator=generator
        )
        self.feature_dim = feature_dim
        self.forward_trains_features = forward_trains_features
        # The first layers of f and g act on φ of each distinct observation, and not of each
        # transition: g on φ(x) and on φ(x') side by side. Of the action f has one row for each.
        self.forward_first = make_linear(feature_dim, model_hidden, generator=generator)
        self.inverse_first = make_linear(feature_dim, 2 * model_hidden, generator=generator)
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
        known = features if self.forward_trains_features else features.detach()
        hidden = self.forward_first(known).index_select(0, merged.index)  # (p, h)
        predicted = self.forward_output(F.relu(hidden + self.action[merged.actions]))  # (p, z)
        error = (predicted - known.index_select(0, merged.next_index)).square().sum(dim=1)
        source, destination = self.inverse_first(features).chunk(2, dim=1)  # (m, h) each
        hidden = source.index_select(0, merged.index)
        hidden = hidden + destination.index_select(0, merged.next_index)
        logits = self.inverse_output(F.relu(hidden))  # (p, A)
        surprise = F.cross_entropy(logits, merged.actions, reduction="none")
        return (weights * surprise).sum(), 0.5 * (weights * error).sum()
