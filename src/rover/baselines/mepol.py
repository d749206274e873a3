"""MEPOL (Mutti et al., 2021): k-NN state entropy by on-policy search, given states' positions.

The closest relative of ROVER: it, too, learns one policy whose states are spread out, but by the
gradient of a nearest-neighbour estimate, with a batch of whole trajectories for every update. It
needs distances between states: on grid worlds the (x, y) of each state, which ROVER does not see.

The entropy of the states that a policy π_θ' visits is estimated from N states that π_θ visited, by
distances to k nearest neighbours and by importance weights (after Ajgl & Šimandl, 2011). Its
gradient is followed off-policy for as long as an estimate of the Kullback-Leibler divergence from
π_θ's states says that the batch can still be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from pydantic import Field, PositiveInt
from scipy.spatial import cKDTree
from scipy.special import digamma, gammaln
from torch import Tensor

from rover.arrays import FloatArray, IntArray
from rover.envs import GridWorld, finite_dynamics, horizon_of
from rover.errors import ConfigurationError, abridge, require_finite
from rover.features import (
    AdamW,
    Observations,
    as_tensor,
    copied_tensors,
    encoder_config,
    input_statistics,
    make_encoder,
    restore_tensors,
)
from rover.operators import Linear
from rover.policies import CoveragePolicy, TabulatedPolicy
from rover.training.agent import Agent
from rover.training.config import AgentConfig

# A bound beyond it is none: spaces write the largest float32 for an element without bounds.
_UNBOUNDED = 1e6
# Points that repeat would have no volume.
_SMALLEST_RADIUS = 1e-6


class _MepolConfig(AgentConfig):
    """Settings of MEPOL; the defaults are preset ``fast``."""

    n_trajectories: int = Field(20, ge=1, description="trajectories of a batch")
    n_neighbors: int = Field(4, ge=1, description="k of the entropy estimate")
    kl_threshold: float = Field(0.5, gt=0, description="δ of the trust region in nats")
    learning_rate: float = Field(3e-4, gt=0, description="Adam step size")
    max_search_steps: int = Field(30, ge=1, description="gradient steps on one batch")
    max_backtracks: int = Field(5, ge=0, description="steps taken back before a search ends")
    hidden_sizes: tuple[PositiveInt, ...] = Field(
        (64, 64), min_length=1, description="hidden layers of the policy; the last one of images"
    )


class _Mepol(Agent[_MepolConfig]):
    """On-policy search for the policy whose states have the greatest entropy.

    The policy acts as it is, without seed steps or ε-greedy actions, since the importance weights
    hold for its own actions only; it begins uniform. A trajectory is an episode, cut after
    200 steps where they have no limit. Of several episodes in progress when the policy changes,
    the rest is a trajectory.

    States of grid worlds lie at their (x, y) in cells, whatever the observation, and vectors where
    their elements say, scaled to [0, 1] by the bounds of the space, or by the range seen so far
    where there are none.
    """

    name = "mepol"
    label = "MEPOL"
    config_class = _MepolConfig
    # "published": that publication's settings for its (continuous) grid world; batches are of 20
    # trajectories there too, of 1,200 steps each.
    presets = {  # noqa: RUF012
        "fast": {},
        "published": {
            "n_neighbors": 50,
            "kl_threshold": 15.0,
            "learning_rate": 1e-5,
            "hidden_sizes": (300, 300),
        },
    }

    def _build(self) -> CoveragePolicy:
        config, space, world = self.config, self.spaces.observation, self.env.unwrapped
        self._cells = world.layout.cells if isinstance(world, GridWorld) else None
        self._problem, self._horizon = finite_dynamics(self.env), horizon_of(self.env)
        is_vector = isinstance(space, spaces.Box) and len(space.shape) != 3
        if not is_vector and (self._cells is None or self._problem is None):
            raise ConfigurationError(
                f"MEPOL needs distances between states, and observations of {abridge(space)} "
                "have none: use a grid world or vector observations"
            )
        self._rng, self._point_rng = np.random.default_rng([self.seed, 0]).spawn(2)
        # ReLU layers to the last hidden layer of the policy, whose logits are linear in it.
        observations = Observations.from_space(space)
        encoder = make_encoder(
            encoder_config(
                observations,
                feature_dim=config.hidden_sizes[-1],
                normalization="none",
                output_relu=True,
                hidden_sizes=None if observations.is_image else config.hidden_sizes[:-1],
                bias=None if observations.is_image else True,
            ),
            torch.Generator().manual_seed(self.seed),
        )
        # Zero, so that the first policy is uniform, whatever the encoder.
        head = torch.zeros(encoder.feature_dim, self.buffer.n_actions, dtype=torch.float64)
        self._network = CoveragePolicy(encoder, Linear(), None, head)
        self._optimizer = AdamW("the policy search", self._network, config.learning_rate)
        self._tabulated = TabulatedPolicy(
            self.buffer.observations, lambda observations, rows: self._network(observations)
        )
        self._begin_batch()
        return self._package()

    def _begin_batch(self) -> None:
        """The policy has changed: forget its table and the trajectories of the one before."""
        # Copies have chosen their next actions by the policy before, all but the latest.
        self._first_row = len(self.buffer) + self.config.num_envs - 1
        self._whole: list[list[int]] = []  # rows of each whole trajectory
        self._begun: dict[int, list[int]] = {}  # of those in progress, by the episode
        self._tabulated.forget()

    def _act(self, observation: int) -> int:
        return self._tabulated.sample(observation, self._rng)

    def _observe(self, row: int, *, done: bool) -> None:
        if row < self._first_row:
            return
        episode = int(self.buffer.episodes[row])
        rows = self._begun.setdefault(episode, [])
        rows.append(row)
        if done or len(rows) == self._horizon:
            self._whole.append(self._begun.pop(episode))

    def _update(self) -> dict[str, Any] | None:
        """Search for a better policy once a batch is complete; figures if there was a search."""
        if len(self._whole) < self.config.n_trajectories:
            return None
        buffer, whole, config = self.buffer, np.concatenate(self._whole), self.config
        with self.stopwatch("estimate"):
            points = self._points(buffer.successors[whole])
            neighbourhoods = _Neighbourhoods(points, config.n_neighbors)
        # Only while the policy is uniform does another input leave it as it is.
        if self._optimizer.n_updates == 0 and self._network.encoder.has_centering:
            self._network.encoder.set_centering(*input_statistics(buffer.observations.rows))
        distinct, index = np.unique(buffer.inputs[whole], return_inverse=True)
        observations = as_tensor(buffer.observations.rows[distinct])  # (m, *shape)
        rows, actions = torch.from_numpy(index), torch.from_numpy(buffer.actions[whole])

        def action_log_probs() -> Tensor:
            return torch.log_softmax(self._network(observations), dim=1)[rows, actions]

        with self.stopwatch("improve"):
            figures = _maximize_entropy(
                self._optimizer, action_log_probs, [*map(len, self._whole)], neighbourhoods, config
            )
        self._begin_batch()
        self._policy = self._package()
        return figures | {"batch_steps": len(whole)}

    def _points(self, states: IntArray) -> FloatArray:
        """Places (n, p) of the observations with these indices (n,)."""
        table = self.buffer.observations.rows
        if self._cells is not None and self._problem is not None:
            cells = self._cells[self._problem.states_of(table[states])].astype(np.float64)
            # Drawn uniformly from each cell: a state that was visited often would have neighbours
            # at distance zero. Cells have volume 1, so that the differential entropy of the points
            # is the entropy of the states.
            return cells + (self._point_rng.random(cells.shape) - 0.5)
        space: Any = self.spaces.observation
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        unbounded = np.maximum(np.abs(low), np.abs(high)) > _UNBOUNDED
        least = np.where(unbounded, table.min(axis=0), low)
        width = np.where(unbounded, table.max(axis=0), high) - least
        points: FloatArray = (table[states] - least) / np.where(width > 0.0, width, 1.0)
        return points

    def _package(self) -> CoveragePolicy:
        """A copy of the policy that no search reaches."""
        weights = self._network.weights.detach().clone()
        return CoveragePolicy(self._network.encoder.frozen(), Linear(), None, weights)

    def _agent_state(self) -> dict[str, Any]:
        return {"search": copied_tensors(self._optimizer.tensors())}

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        restore_tensors(self._optimizer.tensors(), state["search"], owner="the policy search")
        self._begin_batch()
        self._policy = self._package()


class _Neighbourhoods:
    """The k ≥ 1 nearest others of each of n points (n, p), `indices` (n, k), and what they
    estimate.

    The ball that reaches the k-th of them has the volume V_i = R_i^p π^(p/2) / Γ(p/2 + 1), with R_i
    the Euclidean distance to it; `log_volumes` (n,) are ln V_i.
    """

    def __init__(self, points: FloatArray, n_neighbors: int) -> None:
        n, dimension = points.shape
        if n_neighbors >= n:
            raise ConfigurationError(
                f"{n_neighbors} nearest neighbours were asked for among {n} states: choose "
                f"n_neighbors in 1 … {n - 1}, or collect longer or more trajectories"
            )
        nearest = cKDTree(points).query(points, k=np.arange(1, n_neighbors + 2))  # from 1, itself
        distances, indices = np.asarray(nearest[0]), np.asarray(nearest[1])  # (n, k + 1)
        # A point need not come first among its duplicates, nor at all if it has more than k.
        others = indices != np.arange(n)[:, None]
        others[others.all(axis=1), -1] = False
        radii = np.maximum(distances[others].reshape(n, n_neighbors)[:, -1], _SMALLEST_RADIUS)
        unit_ball = 0.5 * dimension * math.log(math.pi) - float(gammaln(0.5 * dimension + 1.0))
        self.indices = torch.from_numpy(indices[others].reshape(n, n_neighbors).astype(np.int64))
        self.log_volumes = torch.from_numpy(unit_ball + dimension * np.log(radii))

    def entropy(self, log_weights: Tensor) -> Tensor:
        """Importance-weighted k-NN estimate of the state entropy in nats (Mutti et al., 2021).

        Ĥ = −Σ_i (W_i / k) ln(W_i / V_i) + ln k − ψ(k), with W_i = Σ_{j ∈ N_i} w_j over the k
        nearest neighbours; scalar, differentiable in ln w (n,), whose exponentials add up to 1.
        Equal weights give the estimator of Kozachenko and Leonenko with ln n for ψ(n).
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


