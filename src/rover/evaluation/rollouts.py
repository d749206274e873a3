"""Coverage where states are continuous, images or unknown: cells of an ε-net, and a k-NN entropy.

Policies are rolled out. In a continuous space nearly every observation is a new one, so counting
different observations says nothing. Counted here are the cells of a net of radius ε that visits
fall into, in the scale of what uniformly random actions visit: each dimension in standard
deviations of those visits, and ε the radius at which they need :data:`N_CELLS` cells. Random
actions are counted on the same net beside every policy, with visits that the net was not made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist
from scipy.special import digamma, gammaln

from rover.evaluation.comparison import mean_interval
from rover.evaluation.optimum import FloatArray

N_CELLS = 50
"""Cells into which a net divides the visits that it is made of."""
MAX_POINTS = 5000
"""Visits of a policy that its cells are counted from; more are drawn from at random."""
MAX_ENTROPY_POINTS = 500
"""Likewise for the entropy: few, so that neighbours are seldom of one stretch of an episode."""
N_NEIGHBOURS = 3
MAX_WIDTH, PROJECTED_WIDTH = 32, 16
"""Observations of more than 32 numbers are projected to 16."""

_SMALLEST_RADIUS = 0.05
_SMALLEST_DISTANCE = 1e-3
_MOST_REPEATED = 0.1


class Projection:
    """Observations as at most 32 numbers each: the space in which visits are compared.

    Vectors of up to 32 numbers and discrete observations stay as they are. Images and longer
    vectors are flattened and projected on 16 random directions, which keeps distances in the mean
    (Johnson & Lindenstrauss 1984) and, unlike learned features, is the same for every agent.

    Args:
        shape: of an observation; () for discrete ones.
        rng: draws the directions.
    """

    def __init__(self, shape: tuple[int, ...], rng: np.random.Generator) -> None:
        width = int(np.prod(shape))
        self._is_discrete = not shape
        self._directions: FloatArray | None = None
        if width > MAX_WIDTH:
            # Scaled so that a projected distance is the root mean square over the numbers.
            self._directions = rng.normal(size=(width, PROJECTED_WIDTH)) / math.sqrt(width)

    def __call__(self, observations: NDArray[Any]) -> NDArray[Any]:
        """(n, d) float64 of observations (n, *shape); discrete ones (n,) as they are."""
        if self._is_discrete:
            return observations
        flat = observations.reshape(len(observations), -1)
        if self._directions is None:
            return flat.astype(np.float64)
        blocks = (flat[start : start + 256] for start in range(0, len(flat), 256))
        return np.concatenate([block @ self._directions for block in blocks])


class CellNet:
    """A net of cells over what uniformly random actions visit, and whatever else is visited.

    Its centres are chosen by farthest-point traversal (Gonzalez 1985): first among the visits of
    random actions until there are :data:`N_CELLS` or every visit is a centre, which sets ε;
    then among the visits of a policy that lie farther than ε from all centres. A cell is what is
    nearest to one centre. Vectors are standardised by the visits of random actions; a number that
    these never change stays as it is. Discrete observations are their own cells.

    Args:
        uniform: (m, d) vectors or (m,) discrete observations visited by random actions, m ≥ 1.
        rng: draws subsets.

    Attributes:
        radius: ε, in standard deviations; None for discrete observations.
    """

    def __init__(self, uniform: NDArray[Any], rng: np.random.Generator) -> None:
        self.radius: float | None = None
        if uniform.ndim == 1:
            return
        spread = uniform.std(axis=0)
        # Relative to the numbers themselves: rounding alone gives constants some spread.
        self._varies = spread > 1e-6 * np.abs(uniform).max(axis=0)
        # No division by nothing: what random actions never change counts in its own unit.
        self._scale = np.where(self._varies, spread, 1.0)
        # Farthest points need all distances to one centre at a time: memory stays linear.
        points = _subset(uniform, MAX_POINTS, rng) / self._scale
        self._centres, radius = _farthest_points(points, points[:1], N_CELLS, 0.0)
        self.radius = max(radius, _SMALLEST_RADIUS)

    def cells_of(self, observations: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
        """The cell of each of `observations`, or of 5,000 drawn with `rng` if there are more.

        Cells beyond those of random actions are numbered anew in each call.
        """
        if self.radius is None:
            return np.asarray(np.unique(observations, return_inverse=True)[1], np.int64)
        points = _subset(observations, MAX_POINTS, rng) / self._scale
        centres, _ = _farthest_points(points, self._centres, math.inf, self.radius)
        return np.asarray(cdist(points, centres).argmin(axis=1), np.int64)

    def entropy(self, observations: NDArray[Any], rng: np.random.Generator) -> float | None:
        """Entropy of a policy's visits, in nats.

        It is Kozachenko and Leonenko's estimate (1987; Kraskov et al. 2004, eq. 20) from
        the distances to third neighbours, in the standardised dimensions that random actions
        change. It is biased by the budget alike for every policy, so its differences count.

        Args:
            observations: (n, d) or (n,), of which at most 500 are taken.
            rng: draws them.

        Returns:
            None for discrete observations, for fewer than four, where random actions change
            nothing, and where visits repeat, so that they have no density: more than one in ten
            is no farther than a thousandth from its third neighbour.
        """
        if self.radius is None or len(observations) <= N_NEIGHBOURS or not self._varies.any():
            return None
        points = _subset(observations, MAX_ENTROPY_POINTS, rng) / self._scale
        points = points[:, self._varies]
        n, width = points.shape
        distances = np.ravel(KDTree(points).query(points, k=[N_NEIGHBOURS + 1])[0])
        if np.mean(distances <= _SMALLEST_DISTANCE) > _MOST_REPEATED:
            return None
        log_ball = 0.5 * width * math.log(math.pi) - gammaln(0.5 * width + 1.0)
        # Clipped, since a single repeated visit would make the mean −∞.
        logs = np.log(np.maximum(distances, _SMALLEST_DISTANCE))
        return float(digamma(n) - digamma(N_NEIGHBOURS) + log_ball + width * logs.mean())


def _subset(rows: NDArray[Any], most: int, rng: np.random.Generator) -> NDArray[Any]:
    if len(rows) <= most:
        return rows
    return rows[np.sort(rng.choice(len(rows), most, replace=False))]


def _farthest_points(
    points: FloatArray, centres: FloatArray, most: float, radius: float
) -> tuple[FloatArray, float]:
    """Add the farthest of `points` (n, d) to `centres` until none is farther than `radius`.

    Returns:
        All centres, at most `most` if fewer were given; the largest distance that is left.
    """
    distances, chosen = cdist(points, centres).min(axis=1), list(centres)
    while distances.max() > radius and len(chosen) < most:
        chosen.append(points[distances.argmax()])
        np.minimum(distances, np.linalg.norm(points - chosen[-1], axis=1), out=distances)
    return np.array(chosen), float(distances.max())


def unseen_mass(labels: NDArray[Any]) -> float:
    """Probability that the next of independent draws is none of those seen, in [0, 1].

    Good and Turing's estimate (Good 1953): draws seen once over all draws.

    Args:
        labels: (n,) what was drawn, n ≥ 1.
    """
    counts = np.unique(labels, return_counts=True)[1]
    return float(np.count_nonzero(counts == 1) / len(labels))


MAX_ROLLOUT_STEPS = 1000
MAX_RECORDED_OBSERVATIONS = 100_000
LEVEL = 0.01
"""Probability of calling a policy worse than random actions that is as good."""
MIN_EPISODES = 2
"""Episodes of a measurement, whatever its budget of steps."""

Probs = Callable[[NDArray[Any]], NDArray[np.float64]]
"""Action probabilities (n, A) of observations (n, *shape)."""


def _roll_out(
    env: gym.Env[Any, Any],
    sample_component: Callable[[np.random.Generator], Probs],
    *,
    horizon: int,
    rng: np.random.Generator,
) -> tuple[NDArray[Any], bool]:
    """Follow a policy for an episode.

    Args:
        env: the environment; its reward is not looked at.
        sample_component: draws the stationary policy that an episode follows: a function of
            observations (n, *shape) to action probabilities (n, A).
        horizon: longest episode.
        rng: draws the actions and the seed of the reset.

    Returns:
        Observations (T + 1, *shape) of T steps, and whether it ended by itself rather than by the
        horizon.
    """
    from rover.data import RunningEpisode  # brings torch, which the other figures do without

    running = RunningEpisode(env, seed=int(rng.integers(2**31)))
    current, probs, terminated = running.observation, sample_component(rng), False
    observations = [current]
    for _ in range(horizon):
        cumulative = probs(np.asarray(current)[None])[0].cumsum()
        # Sums of probabilities miss 1 by rounding; the draw is taken from what they sum to.
        draw = rng.random() * cumulative[-1]
        action = int(np.searchsorted(cumulative[:-1], draw, side="right"))
        current, _, terminated, truncated = running.step(action)
        observations.append(current)
        if terminated or truncated:
            break
    return np.array(observations), terminated


class RolloutEvaluator:
    """Measures policies by rolling them out, where the states are unknown.

    Args:
        env: the environment, which is stepped; its reward is not looked at.
        n_actions: A.
        horizon: longest episode.
        n_episodes: episodes of a set, ≥ 2.
        max_steps: environment steps after which a set of episodes ends with its current one, if
            that is not its first; None: never.
        n_sets: sets of episodes of a measurement, ≥ 1, whose figures are averaged.
        net_of: (n, *shape) observations that the net is made of, n ≥ 1; None: visits of random
            actions, which are rolled out for it. With it no set exceeds `max_steps`: its last
            episode is broken off.
        rng: draws the episodes of random actions: a set for the net, and those for their figures.

    Attributes:
        env: the environment.
        n_steps, reference_steps: environment steps that it has made, and those of random actions.
        episodes: observations (T + 1, *shape) of each episode of the last measurement.
        uniform_episodes: of that of random actions.
        project: makes the vectors of observations that the net is for.
        net: the cells that visits are counted in.
        uniform: the figures of uniformly random actions.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        n_actions: int,
        *,
        horizon: int,
        n_episodes: int,
        max_steps: int | None = None,
        n_sets: int = 1,
        net_of: NDArray[Any] | None = None,
        rng: np.random.Generator,
    ) -> None:
        self.env = env
        self.n_steps = 0
        self.episodes: list[NDArray[Any]] = []
        self._is_strict = net_of is not None
        self._horizon = horizon
        self._n_episodes = n_episodes
        self._max_steps = max_steps
        self._n_sets = n_sets

        def uniform(_: np.random.Generator) -> Probs:
            return lambda seen: np.full((len(seen), n_actions), 1.0 / n_actions)

        self.project = Projection(env.observation_space.shape or (), rng)
        # Visits that the net is made of lie in it by construction: the reference takes others.
        seen = self._visits(uniform, rng)[0] if net_of is None else self.project(net_of)
        self.net = CellNet(seen, rng)
        self.uniform = self.measure(uniform, rng)
        self.reference_steps, self.uniform_episodes = self.n_steps, self.episodes

    def measure(
        self,
        sample_component: Callable[[np.random.Generator], Probs],
        rng: np.random.Generator,
        *,
        n_sets: int | None = None,
    ) -> dict[str, Any]:
        """Roll a policy out and measure it.

        Args:
            sample_component: draws the stationary policy that an episode follows: a function of
                observations (n, *shape) to action probabilities (n, A).
            rng: draws the actions, the seeds of the resets and the subsets of the visits.
            n_sets: sets of episodes; None: as many as for random actions.

        Returns:
            ``cells`` of the net that a set of its episodes visits; ``knn_entropy`` of such visits
            in nats, None where it cannot be told (:meth:`CellNet.entropy`): means over the sets,
            with their standard errors ``cells_error`` and ``knn_entropy_error``, None of a single
            set; ``episode_length`` in environment steps, as of
            :func:`~rover.evaluation.mean_interval`; ``terminated``, the share of the episodes that
            ended by themselves rather than by the horizon; and ``n_steps``, those of all episodes.
        """
        cells: list[float | None] = []
        entropies: list[float | None] = []
        lengths: list[int] = []
        ends: list[bool] = []
        self.episodes = []
        for _ in range(self._n_sets if n_sets is None else n_sets):
            visits, its_lengths, its_ends = self._visits(sample_component, rng)
            cells.append(len(np.unique(self.net.cells_of(visits, rng))))
            entropies.append(self.net.entropy(visits, rng))
            lengths, ends = lengths + its_lengths, ends + its_ends
        return {
            **_mean_and_error("cells", cells),
            **_mean_and_error("knn_entropy", entropies),
            "episode_length": mean_interval(np.array(lengths)),
            "terminated": float(np.mean(ends)),
            "n_steps": sum(lengths),
        }

    def report(
        self,
        sample_component: Callable[[np.random.Generator], Probs],
        rng: np.random.Generator,
        *,
        n_sets: int | None = None,
    ) -> tuple[dict[str, Any], int]:
        """Cells and entropy of a policy and of random actions, and the steps that this took."""
        measured = self.measure(sample_component, rng, n_sets=n_sets)
        figures = {"cell_radius": self.net.radius}
        for name in ("cells", "cells_error", "knn_entropy", "knn_entropy_error"):
            figures |= {name: measured[name], f"uniform_{name}": self.uniform[name]}
        return figures, measured["n_steps"]

    def _visits(
        self, sample_component: Callable[[np.random.Generator], Probs], rng: np.random.Generator
    ) -> tuple[NDArray[Any], list[int], list[bool]]:
        """Projected observations of all episodes, and the lengths and ends of each."""
        visits: list[NDArray[Any]] = []
        lengths: list[int] = []
        ends: list[bool] = []
        while len(visits) < self._n_episodes:
            longest = self._horizon
            if self._is_strict and self._max_steps is not None:
                longest = min(longest, self._max_steps - sum(lengths))
            passed, ended = _roll_out(self.env, sample_component, horizon=longest, rng=rng)
            self.episodes.append(passed)
            visits.append(self.project(passed))
            lengths.append(len(passed) - 1)
            ends.append(ended)
            # At least two episodes, so that a set is not one lucky start.
            enough = self._max_steps is not None and sum(lengths) >= self._max_steps
            if enough and (self._is_strict or len(visits) >= MIN_EPISODES):
                break
        self.n_steps += sum(lengths)
        return np.concatenate(visits), lengths, ends


