"""Maximum entropy (Hazan et al., 2019): a mixture of policies, by kernel density of states."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from scipy.spatial.distance import cdist
from torch import Tensor

from rover.arrays import FloatArray
from rover.baselines.bonus import BonusAgent, BonusConfig
from rover.baselines.rewards import IntrinsicReward
from rover.data import Batch
from rover.features import input_statistics, restore_tensors
from rover.policies import NetworkPolicy, PolicyNetwork

# Singular values below this share of the largest are rounding errors.
_RELATIVE_RANK = 1e-10


class _MaxentConfig(BaseModel, extra="forbid", frozen=True):
    """Settings of the reward; the defaults are those that the ROVER paper gives."""

    n_components: int = Field(32, ge=1, description="principal components, at most")
    bandwidth: float = Field(0.1, gt=0, description="of the kernel")
    measure: Literal["density", "mass"] = Field(
        "density", description="p̂ per unit of volume, or the share of samples near a point"
    )
    smoothing: float = Field(1e-3, gt=0, description="what is added to p̂")
    refit_every: int = Field(5000, ge=1, description="environment steps between densities")


@dataclass(frozen=True)
class _KernelDensity:
    """p̂(x) = Σ_i w_i K_h(P(x) − y_i) on the principal components of samples.

    K_h(u) ∝ max(0, 1 − ‖u‖²/h²), the kernel of Epanechnikov.
    """

    mean: FloatArray  # (d,), of the samples
    components: FloatArray  # (q, d), orthonormal rows of P by falling variance
    points: FloatArray  # (m, q), the projected samples y_i
    weights: FloatArray  # (m,), adding up to 1
    bandwidth: float  # h > 0
    scale: FloatArray | float = 1.0  # (d,), what samples were divided by

    @classmethod
    def fit(
        cls,
        samples: NDArray[Any],
        counts: NDArray[Any],
        config: _MaxentConfig,
        scale: FloatArray | float = 1.0,
    ) -> Self:
        """Density of the distinct `samples` (m, d), which stand for `counts` (m,) > 0 each."""
        samples, weights = samples.astype(np.float64) / scale, counts / counts.sum()
        mean = weights @ samples
        weighted = (samples - mean) * np.sqrt(weights)[:, None]  # (m, d)
        # By torch, whose threads a run fixes: numpy's bits follow their number.
        parts = torch.linalg.svd(torch.from_numpy(weighted), full_matrices=False)
        singular, rows = parts.S.numpy(), parts.Vh.numpy()
        # Directions without variance are left out.
        rank = int((singular > _RELATIVE_RANK * max(float(singular[0]), 1e-300)).sum())
        kept = rows[: min(config.n_components, rank)]  # (q, d)
        # The entry of largest magnitude in each is positive, which fixes the sign.
        largest = np.abs(kept).argmax(axis=1)[:, None]
        kept = kept * np.sign(np.take_along_axis(kept, largest, axis=1))
        return cls(mean, kept, _product(samples - mean, kept.T), weights, config.bandwidth, scale)

    def mass(self, queries: NDArray[Any]) -> FloatArray:
        """Σ_i w_i K_h(x − y_i) / K_h(0) in [0, 1], (n,): the share of the samples near x (n, d).

        Where points lie further apart than the bandwidth, this is how often x was seen.
        """
        squared = np.zeros((len(queries), len(self.points)))
        if len(self.components):  # a space without directions is one point
            rows = _product(queries.astype(np.float64) / self.scale - self.mean, self.components.T)
            squared = cdist(rows, self.points, "sqeuclidean") / self.bandwidth**2
        mass: FloatArray = np.maximum(0.0, 1.0 - squared) @ self.weights
        return mass

    def density(self, queries: NDArray[Any]) -> FloatArray:
        """p̂ of queries (n, d), per unit of volume of the components: (n,) ≥ 0."""
        d, h = len(self.components), self.bandwidth
        # K_h(0) = (d + 2) / (2 V_d h^d), with V_d the volume of the unit ball.
        log_volume = 0.5 * d * math.log(math.pi) - math.lgamma(0.5 * d + 1.0)
        log_peak = math.log(0.5 * (d + 2)) - log_volume - d * math.log(h)
        return self.mass(queries) * math.exp(log_peak)


def _product(left: FloatArray, right: FloatArray) -> FloatArray:
    product: FloatArray = (torch.from_numpy(left) @ torch.from_numpy(right)).numpy()
    return product


class _MaxentReward(IntrinsicReward[_MaxentConfig]):
    """Reward for observations that the mixture of policies so far seldom reaches.

        r(x, a, x') = 1 / (p̂(x') + c)

    p̂ is a kernel density on principal components of what the policies so far have visited
    (:meth:`refit`). c = 10⁻³ bounds the reward, which is 1/c before the first density; this is the
    reward of the published experiments, where the analysis has the gradient of the smoothed
    entropy, −log(p̂ + c) − 1.

    In 32 dimensions a density per unit of volume is of the order of 10³⁷ wherever there is a
    sample, and the reward close to 0 there and 1/c elsewhere. ``measure="mass"`` divides p̂ by
    its kernel's peak, so that p̂ is the frequency of an observation where observations are
    distinct, as in the tabular form of the algorithm. One-hot observations need a component each
    for that: those seldom seen have none among the first few, and fall together.
    """

    def _build(self, generator: torch.Generator) -> None:
        self.density: _KernelDensity | None = None
        self._rewards: dict[int, Tensor] = {}  # by row of the buffer's observations

    def refit(self, observations: Tensor, counts: NDArray[np.integer[Any]]) -> None:
        """Estimate the density anew, of distinct raw observations (m, *shape) and how often each
        was visited."""
        scale: FloatArray | float = 1.0
        if observations.dtype == torch.uint8:  # which are divided by 255 already
            scale = input_statistics(observations.numpy())[1].ravel().astype(np.float64) / 255.0
        samples = self._flat(observations).numpy()
        self.density = _KernelDensity.fit(samples, counts, self.config, scale)
        self._rewards.clear()

    def _learn(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        """Rewards of the density that there is: :meth:`refit` makes the next."""
        rewards = batch.cached(self._reward, self._rewards)  # (m,)
        return rewards.index_select(0, batch.next_index), {}

    def _reward(self, observation: Tensor) -> Tensor:
        """Reward (1,) for reaching an observation (1, *shape), which stays until the next fit."""
        probability = np.zeros(1)
        if self.density is not None:
            flat = self._flat(observation).cpu().numpy()
            on_mass = self.config.measure == "mass"
            probability = self.density.mass(flat) if on_mass else self.density.density(flat)
        reward = 1.0 / (probability + self.config.smoothing)
        return torch.from_numpy(reward).to(observation.device)

    def state(self) -> dict[str, Any]:
        """The density; None before the first."""
        return {"density": None if self.density is None else asdict(self.density)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        density = state["density"]
        self.density = None if density is None else _KernelDensity(**density)
        self._rewards.clear()


class _Maxent(BonusAgent):
    """Maximum entropy with a discrete DDPG learner; returns the mixture of all rounds' policies.

    A round ends every ``intrinsic.refit_every`` steps: its policy joins the mixture, and the
    density is fitted to the visits of all policies so far. The first round is the seed steps', with
    a uniform policy. Roll-outs take no steps, so that the budgets of all agents compare.
    """

    name = "maxent"
    label = "MaxEnt"
    config_class = BonusConfig[_MaxentConfig]
    reward_class = _MaxentReward
    presets = BonusAgent.make_presets(
        published={"window": "last"},
        fast={"intrinsic": {"measure": "mass", "n_components": 512, "refit_every": 1000}},
    )

    def _build(self) -> NetworkPolicy:
        self._rounds: list[PolicyNetwork] = []
        return super()._build()

    def _update(self) -> dict[str, Any] | None:
        learned_steps = self.num_timesteps - self.config.seed_steps
        if learned_steps >= 0 and learned_steps % self.config.intrinsic.refit_every == 0:
            # A copy: what is learned later must not reach into the mixture.
            self._rounds.append(self._snapshot())
            # Visits of all policies so far, since the density is the mixture's.
            visits = self.buffer.visits()
            seen = np.flatnonzero(visits)
            with self.stopwatch("represent"):
                observations = torch.from_numpy(self.buffer.observations.rows[seen])
                cast(_MaxentReward, self._reward).refit(observations, visits[seen])
        return super()._update()

    def _package(self) -> NetworkPolicy:
        return NetworkPolicy([*self._rounds, self._snapshot()], self._evaluation_skills)

    def _agent_state(self) -> dict[str, Any]:
        rounds = [network.state_dict() for network in self._rounds]
        return {**super()._agent_state(), "rounds": rounds}

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        self._rounds = []
        for weights in state["rounds"]:
            network = self._snapshot()
            restore_tensors(network.state_dict(), weights, owner="the policy")
            self._rounds.append(network)
        super()._load_agent_state(state)
