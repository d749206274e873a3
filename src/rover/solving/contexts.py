"""Zero-shot planning for any reward in contextual environments."""

from __future__ import annotations

import numpy as np

from rover.arrays import FloatArray
from rover.envs import GivenEnv
from rover.errors import ConfigurationError
from rover.policies import ContextPolicy
from rover.solving.experience import Experience, Source
from rover.solving.rewards import Reward, reward_task
from rover.solving.solve import RIDGE
from rover.solving.tasks import Goal, goal_tasks
from rover.world.points import state_points


def solve_in_contexts(
    source: Source,
    reward: Reward | None = None,
    *,
    goal: Goal | None = None,
    discount: float = 0.9,
    env: GivenEnv | None = None,
) -> ContextPolicy:
    """Plan for a reward in layouts that were never seen, without a further step.

    The policy adds values of the reward to its exploration values
    (:meth:`~rover.policies.ContextPolicy.with_rewards`): it explores an episode as pretraining's
    does, and goes for the reward where it sees any. Call ``policy.reset()`` when an episode begins.

    Args:
        source: an agent, or a run folder of `rover pretrain`, of a contextual environment.
        reward: as of :func:`rover.solve`, none of them negative.
        goal: an observation, several, or a function of observations: arriving there is worth 1.
        discount: γ in (0, 1) of the regression.
        env: as of :func:`rover.solve`.

    Raises:
        ConfigurationError: a source whose policy is not for such worlds, rewards below 0, a goal
            that was never arrived at, or not one of `reward` and `goal`.
    """
    if (reward is None) == (goal is None):
        raise ConfigurationError("give one of reward= and goal=: what is wanted")
    if not 0.0 < discount < 1.0:
        raise ConfigurationError(f"discount must be in (0, 1), not {discount!r}")
    experience = Experience.of(source, env)
    policy, buffer = experience.policy, experience.buffer
    if not isinstance(policy, ContextPolicy):
        raise ConfigurationError(
            "the source's policy is not for procedurally generated environments: pretrain "
            "with contexts=True, or plan with rover.solve"
        )
    if reward is not None:
        tasks = reward_task(experience, reward)
    else:
        assert goal is not None
        points = state_points(buffer)
        tasks = goal_tasks([goal], points, points.rows_of(RIDGE), experience.env)
    check_rewards(tasks.rewards)
    solved = policy.with_rewards(
        buffer, tasks.rewards[:, 0], tasks.ends[:, 0].astype(np.float64), discount
    )
    solved.details = experience.policy_details(tasks.names, discount)
    return solved


def check_rewards(rewards: FloatArray) -> None:
    """Refuse rewards below 0 with a ConfigurationError."""
    if rewards.min() < 0.0:
        raise ConfigurationError(
            "rewards below 0 cannot be planned for among what an episode has not shown yet: give "
            "rewards of at least 0, such as 1 for what is wanted"
        )