def _mean_and_error(name: str, values: Sequence[float | None]) -> dict[str, float | None]:
    """The mean of what was measured in each set under `name`, and its standard error."""
    numbers = [value for value in values if value is not None]
    mean = float(np.mean(numbers)) if numbers else None
    error = float(np.std(numbers, ddof=1)) / math.sqrt(len(numbers)) if len(numbers) > 1 else None
    return {name: mean, f"{name}_error": error}


def covers_less(
    cells: float, error: float, uniform_cells: float, uniform_error: float, *, n_sets: int
) -> bool:
    """Evidence that a policy visits fewer cells than uniformly random actions do.

    Welch's test of the means over `n_sets` sets of episodes of each, one-sided, at the level 1%,
    with the fewest degrees of freedom that it can have.

    Args:
        cells, uniform_cells: mean cells of the policy and of random actions.
        error, uniform_error: their standard errors.
        n_sets: sets of episodes of each, ≥ 2.
    """
    # n_sets − 1 is the least that Welch and Satterthwaite allow: the test errs to silence.
    quantile = float(stats.t.ppf(1.0 - LEVEL, n_sets - 1))
    return uniform_cells - cells > quantile * math.hypot(error, uniform_error)


def episode_coverage(
    env: gym.Env[Any, Any],
    sample_component: Callable[[np.random.Generator], Probs],
    *,
    horizon: int,
    max_steps: int,
    seed: Sequence[int],
) -> dict[str, Any]:
    """Coverage within an episode, where every episode has a context of its own.

    Policies that are given the same `seed` meet the same contexts, as far as they come.

    Args:
        env: the environment; its reward is not looked at.
        sample_component: draws the policy that an episode follows, as of
            :meth:`RolloutEvaluator.measure`.
        horizon: longest episode.
        max_steps: environment steps that are not exceeded, unless a single episode does.
        seed: of the resets and actions, with the number of the episode.

    Returns:
        ``episode_observations``, distinct ones in the mean over episodes; ``episode_objective``,
        the mean of ‖μ̂‖², the sum of the squared shares of an episode's steps that its distinct
        observations have; ``episodes``, and ``n_steps`` of them all.
    """
    found: list[int] = []
    objectives: list[float] = []
    n_steps = 0
    while not found or n_steps + horizon <= max_steps:
        rng = np.random.default_rng([*seed, len(found)])
        passed, _ = _roll_out(env, sample_component, horizon=horizon, rng=rng)
        flat = np.ascontiguousarray(passed.reshape(len(passed), -1))
        visits = np.unique(flat, axis=0, return_counts=True)[1] / len(flat)
        found.append(len(visits))
        objectives.append(float(np.square(visits).sum()))
        n_steps += len(passed) - 1
    return {
        "episode_observations": float(np.mean(found)),
        "episode_objective": float(np.mean(objectives)),
        "episodes": len(found),
        "n_steps": n_steps,
    }


