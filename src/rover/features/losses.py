"""Prediction of the next state's features, self-supervised losses on it, and collapse.

A batch arrives merged: row i stands for ``counts[i]`` equal transitions, and equal next states
share one row of ``targets``. Each loss equals the plain one on the batch before merging.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rover.features.networks import orthogonal_

_Kind = Literal["linear", "two_layer", "silu"]
"""Kind of the predictor of the next observation's features."""

# One matrix alone covers 95% after 14,250 steps in the median, two after 6,000 (D6).
_HIDDEN = 1024  # rows of W, as in the published code


class RepresentationLoss(Protocol):
    """Protocol of a loss of your own that trains an encoder: a function, or a torch module.

    A module's parameters that require gradients are trained along, and stored in checkpoints.
    A loss that equal features minimise collapses the representation.
    """

    def __call__(
        self,
        predicted: Tensor,
        features: Tensor,
        *,
        input_index: Tensor,
        actions: Tensor,
        next_index: Tensor,
        counts: Tensor,
    ) -> Tensor:
        """Loss of a merged batch, a scalar that depends on the encoder, to be lowered.

        Args:
            predicted: (n, z), predicted next features W ψ(x, a) of each distinct transition, with
                gradient to the predictor and the encoder.
            features: (m, z), features φ(x) of each distinct observation, with gradient;
                ``features[next_index]`` is what ``predicted`` should be.
            input_index, next_index: (n,) int64, the rows of ``features`` from which each transition
                starts and to which it leads.
            actions: (n,) int64 in 0 … n_actions − 1.
            counts: (n,) float32, positive, the equal transitions that each row stands for.
        """
        ...


class ActionPredictor(nn.Module):
    """W ψ(x, a) with ψ(x, a) = φ(x) ⊗ e_a (paper, Step 1), "linear": one matrix for each action.

    "two_layer", U W ψ(x, a), is as linear and trains several times faster; "silu" is U SiLU(W ψ(x,
    a)), the authors' code of June 2026. W then has 1,024 rows.
    """

    def __init__(
        self,
        feature_dim: int,
        n_actions: int,
        *,
        kind: _Kind = "linear",
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        # Without U the rows of W are the predicted features themselves.
        width = feature_dim if kind == "linear" else _HIDDEN
        self.n_actions = n_actions
        self._is_linear = kind != "silu"
        self.output: nn.Parameter | None = None
        # (z, A, width): one product with all matrices side by side needs no copy.
        if kind == "linear":
            matrices = [
                torch.empty(feature_dim, feature_dim, dtype=torch.float32) for _ in range(n_actions)
            ]
            for matrix in matrices:
                orthogonal_(matrix, generator=generator)
            self.weight = nn.Parameter(torch.stack(matrices, dim=1))
            return
        # one layer, orthogonal as a whole
        first = torch.empty(feature_dim * n_actions, width, dtype=torch.float32)
        orthogonal_(first, generator=generator)
        self.weight = nn.Parameter(first.view(feature_dim, n_actions, width))
        self.output = nn.Parameter(torch.empty(width, feature_dim, dtype=torch.float32))
        orthogonal_(self.output.data, generator=generator)

    def forward(self, features: Tensor, input_index: Tensor, actions: Tensor) -> Tensor:
        """Next features (n, z) from features (m, z) of distinct states, the rows `input_index` (n,)
        from which transitions start, and actions (n,) int64 in 0 … n_actions − 1."""
        # All states under all actions in one product, once most pairs occur in a batch.
        if features.shape[0] * self.n_actions <= 2 * input_index.shape[0]:
            product = features @ self.weight.flatten(1)  # (m, A · width)
            product = product.view(features.shape[0] * self.n_actions, self.weight.shape[2])
            hidden = product.index_select(0, input_index * self.n_actions + actions)
        else:
            # One product for each action, and no copy of its matrix for every row.
            order = torch.argsort(actions, stable=True)  # (n,)
            sizes = torch.bincount(actions, minlength=self.n_actions).tolist()
            inputs = torch.split(
                features.index_select(0, input_index.index_select(0, order)), sizes
            )
            product = torch.cat([rows @ self.weight[:, a] for a, rows in enumerate(inputs)])
            hidden = torch.empty_like(product).index_copy(0, order, product)
        if self.output is None:
            return hidden
        return (hidden if self._is_linear else F.silu(hidden)) @ self.output


def info_nce_loss(
    predicted: Tensor, targets: Tensor, positive: Tensor, counts: Tensor, *, temperature: float
) -> Tensor:
    """InfoNCE with negatives from the batch (paper, Step 1, eq. l_nce; Oord et al., 2018), in nats.

    With v̄ = v / ‖v‖₂, temperature τ > 0, counts c_i and m_j the counts that lead to target j,

        s_ij = ⟨p̄_i, t̄_j⟩ / τ,
        L = − Σ_i c_i [ s_i,pos(i) − log Σ_j m_j exp(s_ij) ] / Σ_i c_i.

    Σ_j m_j exp(s_ij) is the denominator over all Σ_j m_j targets of the batch before merging, so
    value and gradient equal those for the batch with duplicates. τ = 1 is the paper's loss.

    Args:
        predicted: (n, z), the predicted next features Wψ(x_i, a_i).
        targets: (m, z), distinct next features, gradient stopped by the caller.
        positive: (n,) int64, the row of ``targets`` to which each transition leads.
        counts: (n,), positive, transitions that each row stands for.
    """
    target_counts = counts.new_zeros(len(targets)).index_add(0, positive, counts)
    # Cosines, so that no feature grows to lower the loss.
    similarity = F.normalize(predicted, dim=-1) @ F.normalize(targets, dim=-1).T  # (n, m)
    # −∞ for a target that nothing leads to, which so has no part in any denominator.
    log_counts = target_counts.log()
    losses = F.cross_entropy(similarity / temperature + log_counts, positive, reduction="none")
    # The positive's own log-count belongs to the denominator only.
    losses = losses + log_counts.index_select(0, positive)  # (n,)
    # A mean over the transitions before merging: sums over rows would count frequent ones once.
    return (counts * losses).sum() / counts.sum()
