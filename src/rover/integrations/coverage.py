"""Coverage figures in the ``info`` of any learner's environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.data import RunningEpisode
from rover.envs import Spaces, finite_dynamics, horizon_of
from rover.errors import ConfigurationError
from rover.evaluation import CellNet, FiniteEvaluator
from rover.operators.support import FloatArray
from rover.training.environments import discount_of, evaluation_copy
from rover.world.net import Net

# Seed of the uniform actions that a net's unit is taken from: figures of the environment alone.
_SEEDS = 11

ActionProbs = Callable[[NDArray[Any]], FloatArray]
"""Action probabilities (n, A) of observations (n, *shape), one for each state."""


class RecordCoverage(gym.Wrapper[Any, Any, Any, Any]):
    """Record of what was seen so far, in ``info["coverage"]`` at the end of every episode.

        env = RecordCoverage(gymnasium.make("rover/MultiRooms-v0"))
        ...
        *_, info = env.step(action)   # {"steps": 300, "states": 71, "share": 0.65}

    The figures are numbers by name, for ``SummaryWriter.add_scalar``, ``wandb.log`` or whatever a
    learner has. Steps and observations pass unchanged, and no random number of the learner's is
    drawn.

    - ``steps``: of all episodes.
    - ``states``: different observations that were seen, where they are discrete, images, bytes, or
      of known states; ``cells`` of a net for other vectors, in units of the spread
      of 1,000 steps of uniformly random actions (:class:`~rover.evaluation.CellNet`), which are
      made in another instance.
    - ``share``: of the states that can be reached, where the dynamics are known.
    - ``objective``, ``optimality_ratio``: J = Σ_x d(x)² and J/J*, exact, of :attr:`policy`, where
      the dynamics are known and there is one.

    Args:
        env: the environment.
        together_with: another wrapper whose record this one adds to, as in a vector environment of
            one process. The figures then count both.
        policy: action probabilities of the learner's policy as it is when an episode ends; it may
            be set later.
        every: episodes between exact figures of the policy, ≥ 1.
        discount: γ of the occupancy; None: what the environment suggests, or 0.99.

    Attributes:
        policy: as above; None: no J.

    Raises:
        ConfigurationError: `together_with` records another environment.
        UnsupportedSpaceError: spaces that ROVER cannot handle.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        together_with: RecordCoverage | None = None,
        policy: ActionProbs | None = None,
        every: int = 10,
        discount: float | None = None,
    ) -> None:
        super().__init__(env)
        Spaces.of(env)
        if together_with is not None and together_with.observation_space != env.observation_space:
            raise ConfigurationError("together_with records an environment with other observations")
        self.policy = policy
        self._every = every
        gamma = discount_of(env) if discount is None else discount
        self._record: _Record = together_with._record if together_with else _Record(env, gamma)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, whose first observation counts as seen."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._record.see(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make a step; ``info["coverage"]`` has the figures if it ends the episode."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        record = self._record
        record.steps += 1
        record.see(observation)
        if terminated or truncated:
            info["coverage"] = record.figures(self.policy, self._every)
        return observation, reward, bool(terminated), bool(truncated), info


class _Record:
    """Record of one environment, or of several copies of it."""

    def __init__(self, env: gym.Env[Any, Any], discount: float) -> None:
        self.steps = self._episodes = 0
        self._seen: set[bytes | int] = set()
        self._net: Net | None = None
        self._of_policy: dict[str, float] = {}
        self._evaluator: FiniteEvaluator | None = None
        problem, self._spaces = finite_dynamics(env), Spaces.of(env)
        if problem is not None:
            self._reachable = int((problem.dynamics.steps_to_states() >= 0).sum())
            # One evaluator for all episodes: it keeps the optimum, which takes longest.
            self._evaluator = FiniteEvaluator(
                problem, discount=discount, horizon=horizon_of(env), n_episodes=1
            )
        elif self._spaces.dtype.kind == "f":
            self._net, self._unit = _net_of(env)

    def see(self, observation: Any) -> None:
        """Take in an observation."""
        # As it is stored, for wrappers may cast: equal observations have equal bytes.
        row = self._spaces.read(observation, "the environment")
        if self._net is not None:
            self._net.add(row.reshape(1, -1).astype(np.float64) / self._unit)
        else:
            self._seen.add(row.tobytes())

    def figures(self, policy: ActionProbs | None, every: int) -> dict[str, float]:
        """The figures at the end of an episode."""
        self._episodes += 1
        figures: dict[str, float] = {"steps": self.steps}
        if self._net is not None:
            return figures | {"cells": len(self._net)}
        figures["states"] = len(self._seen)
        if self._evaluator is None:
            return figures
        figures["share"] = len(self._seen) / self._reachable
        # Exact figures cost a linear system, so the latest ones stand until `every` episodes on.
        if policy is not None and (self._episodes - 1) % every == 0:
            probs = np.asarray(policy(self._evaluator.problem.observations.copy()), np.float64)
            probs = probs / probs.sum(axis=1, keepdims=True)  # float32 sums to 1 only roughly
            exact = self._evaluator.exact_figures(probs)
            self._of_policy = {name: exact[name] for name in ("objective", "optimality_ratio")}
        return figures | self._of_policy


def _net_of(env: gym.Env[Any, Any]) -> tuple[Net, FloatArray]:
    """An empty net and the unit of each number, from uniformly random actions."""
    # Another instance: what the learner's own draws and visits stays as it is.
    other = evaluation_copy(env)
    rng, n_actions = np.random.default_rng(_SEEDS), Spaces.of(other).n_actions
    visited: list[NDArray[Any]] = []
    while len(visited) < 1000:
        episode = RunningEpisode(other, seed=int(rng.integers(2**31)))
        visited.append(np.ravel(episode.observation))
        ended = False
        while not ended and len(visited) < 1000:
            observation, _, terminated, truncated = episode.step(int(rng.integers(n_actions)))
            visited.append(np.ravel(observation))
            ended = terminated or truncated
    points = np.array(visited, np.float64)
    # Where random actions go sets the scale: a learner that sees ten times as much has many cells.
    net = CellNet(points, rng)
    assert net.radius is not None
    return Net(np.empty((0, points.shape[1])), net.radius), net.scale
