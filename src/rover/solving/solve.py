"""Any reward at first sight: from what pretraining stored to a policy, without a further step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree

from rover.coverage.exploration import states_repeat
from rover.data import Buffer
from rover.envs import make_env
from rover.envs.registration import known_id
from rover.errors import ConfigurationError
from rover.features import Encoder
from rover.operators.support import FloatArray
from rover.policies import CoveragePolicy, Policy, ValuePolicy, load_policy
from rover.solving.model import NEIGHBOURS, OutcomeModel, net_model, state_model
from rover.solving.tasks import (
    Goal,
    GoalFinder,
    Reward,
    TaskRewards,
    task_rewards,
)
from rover.solving.values import check_discount, optimal_values, policy_values, worst_value
from rover.training.agent import Agent
from rover.training.run_folder import POLICY_FILE, finished_file, load_run_buffer, read_run_config

DISCOUNT = 0.99
VARIANCE_RIDGE = 0.0

_WIDTH, _PROJECTED_WIDTH = 64, 8

Source = Agent[Any] | Buffer | str | Path
"""What pretraining left: an agent, its run folder, or its buffer."""


@dataclass(frozen=True)
class _Data:
    """What is planned on: the transitions, and what is known of where they come from."""

    buffer: Buffer
    policy: Policy | None = None
    env: gym.Env[Any, Any] | None = None
    seed: int | None = None

    @staticmethod
    def of(source: Source, env: gym.Env[Any, Any] | None) -> _Data:
        if isinstance(source, Buffer):
            return _Data(source, env=env)
        if isinstance(source, Agent):
            return _Data(source.buffer, source.policy, env or source.env, source.seed)
        if not isinstance(source, str | Path):
            raise ConfigurationError(
                f"a {type(source).__name__} holds no transitions to plan on: give an agent, a run "
                "folder of `rover pretrain`, or a buffer (a policy alone says nothing of where "
                "actions lead)"
            )
        about = read_run_config(source, kind="pretrain")
        if env is None and about.env_id is not None:
            env = make_env(known_id(about.env_id), about.env_kwargs)
        policy = load_policy(finished_file(source, POLICY_FILE))
        return _Data(load_run_buffer(source), policy, env, about.seed)


@dataclass(frozen=True)
class _Planned:
    """A model, and how its points are made of observations."""

    model: OutcomeModel
    points: FloatArray  # (N, z) of the table
    encoder: Encoder | None

    @property
    def reach(self) -> float:
        """Distance to the nearest place beyond which the data says nothing."""
        if not self.model.exact:
            return math.inf
        if len(self.points) < 2:
            return 1e-6
        apart, _ = KDTree(self.points).query(self.points, k=[2])
        return float(np.min(apart)) / 2.0


def outcome_model(
    source: Source, *, variance_ridge: float = VARIANCE_RIDGE, env: gym.Env[Any, Any] | None = None
) -> OutcomeModel:
    """The model that :func:`solve` plans on.

    Args:
        source: an agent, a run folder, or a buffer.
        variance_ridge: as of :func:`solve`.
        env: as of :func:`solve`.
    """
    return _plan_on(_Data.of(source, env), variance_ridge).model


def _plan_on(data: _Data, variance_ridge: float) -> _Planned:
    """The model of the states themselves where they repeat, else one on a net."""
    buffer = data.buffer
    if len(buffer) == 0:
        raise ConfigurationError("there is no transition to plan on: the buffer is empty")
    table, encoder = buffer.observations.rows, None
    exact = states_repeat(buffer)
    if exact or table.ndim == 2:
        features = table.reshape(len(table), -1)
    else:
        policy = data.policy
        if not isinstance(policy, CoveragePolicy):
            raise ConfigurationError(
                "images that do not repeat are compared by a representation, which this source "
                "does not have: give an agent or a run of ROVER"
            )
        encoder = policy.encoder
        features = encoder.features(table)
    if not exact:
        features = features.astype(np.float64)
        model = net_model(buffer, features)
        return _Planned(model, features @ model.projection, encoder)
    width = features.shape[1]
    if width > _WIDTH:  # a few random numbers tell images apart as well as all of them
        generator = torch.Generator().manual_seed(0)
        projection = torch.randn(width, _PROJECTED_WIDTH, generator=generator).double().numpy()
    else:
        projection = np.eye(width)
    blocks = (features[first : first + 256] for first in range(0, len(features), 256))
    points = np.concatenate([block.astype(np.float64) @ projection for block in blocks])
    model = state_model(buffer, points, projection, variance_ridge=variance_ridge)
    return _Planned(model, points, None)


def solve(
    source: Source,
    reward: Reward | None = None,
    *,
    goal: Goal | None = None,
    goals: str | Sequence[Goal] | None = None,
    discount: float = DISCOUNT,
    temperature: float = 0.0,
    sink_value: float | None = None,
    variance_ridge: float = VARIANCE_RIDGE,
    env: gym.Env[Any, Any] | None = None,
) -> ValuePolicy:
    """Plan for a reward on what pretraining stored, without a further step.

    Exactly one of `reward`, `goal` and `goals` says what is wanted. Where states repeat the plan is
    exact for the transitions that were seen; where they do not it is made on a net of the visited
    places. What was never tried leads to the sink.

    Args:
        source: an agent, a run folder of `rover pretrain`, or a buffer, of any agent.
        reward: a function of (observations (n, *shape), actions (n,), next observations) that
            returns rewards (n,), or rewards (n,) and terminated (n,); an array with one number for
            each transition; or an environment, for its own reward.
        goal: a named goal or a cell (x, y) of a grid world, an observation (*shape), several
            (m, *shape) of which any will do, or a function of observations that returns bool (n,).
            Reaching it is worth 1 and ends the task.
        goals: several goals, one policy each: ``"all"`` that were ever arrived at, ``"named"``, or
            a sequence. The components of the policy, in this order.
        discount: γ in (0, 1) per environment step.
        temperature: 0 for the best action, else action probabilities are softmax(Q / temperature).
        sink_value: what leads where the data says nothing is worth; None: the worst that the
            rewards can add up to, so that plans keep to what was seen. Larger values make plans try
            what was not.
        variance_ridge: λ per unit of the outcomes' variance: a pair seen n times leads to the sink
            with probability λ / (n + λ). For environments whose outcomes are random.
        env: the environment, for goals by name or cell; None: the source's own.

    Returns:
        The policy: `probs`, `act`, `value`, `action_values`, `save`.

    Raises:
        ConfigurationError: a goal or reward that the data says nothing of, a source without
            transitions, or a setting out of range.
        NonFiniteError: a reward that is NaN or infinite.

    Example:
        >>> policy = rover.solve(agent, goal="room5")
        >>> policy.value(observations)
    """
    if sum(wanted is not None for wanted in (reward, goal, goals)) != 1:
        raise ConfigurationError("give one of reward=, goal= and goals=: what is wanted")
    if not (math.isfinite(variance_ridge) and variance_ridge >= 0.0):
        raise ConfigurationError(f"variance_ridge must be at least 0, not {variance_ridge!r}")
    check_discount(discount)
    data = _Data.of(source, env)
    planned = _plan_on(data, variance_ridge)
    tasks = _tasks(data, planned, reward, goal, goals)
    worst = worst_value(tasks.rewards, discount) if sink_value is None else None
    if sink_value is not None and not math.isfinite(sink_value):
        raise ConfigurationError(f"sink_value must be finite, not {sink_value!r}")
    sink = np.full(len(tasks.names), sink_value) if worst is None else worst
    solution = optimal_values(
        planned.model, tasks.rewards, tasks.ends, discount=discount, sink_value=sink
    )
    details = {} if data.policy is None else dict(data.policy.details)
    model, exact = planned.model, planned.model.exact
    net = {}
    if solution.remaining is not None and model.displacements is not None:
        shape = len(model.places), model.n_actions, -1
        net = {
            "displacements": torch.from_numpy(model.displacements.reshape(shape)),
            "remaining": torch.from_numpy(solution.remaining),
            "values": torch.from_numpy(solution.values),
        }
    return ValuePolicy(
        torch.from_numpy(model.places),
        torch.from_numpy(model.projection),
        torch.from_numpy(solution.action_values),
        torch.from_numpy(sink),
        observation_shape=data.buffer.observations.shape,
        neighbours=1 if exact else NEIGHBOURS,
        reach=planned.reach,
        temperature=temperature,
        goals=torch.from_numpy(tasks.goals if exact else np.full(len(sink), -1)),
        encoder=planned.encoder,
        **net,
        details=details | {"tasks": list(tasks.names), "planning_discount": discount},
    ).requires_grad_(False)


def _tasks(
    data: _Data,
    planned: _Planned,
    reward: Reward | None,
    goal: Goal | None,
    goals: str | Sequence[Goal] | None,
) -> TaskRewards:
    buffer, env = data.buffer, data.env
    if reward is not None:
        return task_rewards(buffer, reward, seed=data.seed)
    finder = GoalFinder(buffer, planned.model, planned.points, env)
    if goals is None:
        assert goal is not None
        return finder.rewards([goal])
    if isinstance(goals, str) and goals == "all":
        return finder.everywhere()
    if isinstance(goals, str) and goals == "named":
        return finder.named()
    if isinstance(goals, str) or len(goals) == 0:
        raise ConfigurationError(f"goals must be 'all', 'named' or several goals, not {goals!r}")
    return finder.rewards(list(goals))


def expected_values(
    source: Source,
    rewards: Sequence[Reward] | NDArray[Any],
    *,
    discount: float = DISCOUNT,
    env: gym.Env[Any, Any] | None = None,
) -> FloatArray:
    """Expected discounted return of the coverage policy under K rewards, without sampling, (K,).

    From where the data's episodes began, by one factorisation of I − γ P_π for all rewards; with
    no horizon, and the environment's own terminations.

    Args:
        source: an agent or a run folder.
        rewards: each as of :func:`solve`; or an array (K, n).
        discount: γ in (0, 1).
        env: as of :func:`solve`.

    Raises:
        ConfigurationError: a source without a policy, or a reward that says nothing.
    """
    check_discount(discount)
    data = _Data.of(source, env)
    if data.policy is None:
        raise ConfigurationError("a buffer has no policy to evaluate: give an agent or a run")
    planned = _plan_on(data, 0.0)
    model, buffer = planned.model, data.buffer
    columns = [task_rewards(buffer, reward, seed=data.seed).rewards for reward in rewards]
    table = np.concatenate(columns, axis=1)
    ends = buffer.terminated[:, None].astype(np.float64)
    if model.exact:
        probs = data.policy.probs(buffer.observations.rows)
    else:
        rows = KDTree(planned.points).query(model.places[: model.n_planned])[1]
        probs = data.policy.probs(buffer.observations.rows[rows])
    values = policy_values(
        model, probs, table, ends, discount=discount, sink_value=worst_value(table, discount)
    )
    starts, weights = buffer.starts()
    if not model.exact:
        places = KDTree(model.places[: model.n_planned])
        starts = np.asarray(places.query(planned.points[starts])[1], np.int64)
    return np.asarray(values[:, starts] @ (weights / weights.sum()))
