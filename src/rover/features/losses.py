"""Prediction of the next state's features, self-supervised losses on it, and collapse.

A batch arrives merged: row i stands for ``counts[i]`` equal transitions, and equal next states
share one row of ``targets``. Each loss equals the plain one on the batch before merging.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.arrays import evenly_spaced
from rover.errors import NonFiniteError, RoverWarning
from rover.features.networks import orthogonal_

PredictorKind = Literal["linear", "two_layer", "silu"]
"""Kind of the predictor of the next observation's features."""

_HIDDEN = 1024  # rows of W, as in the published code
_COLLAPSED_COSINE = 0.95


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
        kind: PredictorKind = "linear",
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
            hidden = self._by_action(features, input_index, actions)
        if self.output is None:
            return hidden
        return (hidden if self._is_linear else F.silu(hidden)) @ self.output

    def _by_action(self, features: Tensor, input_index: Tensor, actions: Tensor) -> Tensor:
        # One product for each action, and no copy of its matrix for every row.
        order = torch.argsort(actions, stable=True)  # (n,)
        sizes = torch.bincount(actions, minlength=self.n_actions).tolist()
        inputs = torch.split(features.index_select(0, input_index.index_select(0, order)), sizes)
        product = torch.cat([rows @ self.weight[:, a] for a, rows in enumerate(inputs)])
        return torch.empty_like(product).index_copy(0, order, product)


def info_nce_loss(
    predicted: Tensor,
    targets: Tensor,
    positive: Tensor,
    counts: Tensor,
    *,
    temperature: float,
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


def check_collapse(features: NDArray[np.floating[Any]]) -> dict[str, float]:
    """Measure how far apart the features of distinct observations are, and warn if they are not.

    Args:
        features: (m, z), one row per distinct observation, m ≥ 2; 1,024 of them are looked at,
            evenly spaced.

    Returns:
        ``feature_cosine``, the mean cosine over pairs of different observations, and
        ``feature_rank``, exp of the entropy of the normalised singular values (the effective rank
        of Roy and Vetterli, 2007), between 1 and min(m, z).

    Raises:
        NonFiniteError: a feature is NaN or infinite.

    Warns:
        RoverWarning: the mean cosine is above 0.95.
    """
    points = features[evenly_spaced(len(features), 1024)].astype(np.float64)  # (m, z)
    if not np.isfinite(points).all():
        row = int(np.flatnonzero(~np.isfinite(points).all(axis=1))[0])
        raise NonFiniteError(
            f"the features of observation {row} are not finite: lower the learning rate, and "
            "check that the observations are finite"
        )
    m, norms = len(points), np.linalg.norm(points, axis=1, keepdims=True)
    unit = points / np.where(norms > 0.0, norms, 1.0)
    unit[norms[:, 0] == 0.0] = 1.0 / math.sqrt(points.shape[1])  # zeros are as collapsed as equals
    cosine = (float(np.square(unit.sum(axis=0)).sum()) - m) / (m * (m - 1))
    values = torch.linalg.svdvals(torch.from_numpy(points)).numpy()  # numpy's bits follow threads
    shares = values[values > 0.0] / max(float(values.sum()), np.finfo(np.float64).tiny)
    rank = float(np.exp(-(shares * np.log(shares)).sum()))
    if cosine > _COLLAPSED_COSINE:
        warnings.warn(
            f"the features of {m} distinct observations have a mean cosine of {cosine:.3f} and an "
            f"effective rank of {rank:.1f}: the representation has collapsed, or has not come "
            "apart yet, and the model will take different states for one. Try more encoder updates "
            "per step, a lower temperature, or the 'info_nce' objective",
            RoverWarning,
            stacklevel=2,
        )
    return {"feature_cosine": cosine, "feature_rank": rank}