def _maximize_entropy(
    optimizer: AdamW,
    action_log_probs: Callable[[], Tensor],
    lengths: Sequence[int],
    neighbourhoods: _Neighbourhoods,
    config: _MepolConfig,
) -> dict[str, float]:
    """Ascend the state entropy of a policy on one batch of its own (Mutti et al., Algorithm 1).

    `action_log_probs` gives ln π(a|x) (n,) of the batch's n steps under the current parameters;
    `lengths` of its trajectories add up to n. Returns Ĥ before and after, the estimated divergence,
    and the gradient steps that were kept and taken back.
    """
    # By which the batch was collected: ratios are to it, however far the search goes.
    behaviour = action_log_probs().detach()
    rate = optimizer.param_groups[0]["lr"]

    def log_weights() -> Tensor:
        return _log_weights(action_log_probs() - behaviour, lengths)

    def differentiate(entropy: Tensor) -> None:
        optimizer.zero_grad()
        (-entropy).backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad for p in optimizer.param_groups[0]["params"] if p.grad is not None]
        both = torch.stack([entropy.detach(), torch.nn.utils.get_total_norm(gradients)])
        advice = "lower the learning rate or the kl_threshold"
        require_finite(both, "the state entropy and its gradient", advice)

    entropy = neighbourhoods.entropy(log_weights())
    before, kl, n_steps, n_backtracks = entropy.item(), 0.0, 0, 0
    differentiate(entropy)
    while n_steps < config.max_search_steps:
        # With the moments of Adam: a step that is taken back leaves no trace.
        trusted = copied_tensors(optimizer.tensors())
        optimizer.step()
        weights = log_weights()
        divergence = neighbourhoods.divergence(weights).item()
        if not divergence <= config.kl_threshold:  # NaN is not trusted either
            restore_tensors(optimizer.tensors(), trusted, owner="the policy search")
            n_backtracks += 1
            if n_backtracks > config.max_backtracks:
                break
            # A shorter step along the same gradient stays nearer to what the batch can tell.
            optimizer.param_groups[0]["lr"] *= 0.5
            continue
        n_steps, kl = n_steps + 1, divergence
        entropy = neighbourhoods.entropy(weights)
        if n_steps < config.max_search_steps:
            differentiate(entropy)
    optimizer.param_groups[0]["lr"] = rate
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