def record_vectors(
    env: gym.Env[Any, Any] | None,
    sample_component: Callable[[np.random.Generator], Probs],
    observations: NDArray[Any],
    visits: NDArray[np.int64],
    *,
    horizon: int,
    n_episodes: int,
    seed: int,
) -> dict[str, NDArray[Any]]:
    """Arrays for an environment with vector observations and unknown states.

    Args:
        env: a fresh copy of the environment to roll the policy out in, or None for no roll-outs.
        sample_component: draws the stationary policy that an episode follows: a function of
            observations (n, d) to action probabilities (n, A).
        observations: (N, d) distinct observations of the buffer.
        visits: (N,) how often each was arrived in.
        horizon: longest roll-out.
        n_episodes: roll-outs.
        seed: of the roll-outs.

    Returns:
        observations (N, d) and visits (N,), thinned evenly to 100,000; rollouts (E, T + 1, d), NaN
        after the end of an episode, if `env` is given.
    """
    n_kept = min(len(observations), MAX_RECORDED_OBSERVATIONS)
    # Evenly over the order of first visits, which pictures show as colours.
    keep = np.unique(np.linspace(0, len(observations) - 1, n_kept).astype(np.int64))
    arrays: dict[str, NDArray[Any]] = {"observations": observations[keep], "visits": visits[keep]}
    if env is None:
        return arrays
    rng, steps = np.random.default_rng(seed), min(horizon, MAX_ROLLOUT_STEPS)
    passed = (_roll_out(env, sample_component, horizon=steps, rng=rng) for _ in range(n_episodes))
    return arrays | {"rollouts": stack_episodes([episode for episode, _ in passed], steps)}


def stack_episodes(episodes: Sequence[NDArray[Any]], n_steps: int) -> FloatArray:
    """Episodes as one array (E, n_steps + 1, d), NaN after the end of each.

    Args:
        episodes: observations (T + 1, d) of each, E ≥ 1 and T ≤ `n_steps`.
        n_steps: steps of the longest that there could be.
    """
    stacked = np.full((len(episodes), n_steps + 1, episodes[0].shape[1]), np.nan)
    for row, episode in zip(stacked, episodes, strict=True):
        row[: len(episode)] = episode
    return stacked
