"""MEPOL's estimators and policy search (Mutti, Pratissoli & Restelli, AAAI 2021).

The entropy of the states that a policy π_θ' visits is estimated from N states that π_θ visited, by
distances to k nearest neighbours and by importance weights (after Ajgl & Šimandl, 2011). Its
gradient is followed off-policy for as long as an estimate of the Kullback-Leibler divergence from
π_θ's states says that the batch can still be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.special import digamma, gammaln
from torch import Tensor

from rover.errors import ArtefactError, ConfigurationError, NonFiniteError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Neighbourhoods:
    """The k nearest other points of each of n points.

    Attributes:
        indices: (n, k) int64.
        log_volumes: (n,) float64, ln of the volume of the ball that reaches the k-th of them.
    """

    indices: Tensor
    log_volumes: Tensor


def find_neighbourhoods(
    points: FloatArray, *, n_neighbors: int, min_distance: float
) -> Neighbourhoods:
    """The k nearest neighbours of each point in Euclidean distance.

    The volume is V_i = R_i^p π^(p/2) / Γ(p/2 + 1), with R_i the distance to the k-th neighbour.

    Args:
        points: (n, p).
        n_neighbors: k, in 1..n−1.
        min_distance: > 0, what a smaller R_i is raised to, so that repeated points have a volume.

    Raises:
        ConfigurationError: k or the distance is out of range.
        NonFiniteError: a coordinate is not finite.
    """
    n, dimension = points.shape
    if not 1 <= n_neighbors < n:
        raise ConfigurationError(
            f"{n_neighbors} nearest neighbours were asked for among {n} states: choose "
            f"n_neighbors in 1 … {n - 1}, or collect longer or more trajectories"
        )
    if not min_distance > 0.0:
        raise ConfigurationError(f"min_distance is {min_distance}, but must be positive")
    if not np.isfinite(points).all():
        raise NonFiniteError("state coordinates must be finite: look at the coordinates function")
    nearest = cKDTree(points).query(points, k=np.arange(1, n_neighbors + 2))  # from 1, itself
    distances, found = np.asarray(nearest[0]), np.asarray(nearest[1])  # (n, k + 1)
    # A point need not come first among its duplicates, nor at all if it has more than k of them.
    others = found != np.arange(n)[:, None]
    others[others.all(axis=1), -1] = False
    radii = np.maximum(distances[others].reshape(n, n_neighbors)[:, -1], min_distance)
    unit_ball = 0.5 * dimension * math.log(math.pi) - float(gammaln(0.5 * dimension + 1.0))
    return Neighbourhoods(
        torch.from_numpy(found[others].reshape(n, n_neighbors).astype(np.int64)),
        torch.from_numpy(unit_ball + dimension * np.log(radii)),
    )


def log_importance_weights(log_ratios: Tensor, valid: Tensor) -> Tensor:
    """Log of the self-normalised importance weight of each state that was arrived in.

    w(e, t) ∝ Π_{z ≤ t} π_θ'(a_z|x_z) / π_θ(a_z|x_z) along trajectory e, normalised over all states.

    Args:
        log_ratios: (E, T) ln π_θ'(a|x) − ln π_θ(a|x) of each step, anything where not valid.
        valid: (E, T) bool, false beyond the end of a trajectory.

    Returns:
        (n,) for the n valid steps, in row-major order; their exponentials add up to 1.
    """
    cumulated = torch.where(valid, log_ratios, 0.0).cumsum(dim=1)
    return torch.log_softmax(cumulated[valid], dim=0)


def knn_entropy_is(log_weights: Tensor, neighbourhoods: Neighbourhoods) -> Tensor:
    """Importance-weighted k-NN estimate of the state entropy in nats (Mutti et al., 2021).

    Ĥ = −Σ_i (W_i / k) ln(W_i / V_i) + ln k − ψ(k), with W_i = Σ_{j ∈ N_i} w_j over the k nearest
    neighbours. Equal weights give the estimator of Kozachenko and Leonenko with ln n for ψ(n).

    Args:
        log_weights: (n,) from :func:`log_importance_weights`.
        neighbourhoods: of the n states.

    Returns:
        Scalar, differentiable in `log_weights`.
    """
    k = neighbourhoods.indices.shape[1]
    log_masses = _log_masses(log_weights, neighbourhoods)
    spread = log_masses - neighbourhoods.log_volumes
    return -(log_masses.exp() * spread).sum() / k + math.log(k) - float(digamma(k))


def kl_estimate(log_weights: Tensor, neighbourhoods: Neighbourhoods) -> Tensor:
    """k-NN estimate of KL(d_θ ‖ d_θ') in nats from states of π_θ (Mutti et al., 2021).

    (1/n) Σ_i ln((k / n) / W_i); zero for equal weights. Scalar.
    """
    n, k = neighbourhoods.indices.shape
    return math.log(k / n) - _log_masses(log_weights, neighbourhoods).mean()


def _log_masses(log_weights: Tensor, neighbourhoods: Neighbourhoods) -> Tensor:
    """ln W_i (n,); by logsumexp, because far from the behaviour policy whole regions underflow."""
    return torch.logsumexp(log_weights[neighbourhoods.indices], dim=1)


@dataclass(frozen=True)
class SearchOutcome:
    """What a policy search did.

    Attributes:
        entropy_before: Ĥ of the policy that collected the batch.
        entropy: Ĥ of the policy that was found.
        kl: estimated divergence of the two, at most the threshold.
        n_steps: gradient steps that were kept.
        n_backtracks: gradient steps that were taken back.
    """

    entropy_before: float
    entropy: float
    kl: float
    n_steps: int
    n_backtracks: int


class EntropySearch:
    """Gradient ascent on the state entropy within a trust region (Mutti et al., Algorithm 1).

    Args:
        parameters: what is searched over, by name.
        learning_rate: of Adam, > 0.
        kl_threshold: δ > 0 in nats: a step beyond it is taken back and tried at half the rate.
        max_steps: gradient steps on one batch.
        max_backtracks: steps taken back on one batch before the search ends.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        *,
        learning_rate: float,
        kl_threshold: float,
        max_steps: int,
        max_backtracks: int,
    ) -> None:
        self._parameters = dict(parameters)
        self._learning_rate = learning_rate
        self._kl_threshold = kl_threshold
        self._max_steps = max_steps
        self._max_backtracks = max_backtracks
        self._optimizer = torch.optim.Adam(list(self._parameters.values()), lr=learning_rate)
        # Created here and not by the first step, so that a checkpoint always has the same keys.
        for parameter in self._parameters.values():
            self._optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def maximize(
        self,
        action_log_probs: Callable[[], Tensor],
        valid: Tensor,
        neighbourhoods: Neighbourhoods,
    ) -> SearchOutcome:
        """Improve the parameters on one batch, which they collected.

        Args:
            action_log_probs: ln π(a|x) of the batch's steps under the current parameters, (E, T),
                anything where not valid.
            valid: (E, T) bool, false beyond the end of a trajectory.
            neighbourhoods: of the states that the n valid steps arrived in, in row-major order.

        Raises:
            NonFiniteError: the entropy or its gradient is not finite; the parameters are those of
                the last step that was trusted.
        """
        behaviour = action_log_probs().detach()

        def log_weights() -> Tensor:
            return log_importance_weights(action_log_probs() - behaviour, valid)

        entropy = knn_entropy_is(log_weights(), neighbourhoods)
        before, kl, n_steps, n_backtracks = entropy.item(), 0.0, 0, 0
        group = self._optimizer.param_groups[0]
        group["lr"] = self._learning_rate
        self._differentiate(entropy)
        while n_steps < self._max_steps:
            trusted = self._snapshot()
            self._optimizer.step()
            weights = log_weights()
            divergence = kl_estimate(weights, neighbourhoods).item()
            if not divergence <= self._kl_threshold:  # NaN is not trusted either
                self._restore(trusted)
                n_backtracks += 1
                if n_backtracks > self._max_backtracks:
                    break
                group["lr"] *= 0.5
                continue
            n_steps, kl = n_steps + 1, divergence
            entropy = knn_entropy_is(weights, neighbourhoods)
            if n_steps < self._max_steps:
                self._differentiate(entropy)
        return SearchOutcome(before, entropy.item(), kl, n_steps, n_backtracks)

    def _differentiate(self, entropy: Tensor) -> None:
        self._optimizer.zero_grad()
        (-entropy).backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.get_total_norm(
            [p.grad for p in self._parameters.values() if p.grad is not None]
        )
        if not (math.isfinite(entropy.item()) and math.isfinite(float(norm))):
            raise NonFiniteError(
                f"the state entropy is {entropy.item()} and its gradient has norm {float(norm)}: "
                f"lower the learning rate (now {self._learning_rate}) or the kl_threshold (now "
                f"{self._kl_threshold}), and check that the observations are finite"
            )

    def _tensors(self) -> dict[str, Tensor]:
        """Everything that a step changes, by name; not copied."""
        tensors = dict(self._parameters)
        for name, parameter in self._parameters.items():
            for moment, tensor in self._optimizer.state[parameter].items():
                tensors[f"optimizer.{moment}.{name}"] = tensor
        return tensors

    def _snapshot(self) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in self._tensors().items()}

    def _restore(self, snapshot: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, tensor in self._tensors().items():
                tensor.copy_(snapshot[name])

    def state(self) -> dict[str, Tensor]:
        """The parameters and Adam's moments as named tensors, copied."""
        return self._snapshot()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            ArtefactError: a tensor is missing or has another shape; nothing was changed then.
        """
        for name, tensor in self._tensors().items():
            found = state.get(name)
            if found is None or found.shape != tensor.shape:
                raise ArtefactError(
                    f"the state of the policy search has {name} of shape "
                    f"{None if found is None else tuple(found.shape)} instead of "
                    f"{tuple(tensor.shape)}: build it with the settings it was saved with"
                )
        self._restore(state)
