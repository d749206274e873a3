"""Plans rolled out beside uniformly random actions, before they are returned."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rover.data import Buffer
from rover.envs import finite_dynamics
from rover.errors import RoverError, RoverWarning, abridge
from rover.evaluation.returns import played_episodes
from rover.policies import Policy
from rover.solving.experience import Experience
from rover.solving.returns import FunctionReward
from rover.solving.tasks import Reward
from rover.training.environments import evaluation_copy

_STEPS, _EPISODES = 1000, 30
"""Steps of an episode that count, and of all after which no other begins; and most episodes."""

_FEWEST_EPISODES = 3  # episodes that are compared
_LEVEL = 0.01
_SEED = 7  # of the episodes: both play the same ones


def warn_of_targets(buffer: Buffer) -> None:
    """Warn of numbers that never change within an episode, and differ between episodes.

    Args:
        buffer: of observation vectors.

    Warns:
        RoverWarning: a plan on landmarks has no values for a target that the data lacks.
    """
    table = buffer.observations.rows
    is_kept = (table[buffer.inputs] == table[buffer.successors]).all(axis=0)
    differs = (table[buffer.episode_starts] != table[buffer.episode_starts[0]]).any(axis=0)
    targets = np.flatnonzero(is_kept & differs).tolist()
    if targets:
        warnings.warn(
            f"columns {abridge(targets)} of the observations differ between episodes and never "
            "change within one, as a target does: the plan may fail for targets that the data "
            "lacks. Leave them out of the observations (rover.wrappers.GoalObservation does), and "
            "give each as goal=rover.solving.PointGoal(...)",
            RoverWarning,
            stacklevel=3,
        )


def warn_if_worse_than_random(policy: Policy, experience: Experience, reward: Reward) -> None:
    """Warn of a plan that earns less than uniformly random actions.

    Nothing is rolled out where the dynamics are known, where there is no environment to do it in,
    and of rewards that are given as an array.

    Args:
        policy: for one task.
        experience: what it was planned on.
        reward: as of :func:`rover.solve`.

    Warns:
        RoverWarning: by a one-sided test of Welch at the level 1%.
    """
    env = reward if isinstance(reward, gym.Env) else experience.env
    if env is None or not (callable(reward) or env is reward) or finite_dynamics(env) is not None:
        return
    try:
        played: gym.Env[Any, Any] = evaluation_copy(env)
    except RoverError:  # the source's environment may be in the middle of an episode
        return
    if env is not reward:
        assert callable(reward)
        played = FunctionReward(played, reward)
    ours = _returns(played, lambda row: policy.tables(row[None]).mean(axis=0)[0])
    uniform = np.full(policy.n_actions, 1.0 / policy.n_actions)
    random = _returns(played, lambda _: uniform)
    if np.mean(ours) >= np.mean(random):
        return
    errors = [float(np.std(one, ddof=1)) / math.sqrt(len(one)) for one in (ours, random)]
    least = min(len(ours), len(random)) - 1
    quantile = float(stats.t.ppf(1.0 - _LEVEL, least))
    if np.mean(random) - np.mean(ours) > quantile * math.hypot(*errors):
        warnings.warn(
            f"the plan earns less than uniformly random actions: {np.mean(ours):.2f} ± "
            f"{errors[0]:.2f} in {len(ours)} episodes, random actions {np.mean(random):.2f} ± "
            f"{errors[1]:.2f}. Collect more steps; let observations show all that matters, such as "
            "the last few of them (gymnasium.wrappers.FrameStackObservation); or learn the task "
            "(rover.finetune)",
            RoverWarning,
            stacklevel=4,
        )


def _returns(
    env: gym.Env[Any, Any], probs: Callable[[NDArray[Any]], NDArray[np.float64]]
) -> Sequence[float]:
    """Returns of episodes of about a thousand steps together, three at least, each within 1,000."""
    known: dict[bytes, NDArray[np.float64]] = {}  # episodes repeat some of their observations
    rng = np.random.default_rng(_SEED)

    def act(observation: NDArray[Any]) -> int:
        key = observation.tobytes()
        if key not in known:
            known[key] = probs(observation).cumsum()
        cumulative = known[key]
        return int(np.searchsorted(cumulative[:-1], rng.random() * cumulative[-1], "right"))

    returns: list[float] = []
    n_steps = 0
    for episode in played_episodes(env, lambda _: act, seed=_SEED, longest=_STEPS):
        returns.append(episode.earned)
        n_steps += episode.n_steps
        if len(returns) == _EPISODES or (n_steps >= _STEPS and len(returns) >= _FEWEST_EPISODES):
            break
    return returns
