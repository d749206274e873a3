"""Measurements of policies by rolling them out, beside uniformly random actions; cells of an ε-net.

In a continuous space nearly every observation is new, so visited cells of a net of radius ε are
counted instead. Their scale comes from the visits of uniformly random actions: each dimension is in
standard deviations of these visits, and ε is the radius at which they need 50 cells. Random actions
are counted on the same net as every policy, with visits that the net was not made of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import scipy  # its parts are imported on first use
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from rover.arrays import FloatArray, blocks
from rover.data import RunningEpisode
from rover.envs import Spaces
from rover.evaluation.finite import mean_interval

MAX_ROLLOUT_STEPS = 1000

# Several sets, since the standard error of a coverage is only seen between sets.
MEASURED_SETS = 5
"""Sets of roll-outs of random actions and of the final policy of a run."""

# Episodes of a set at least, so that it is not one lucky start.
_MIN_EPISODES = 2

# Cells into which a net divides the visits that it is made of.
_N_CELLS = 50

MAX_POINTS = 5000
"""Visits of a policy that its cells are counted from; more are drawn from at random."""

_MAX_WIDTH, _PROJECTED_WIDTH = 32, 16
# In standard deviations: what random actions hardly leave would be divided into rounding errors.
_SMALLEST_RADIUS = 0.05

Probs = Callable[[NDArray[Any]], NDArray[np.float64]]
"""Action probabilities (n, A) of observations (n, *shape)."""

SampleComponent = Callable[[np.random.Generator], Probs]
"""Draws the stationary policy that an episode follows."""

Episode = tuple[NDArray[Any], bool]
"""Observations (T + 1, *shape), and whether it ended by itself rather than by the horizon."""


class Projection:
    """Observations as at most 32 numbers each: the space in which visits are compared.

    Vectors of up to 32 numbers and discrete observations stay as they are. Images and longer
    vectors are projected on 16 random directions drawn by `rng`, which keeps distances in the mean
    (Johnson & Lindenstrauss 1984) and, unlike learned features, is the same for every agent.
    """

    def __init__(self, shape: tuple[int, ...], rng: np.random.Generator) -> None:
        width = int(np.prod(shape))
        self._is_discrete = not shape
        self._directions: FloatArray | None = None
        if width > _MAX_WIDTH:
            # Scaled so that a projected distance is the root mean square over the numbers.
            self._directions = rng.normal(size=(width, _PROJECTED_WIDTH)) / math.sqrt(width)

    def __call__(self, observations: NDArray[Any]) -> NDArray[Any]:
        """(n, d) float64 of observations (n, *shape); discrete ones (n,) as they are."""
        if self._is_discrete:
            return observations
        flat = observations.reshape(len(observations), -1)
        if self._directions is None:
            return flat.astype(np.float64)
        return np.concatenate([flat[rows] @ self._directions for rows in blocks(len(flat))])


class CellNet:
    """A net of cells over what uniformly random actions visit, and whatever else is visited.

    Its centres are chosen by farthest-point traversal (Gonzalez 1985): first among the visits of
    random actions until there are 50 or every visit is a centre, which sets ε;
    then among the visits of a policy that lie farther than ε from all centres. A cell is what is
    nearest to one centre. Vectors are standardised by the visits of random actions; a number that
    these never change stays as it is. Discrete observations are their own cells.

    Args:
        uniform: (m, d) vectors or (m,) discrete observations visited by random actions, m ≥ 1.
        rng: draws subsets.

    Attributes:
        radius: ε, in standard deviations; None for discrete observations.
        scale: (d,) the unit of each number of a vector.
    """

    def __init__(self, uniform: NDArray[Any], rng: np.random.Generator) -> None:
        self.radius: float | None = None
        if uniform.ndim == 1:
            return
        spread = uniform.std(axis=0)
        # Relative to the numbers themselves: rounding alone gives constants some spread.
        varies = spread > 1e-6 * np.abs(uniform).max(axis=0)
        # No division by nothing: what random actions never change counts in its own unit.
        self.scale = np.where(varies, spread, 1.0)
        # Farthest points need all distances to one centre at a time: memory stays linear.
        points = _subset(uniform, MAX_POINTS, rng) / self.scale
        self._centres, radius = _farthest_points(points, points[:1], _N_CELLS, 0.0)
        self.radius = max(radius, _SMALLEST_RADIUS)

    def cells_of(self, observations: NDArray[Any], rng: np.random.Generator) -> NDArray[np.int64]:
        """The cell of each of `observations`, or of 5,000 drawn with `rng` if there are more.

        Cells outside the random actions' net are numbered anew in each call.
        """
        if self.radius is None:
            return np.asarray(np.unique(observations, return_inverse=True)[1], np.int64)
        points = _subset(observations, MAX_POINTS, rng) / self.scale
        # New centres only where the net of random actions has none: what both visit falls into the
        # same cells.
        centres, _ = _farthest_points(points, self._centres, math.inf, self.radius)
        return np.asarray(cdist(points, centres).argmin(axis=1), np.int64)


def _subset(rows: NDArray[Any], most: int, rng: np.random.Generator) -> NDArray[Any]:
    if len(rows) <= most:
        return rows
    return rows[np.sort(rng.choice(len(rows), most, replace=False))]


def _farthest_points(
    points: FloatArray, centres: FloatArray, most: float, radius: float
) -> tuple[FloatArray, float]:
    """Add the farthest of `points` (n, d) to `centres` until there are `most` or none is farther
    than `radius`; all centres, and the largest distance that is left."""
    distances, chosen = cdist(points, centres).min(axis=1), list(centres)
    while distances.max() > radius and len(chosen) < most:
        chosen.append(points[distances.argmax()])
        np.minimum(distances, np.linalg.norm(points - chosen[-1], axis=1), out=distances)
    return np.array(chosen), float(distances.max())


def roll_out(
    env: gym.Env[Any, Any],
    sample_component: SampleComponent,
    *,
    horizon: int,
    rng: np.random.Generator,
) -> Episode:
    """Play an episode of a policy, cut after `horizon` steps; `rng` draws its actions and the seed
    of its reset."""
    running = RunningEpisode(env, seed=int(rng.integers(2**31)))
    current, probs, terminated = running.observation, sample_component(rng), False
    observations = [current]
    for _ in range(horizon):
        # One uniform number a step, whatever the policy: equal seeds give comparable episodes. Sums
        # of probabilities miss 1 by rounding; the draw is taken from what they sum to.
        cumulative = probs(np.asarray(current)[None])[0].cumsum()
        drawn = rng.random() * cumulative[-1]
        action = int(np.searchsorted(cumulative[:-1], drawn, side="right"))
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
        rng: draws the episodes of random actions: a set for the net, and those for their figures.

    Attributes:
        net: the cells that visits are counted in.
        project: makes the vectors of observations that the net is for.
        uniform: the figures of uniformly random actions, as of :meth:`measure`.
        reference_steps: environment steps of random actions.
        episodes: observations (T + 1, *shape) of each episode of the last measurement.
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
        rng: np.random.Generator,
    ) -> None:
        self._env, self._horizon = env, horizon
        self._n_episodes, self._n_sets = n_episodes, n_sets
        self._max_steps = math.inf if max_steps is None else max_steps

        def uniform(_: np.random.Generator) -> Probs:
            return lambda seen: np.full((len(seen), n_actions), 1.0 / n_actions)

        self.project = Projection(Spaces.of(env).shape, rng)
        # Visits that the net is made of lie in it by construction: the reference takes others.
        episodes = self._roll_out_set(uniform, rng)
        visits = self._visits(episodes)
        self.net = CellNet(visits, rng)
        self.uniform = self.measure(uniform, rng)
        self.reference_steps = len(visits) - len(episodes) + self.uniform["n_steps"]

    def measure(
        self,
        sample_component: SampleComponent,
        rng: np.random.Generator,
        *,
        n_sets: int | None = None,
    ) -> dict[str, Any]:
        """Roll a policy out and measure it.

        Args:
            sample_component: draws the stationary policy that an episode follows.
            rng: draws the actions, the seeds of the resets and the subsets of the visits.
            n_sets: sets of episodes; None: as many as for random actions.

        Returns:
            ``cells`` of the net that a set of its episodes visits, the mean over the sets, and the
            standard error ``cells_error``, None of a single set; ``episode_length`` in environment
            steps, as of :func:`~rover.evaluation.mean_interval`; ``terminated``, the share of the
            episodes that ended by themselves rather than by the horizon; and ``n_steps`` of all
            episodes.
        """
        cells: list[int] = []
        episodes: list[Episode] = []
        for _ in range(self._n_sets if n_sets is None else n_sets):
            latest = self._roll_out_set(sample_component, rng)
            cells.append(len(np.unique(self.net.cells_of(self._visits(latest), rng))))
            episodes += latest
        self.episodes = [seen for seen, _ in episodes]
        # An episode of T steps shows T + 1 observations.
        lengths = np.array([len(seen) - 1 for seen in self.episodes])
        return {
            "cells": float(np.mean(cells)),
            "cells_error": float(scipy.stats.sem(cells)) if len(cells) > 1 else None,
            "episode_length": mean_interval(lengths),
            "terminated": float(np.mean([ended for _, ended in episodes])),
            "n_steps": int(lengths.sum()),
        }

    def _roll_out_set(
        self, sample_component: SampleComponent, rng: np.random.Generator
    ) -> list[Episode]:
        """A set of episodes, at most as many as `n_episodes` and about `max_steps` steps."""
        episodes: list[Episode] = []
        n_steps = 0
        # Ends after an episode and not within it: half of one would be counted as a short one.
        while len(episodes) < _MIN_EPISODES or (
            n_steps < self._max_steps and len(episodes) < self._n_episodes
        ):
            episodes.append(roll_out(self._env, sample_component, horizon=self._horizon, rng=rng))
            n_steps += len(episodes[-1][0]) - 1
        return episodes

    def _visits(self, episodes: Sequence[Episode]) -> NDArray[Any]:
        return np.concatenate([self.project(seen) for seen, _ in episodes])


def episode_coverage(
    env: gym.Env[Any, Any],
    sample_component: SampleComponent,
    *,
    horizon: int,
    max_steps: int,
    seed: Sequence[int],
) -> dict[str, Any]:
    """Coverage within an episode, where every episode has a context of its own.

    Policies with the same `seed` meet the same contexts. No more than `max_steps` environment steps
    are made, unless a single episode does.

    Returns:
        ``episode_observations``, distinct ones in the mean over episodes; ``episode_objective``,
        the mean of ‖μ̂‖², the sum of the squared shares of an episode's steps that its distinct
        observations have; and ``n_steps`` of all episodes.
    """
    n_distinct: list[int] = []
    objectives: list[float] = []
    n_steps = 0
    while not n_distinct or n_steps + horizon <= max_steps:
        # By the episode's number, so that policies meet the same contexts however long their
        # episodes last.
        rng = np.random.default_rng([*seed, len(n_distinct)])
        seen, _ = roll_out(env, sample_component, horizon=horizon, rng=rng)
        flat = np.ascontiguousarray(seen.reshape(len(seen), -1))
        # Observations are compared as they are: within an episode they are states to the agent.
        shares = np.unique(flat, axis=0, return_counts=True)[1] / len(flat)
        n_distinct.append(len(shares))
        objectives.append(float(np.square(shares).sum()))
        n_steps += len(seen) - 1
    return {
        "episode_observations": float(np.mean(n_distinct)),
        "episode_objective": float(np.mean(objectives)),
        "n_steps": n_steps,
    }
