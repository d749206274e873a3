"""Predictors of the next state's features from the features of a state and an action."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rover.errors import ConfigurationError

PredictorKind = Literal["linear", "mlp"]


class ActionPredictor(nn.Module):
    """W ψ(x, a) with ψ(x, a) = φ(x) ⊗ e_a (paper, Step 1): one matrix for each action.

    With ``kind="mlp"`` a hidden layer follows, U ReLU(W ψ(x, a)), as in the authors' published
    code; the paper's text has the linear form.

    Args:
        feature_dim: z.
        n_actions: number of actions.
        kind: "linear" or "mlp".
        hidden_size: width of the hidden layer of an "mlp".
        generator: source of the initial weights.

    Raises:
        ConfigurationError: a size is not positive or the kind is unknown.
    """

    def __init__(
        self,
        feature_dim: int,
        n_actions: int,
        *,
        kind: PredictorKind = "linear",
        hidden_size: int = 1024,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        if kind not in ("linear", "mlp"):
            raise ConfigurationError(f"predictor {kind!r} is unknown: use 'linear' or 'mlp'")
        if min(feature_dim, n_actions, hidden_size) < 1:
            raise ConfigurationError(
                f"a predictor needs at least one feature, action and hidden unit, got {feature_dim}"
                f", {n_actions} and {hidden_size}"
            )
        self.n_actions = n_actions
        width = feature_dim if kind == "linear" else hidden_size
        gain = 1.0 if kind == "linear" else math.sqrt(2.0)
        matrices = [torch.empty(feature_dim, width) for _ in range(n_actions)]
        for matrix in matrices:
            nn.init.orthogonal_(matrix, gain=gain, generator=generator)
        # (z, A, width): one product with all matrices side by side needs no copy.
        self.weight = nn.Parameter(torch.stack(matrices, dim=1))
        self.output: nn.Parameter | None = None
        if kind == "mlp":
            output = torch.empty(hidden_size, feature_dim)
            nn.init.orthogonal_(output, generator=generator)
            self.output = nn.Parameter(output)

    def forward(self, features: Tensor, input_index: Tensor, actions: Tensor) -> Tensor:
        """Predict next features.

        Args:
            features: (m, z), features of distinct states.
            input_index: (n,) int64, the row of ``features`` from which each transition starts.
            actions: (n,) int64 in 0 … n_actions − 1.

        Returns:
            (n, z).
        """
        # All states under all actions: one product, and no more arithmetic than row by row once
        # most pairs occur in a batch.
        if features.shape[0] * self.n_actions <= 2 * input_index.shape[0]:
            product = features @ self.weight.flatten(1)  # (m, A · width)
            product = product.view(features.shape[0] * self.n_actions, self.weight.shape[2])
            hidden = product.index_select(0, input_index * self.n_actions + actions)
        else:
            hidden = self._by_action(features, input_index, actions)
        if self.output is None:
            return hidden
        return F.relu(hidden) @ self.output

    def _by_action(self, features: Tensor, input_index: Tensor, actions: Tensor) -> Tensor:
        order = torch.argsort(actions, stable=True)  # (n,)
        sizes = torch.bincount(actions, minlength=self.n_actions).tolist()
        inputs = torch.split(features.index_select(0, input_index.index_select(0, order)), sizes)
        product = torch.cat([rows @ self.weight[:, a] for a, rows in enumerate(inputs)])
        return torch.empty_like(product).index_copy(0, order, product)
