"""Zero-shot planning for any reward in contextual environments."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from rover.contexts.exploration_values import ridge_inverse
from rover.coverage.contexts import EXPLORATION_RIDGE
from rover.data import Buffer
from rover.errors import ConfigurationError
from rover.operators.support import FloatArray
from rover.planning.outcomes import state_model
from rover.policies import ContextPolicy
from rover.solving.experience import Experience, Source
from rover.solving.solve import RIDGE
from rover.solving.tasks import Goal, GoalFinder, Reward, task_rewards

_REWARD_SWEEPS = 30
_LARGEST_VALUE = 3.0
"""Value of the largest reward, where exploration values are 1 to 3."""


def solve_in_contexts(
    source: Source,
    reward: Reward | None = None,
    *,
    goal: Goal | None = None,
    discount: float = 0.9,
    env: gym.Env[object, object] | None = None,
) -> ContextPolicy:
    """Plan for a reward in layouts that were never seen, without a further step.

    The reward is regressed on what was seen, by fitted value iteration with the features of
    exploration values, Q_a(x) = φᵀ u_a, and added to these: the policy explores an episode as
    pretraining's does, and goes for the reward where it sees any. Call ``policy.reset()`` when an
    episode begins.

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
    model = state_model(buffer, ridge=RIDGE)
    if reward is not None:
        tasks = task_rewards(experience, model, reward)
    else:
        assert goal is not None
        tasks = GoalFinder(buffer, model, experience.env).rewards([goal])
    check_rewards(tasks.rewards)
    solved = reward_policy(policy, buffer, tasks.rewards[:, 0], tasks.ends[:, 0], discount)
    solved.details = experience.policy_details(tasks.names, discount)
    return solved


def check_rewards(rewards: FloatArray) -> None:
    """Refuse rewards below 0 with a ConfigurationError."""
    if rewards.min() < 0.0:
        raise ConfigurationError(
            "rewards below 0 cannot be planned for among what an episode has not shown yet: give "
            "rewards of at least 0, such as 1 for what is wanted"
        )


def reward_policy(
    policy: ContextPolicy, buffer: Buffer, earned: FloatArray, ends: FloatArray, discount: float
) -> ContextPolicy:
    """A policy with a memory that heads for a reward, too, by fitted value iteration.

    Args:
        policy: of pretraining, with features and exploration values.
        buffer: transitions; the regression uses the first n ≥ 1.
        earned: their rewards (n,), at least 0 and not all 0.
        ends: (n,) 1 where the task ends, else 0.
        discount: γ in (0, 1).
    """
    rewards = earned.astype(np.float32)
    goes_on = (discount * (1.0 - ends)).astype(np.float32)
    actions, inputs, successors = (
        column[: len(earned)] for column in (buffer.actions, buffer.inputs, buffer.successors)
    )
    # No more rows than these transitions have: a product's last bits may depend on its size.
    n_observations = 1 + int(max(inputs.max(), successors.max()))
    features = policy.features(buffer.observations.rows[:n_observations])
    weights = np.zeros((features.shape[1], buffer.n_actions), np.float32)
    rows = [np.flatnonzero(actions == action) for action in range(buffer.n_actions)]
    begins = [features[inputs[mine]] for mine in rows]
    # Once: sweeps change the targets of the regression and not its inputs.
    inverses = [ridge_inverse(phi, EXPLORATION_RIDGE) for phi in begins]
    for _ in range(_REWARD_SWEEPS):
        # Never below 0: where nothing is predicted the exploration value decides alone.
        values = np.maximum((features @ weights).max(axis=1), 0.0)
        targets = rewards + goes_on * values[successors]
        for action, (mine, phi, inverse) in enumerate(zip(rows, begins, inverses, strict=True)):
            weights[:, action] = inverse @ (phi.T @ targets[mine])
    # In units of the largest value, so that a reward that is paid again and again counts no more.
    return policy.with_values(
        np.float32(_LARGEST_VALUE / max(float(targets.max()), 1e-6)) * weights
    )
