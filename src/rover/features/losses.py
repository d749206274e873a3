"""Self-supervised losses on predicted next features, as pure functions of merged batches.

A batch arrives merged: row i stands for ``counts[i]`` equal transitions, and equal next states
share one row of ``targets``. Each loss equals the plain one on the batch before merging.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def info_nce_loss(
    predicted: Tensor,
    targets: Tensor,
    positive: Tensor,
    counts: Tensor,
    target_counts: Tensor,
    *,
    temperature: float,
) -> Tensor:
    """InfoNCE with negatives from the batch (paper, Step 1, eq. l_nce; Oord et al., 2018).

    With v̄ = v / ‖v‖₂, temperature τ, counts c_i and target counts m_j,

        s_ij = ⟨p̄_i, t̄_j⟩ / τ,
        L = − Σ_i c_i [ s_i,pos(i) − log Σ_j m_j exp(s_ij) ] / Σ_i c_i.

    Σ_j m_j exp(s_ij) is the denominator over all Σ_j m_j targets of the batch before merging,
    so the value and the gradient are exactly those of the batch of duplicates. τ = 1 is the
    paper's loss.

    Args:
        predicted: (n, z), the predicted next features Wψ(x_i, a_i).
        targets: (m, z), distinct next features, gradient stopped by the caller.
        positive: (n,) int64, the row of ``targets`` to which each transition leads.
        counts: (n,), positive, transitions that each row stands for.
        target_counts: (m,), non-negative, transitions that lead to each target; a target with
            count 0 is no negative.
        temperature: τ > 0.

    Returns:
        Scalar loss, in nats.
    """
    similarity = F.normalize(predicted, dim=-1) @ F.normalize(targets, dim=-1).T  # (n, m)
    log_counts = target_counts.log()
    losses = F.cross_entropy(similarity / temperature + log_counts, positive, reduction="none")
    # The positive's own log-count belongs to the denominator only.
    losses = losses + log_counts.index_select(0, positive)  # (n,)
    return (counts * losses).sum() / counts.sum()


def byol_loss(predicted: Tensor, targets: Tensor, counts: Tensor) -> Tensor:
    """Squared distance of normalised features (Grill et al., 2020; Guo et al., 2022).

        L = Σ_i c_i ‖p̄_i − t̄_i‖² / Σ_i c_i = Σ_i c_i (2 − 2⟨p̄_i, t̄_i⟩) / Σ_i c_i

    The targets come from a slowly moving average of the encoder; that and the predictor are what
    keeps the features from collapsing, no negatives do.

    Args:
        predicted: (n, z).
        targets: (n, z), target-encoder features of each transition's next state.
        counts: (n,), positive.

    Returns:
        Scalar loss in [0, 4].
    """
    cosine = (F.normalize(predicted, dim=-1) * F.normalize(targets, dim=-1)).sum(dim=-1)
    return (counts * (2.0 - 2.0 * cosine)).sum() / counts.sum()


def self_predictive_loss(predicted: Tensor, targets: Tensor, counts: Tensor) -> Tensor:
    """Squared error of latent self-prediction (Schwarzer et al., 2021; Tang et al., 2023).

        L = Σ_i c_i ‖p_i − sg(t_i)‖² / Σ_i c_i

    with the encoder itself, gradient stopped, as the source of targets.

    Args:
        predicted: (n, z).
        targets: (n, z), features of each transition's next state; the gradient is stopped here.
        counts: (n,), positive.

    Returns:
        Scalar loss, non-negative.
    """
    error = (predicted - targets.detach()).square().sum(dim=-1)
    return (counts * error).sum() / counts.sum()


def next_state_counts(next_index: Tensor, counts: Tensor, n_targets: int) -> Tensor:
    """Sum the counts of the transitions that lead to each of ``n_targets`` states: (m,) float."""
    return torch.zeros(n_targets, dtype=counts.dtype).index_add(0, next_index, counts)
