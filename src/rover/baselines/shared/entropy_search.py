"""MEPOL's estimators and policy search (Mutti, Pratissoli & Restelli, AAAI 2021).

The entropy of the states that a policy π_θ' visits is estimated from N states that π_θ visited, by
distances to k nearest neighbours and by importance weights (after Ajgl & Šimandl, 2011). Its
gradient is followed off-policy for as long as an estimate of the Kullback-Leibler divergence from
π_θ's states says that the batch can still be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.special import digamma, gammaln
from torch import Tensor

from rover.errors import ConfigurationError, NonFiniteError
from rover.features import Optimizer
from rover.storage import copied_tensors, restore_tensors


class Neighbourhoods:
    """The k nearest other points of each of n points in Euclidean distance, and what they estimate.

    The ball that reaches the k-th of them has the volume V_i = R_i^p π^(p/2) / Γ(p/2 + 1), with R_i
    the distance to it.

    Args:
        points: (n, p).
        n_neighbors: k ≥ 1.
        min_distance: > 0, what a smaller R_i is raised to, so that repeated points have a volume.

    Attributes:
        indices: (n, k) int64, the neighbours.
        log_volumes: (n,) float64, ln V_i.

    Raises:
        ConfigurationError: there are no more than k points.
        NonFiniteError: a coordinate is not finite.
    """

    def __init__(
        self, points: NDArray[np.float64], *, n_neighbors: int, min_distance: float
    ) -> None:
        n, dimension = points.shape
        if n_neighbors >= n:
            raise ConfigurationError(
                f"{n_neighbors} nearest neighbours were asked for among {n} states: choose "
                f"n_neighbors in 1 … {n - 1}, or collect longer or more trajectories"
            )
        if not np.isfinite(points).all():
            raise NonFiniteError(
                "state coordinates must be finite: look at the coordinates function"
            )
        nearest = cKDTree(points).query(points, k=np.arange(1, n_neighbors + 2))  # from 1, itself
        distances, indices = np.asarray(nearest[0]), np.asarray(nearest[1])  # (n, k + 1)
        # A point need not come first among its duplicates, nor at all if it has more than k.
        others = indices != np.arange(n)[:, None]
        others[others.all(axis=1), -1] = False
        radii = np.maximum(distances[others].reshape(n, n_neighbors)[:, -1], min_distance)
        unit_ball = 0.5 * dimension * math.log(math.pi) - float(gammaln(0.5 * dimension + 1.0))
        self.indices = torch.from_numpy(indices[others].reshape(n, n_neighbors).astype(np.int64))
        self.log_volumes = torch.from_numpy(unit_ball + dimension * np.log(radii))

    def entropy(self, log_weights: Tensor) -> Tensor:
        """Importance-weighted k-NN estimate of the state entropy in nats (Mutti et al., 2021).

        Ĥ = −Σ_i (W_i / k) ln(W_i / V_i) + ln k − ψ(k), with W_i = Σ_{j ∈ N_i} w_j over the k
        nearest neighbours. Equal weights give the estimator of Kozachenko and Leonenko with ln n
        for ψ(n).

        Args:
            log_weights: (n,), whose exponentials add up to 1.

        Returns:
            Scalar, differentiable in `log_weights`.
        """
        k = self.indices.shape[1]
        log_masses = self._log_masses(log_weights)
        spread = log_masses - self.log_volumes
        return -(log_masses.exp() * spread).sum() / k + math.log(k) - float(digamma(k))

    def divergence(self, log_weights: Tensor) -> Tensor:
        """k-NN estimate of KL(d_θ ‖ d_θ') in nats from states of π_θ (Mutti et al., 2021).

        (1/n) Σ_i ln((k / n) / W_i); zero for equal weights. Scalar.
        """
        n, k = self.indices.shape
        return math.log(k / n) - self._log_masses(log_weights).mean()

    def _log_masses(self, log_weights: Tensor) -> Tensor:
        """ln W_i (n,), by logsumexp: far from the behaviour policy whole regions underflow."""
        return torch.logsumexp(log_weights[self.indices], dim=1)


def maximize_entropy(
    optimizer: Optimizer,
    action_log_probs: Callable[[], Tensor],
    lengths: Sequence[int],
    neighbourhoods: Neighbourhoods,
    *,
    kl_threshold: float,
    max_steps: int,
    max_backtracks: int,
) -> dict[str, float]:
    """Ascend the state entropy of a policy on one batch of its own (Mutti et al., Algorithm 1).

    Args:
        optimizer: of the policy; its learning rate is the same afterwards as before.
        action_log_probs: ln π(a|x) of the batch's n steps under the current parameters, (n,).
        lengths: of the trajectories, one after the other, which add up to n.
        neighbourhoods: of the states that the steps arrived in.
        kl_threshold: δ > 0 in nats: a step beyond it is taken back and tried at half the rate.
        max_steps: gradient steps.
        max_backtracks: steps taken back before the search ends.

    Returns:
        Ĥ of the policy that collected the batch ("state_entropy_before") and of the one that was
        found ("state_entropy"), the estimated divergence of the two ("kl", at most the threshold),
        and the gradient steps that were kept ("search_steps") and taken back ("backtracks").

    Raises:
        NonFiniteError: the entropy or its gradient is not finite; the parameters are those of the
            last step that was trusted.
    """
    behaviour = action_log_probs().detach()
    rate = optimizer.learning_rate

    def log_weights() -> Tensor:
        return _log_weights(action_log_probs() - behaviour, lengths)

    def differentiate(entropy: Tensor) -> None:
        norm = float(optimizer.backward(-entropy))
        if not (math.isfinite(entropy.item()) and math.isfinite(norm)):
            raise NonFiniteError(
                f"the state entropy is {entropy.item()} and its gradient has norm {norm}: lower "
                f"the learning rate (now {rate}) or the kl_threshold (now {kl_threshold}), and "
                "check that the observations are finite"
            )

    entropy = neighbourhoods.entropy(log_weights())
    before, kl, n_steps, n_backtracks = entropy.item(), 0.0, 0, 0
    differentiate(entropy)
    while n_steps < max_steps:
        trusted = copied_tensors(optimizer.tensors())
        optimizer.apply()
        weights = log_weights()
        divergence = neighbourhoods.divergence(weights).item()
        if not divergence <= kl_threshold:  # NaN is not trusted either
            restore_tensors(optimizer.tensors(), trusted, owner="the policy search")
            n_backtracks += 1
            if n_backtracks > max_backtracks:
                break
            optimizer.learning_rate *= 0.5
            continue
        n_steps, kl = n_steps + 1, divergence
        entropy = neighbourhoods.entropy(weights)
        if n_steps < max_steps:
            differentiate(entropy)
    optimizer.learning_rate = rate
    return {
        "state_entropy_before": before,
        "state_entropy": entropy.item(),
        "kl": kl,
        "search_steps": n_steps,
        "backtracks": n_backtracks,
    }


def _log_weights(log_ratios: Tensor, lengths: Sequence[int]) -> Tensor:
    """Log of the self-normalised importance weight of each state that was arrived in, (n,).

    w(e, t) ∝ Π_{z ≤ t} π_θ'(a_z|x_z) / π_θ(a_z|x_z) along trajectory e of `lengths`, normalised
    over all n states, with `log_ratios` (n,) ln π_θ'(a|x) − ln π_θ(a|x) of each step.
    """
    trajectories = torch.split(log_ratios, list(lengths))
    return torch.log_softmax(torch.cat([part.cumsum(dim=0) for part in trajectories]), dim=0)
