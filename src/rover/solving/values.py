"""Plans by value iteration: values of many tasks at once, on the rows of a transition model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array, diags_array, eye_array
from scipy.sparse.linalg import splu
from scipy.spatial import KDTree

from rover.arrays import BoolArray, FloatArray, blocks
from rover.envs import GivenEnv
from rover.errors import ConfigurationError
from rover.policies import ValuePolicy
from rover.solving.experience import Experience, Source
from rover.solving.tasks import Reward, Tasks, reward_task
from rover.world.neighbours import NEIGHBOURS
from rover.world.points import Points
from rover.world.rows import Rows, iterate

_TOLERANCE = 1e-9
_AT_ONCE = 64  # tasks that are solved together


class PlanSettings(NamedTuple):
    """Settings of a plan, as of :func:`rover.solve`."""

    discount: float = 0.99
    ridge: float = 0.02
    sink_value: float | None = None
    temperature: float = 0.0

    def check(self) -> None:
        """Refuse what is out of range with a ConfigurationError."""
        if not 0.0 < self.discount < 1.0:
            raise ConfigurationError(f"discount must be in (0, 1), not {self.discount!r}")
        if not (math.isfinite(self.ridge) and self.ridge >= 0.0):
            raise ConfigurationError(f"ridge must be at least 0, not {self.ridge!r}")
        if self.sink_value is not None and not math.isfinite(self.sink_value):
            raise ConfigurationError(f"sink_value must be finite, not {self.sink_value!r}")

    def sink_values(self, rewards: FloatArray) -> FloatArray:
        """The value of the sink (K,) under rewards (n, K): by default the least they can add up to.

        A plan must not prefer what was never tried to what was seen to be poor.
        """
        if self.sink_value is not None:
            return np.full(rewards.shape[1], self.sink_value)
        return np.asarray(np.minimum(rewards.min(axis=0), 0.0) / (1.0 - self.discount))


def planned_policy(
    experience: Experience,
    tasks: Tasks,
    settings: PlanSettings,
    tables: dict[str, FloatArray] | None = None,
) -> ValuePolicy:
    """The best policies of tasks on the transitions of an experience, one for each.

    Args:
        experience: the transitions.
        tasks: K of them.
        settings: of the plan.
        tables: of a plan that is made; None: they are found by value iteration.
    """
    points = experience.points()
    if tables is None:
        # Goals are what rows lead to; other tasks end with transitions.
        ends = tasks.ends[:, 0] if tasks.goals is None else None
        rows = experience.rows(settings.ridge, ends)
        tables = _optimal_tables(rows, tasks, settings, _by_arrival(points, tasks))
    own = {
        "projection": points.projection,
        "sink_values": settings.sink_values(tasks.rewards),
        "goals": tasks.rows if points.exact else np.full(len(tasks.names), -1),
    }
    return ValuePolicy(
        {name: torch.from_numpy(table) for name, table in (tables | own).items()},
        observation_shape=experience.buffer.observations.shape,
        neighbours=1 if points.exact else NEIGHBOURS,
        reach=points.reach,
        has_metric=points.has_metric,
        temperature=settings.temperature,
        encoder=points.encoder,
        details=experience.policy_details(tasks.names, settings.discount),
    ).requires_grad_(False)


def expected_values(
    source: Source,
    rewards: Sequence[Reward] | NDArray[Any],
    *,
    discount: float = PlanSettings().discount,
    env: GivenEnv | None = None,
) -> FloatArray:
    """Expected discounted return (K,) of pretraining's policy under K rewards, without sampling.

    From where the data's episodes began, by one factorisation of I − γ P_π for all rewards; with
    no horizon, and the environment's own terminations.

    Args:
        source: an agent or a run folder.
        rewards: each as of :func:`solve`; or an array (K, n).
        discount: γ in (0, 1).
        env: as of :func:`solve`.

    Raises:
        ConfigurationError: a source without a policy, or a constant reward.
    """
    settings = PlanSettings(discount)
    settings.check()
    experience = Experience.of(source, env)
    if experience.policy is None:
        raise ConfigurationError("a buffer has no policy to evaluate: give an agent or a run")
    given = [reward_task(experience, one) for one in rewards]
    ends = np.repeat(experience.buffer.terminated[:, None], len(given), axis=1)
    table = np.concatenate([one.rewards for one in given], axis=1)
    tasks = Tasks(table, ends, tuple(one.names[0] for one in given))
    points, rows = experience.points(), experience.rows(0.0)
    seen = experience.buffer.observations.rows
    if not points.exact:
        # The policy takes observations and not points: each landmark acts as the nearest
        # observation.
        assert rows.landmarks is not None
        seen = seen[KDTree(points.rows).query(rows.landmarks)[1]]
    probs = experience.policy.tables(seen).mean(axis=0)
    values = _policy_values(rows, probs, tasks, settings, _by_arrival(points, tasks))
    return np.asarray(values @ rows.start)


def _by_arrival(points: Points, tasks: Tasks) -> BoolArray:
    """Mask (2, K): whether the rewards, and the ends, of tasks are read where steps end, rather
    than where they begin and from the action."""
    shape = 2, len(tasks.names)
    if points.neighbours is None or tasks.goals is not None:
        return np.ones(shape, np.bool_)
    columns = np.concatenate([tasks.rewards, tasks.ends], axis=1)
    return points.neighbours.follow_arrivals(columns).reshape(shape)


def _optimal_tables(
    rows: Rows, tasks: Tasks, settings: PlanSettings, by_arrival: BoolArray
) -> dict[str, FloatArray]:
    """Tables of a :class:`~rover.policies.ValuePolicy` by value iteration, by name.

        Q(x, a) = (1 − m(x, a)) E[r + γ max_a' Q(x', a')] + m(x, a) v_sink

    with m the probability of the sink. A task that terminates on arrival is worth nothing after.
    On landmarks Q is without the value of where an action leads, which the policy looks up where it
    stands.

    Args:
        rows: what actions lead to.
        tasks: K of them.
        settings: discount, and value of the sink.
        by_arrival: (2, K) as of :func:`_by_arrival`.
    """
    assert rows.landmarks is not None
    size = len(rows.landmarks), len(rows.sink) // len(rows.landmarks)
    parts = [
        _solve(rows, tasks, settings, by_arrival, part)
        for part in blocks(len(tasks.names), _AT_ONCE)
    ]
    tables = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    if rows.uniform is not None:
        tables["displacements"] = rows.ahead.reshape(*size, -1) - rows.landmarks[:, None]
        tables["contact_probability"] = rows.uniform.reshape(size)
    return tables | {"landmarks": rows.landmarks}


def _solve(
    rows: Rows, tasks: Tasks, settings: PlanSettings, by_arrival: BoolArray, part: slice
) -> dict[str, FloatArray]:
    """Tables of tasks that are solved together."""
    rewards, ends = tasks.rewards[:, part], tasks.ends[:, part].astype(np.float64)
    discount, inside = settings.discount, (1.0 - rows.sink)[:, None]
    # The sink is worth its value at once, whatever the discount: nothing follows it.
    lost = rows.sink[:, None] * settings.sink_values(rewards)
    if rows.passed is None and tasks.goals is not None:
        goals = tasks.goals[:, part].astype(np.float64)
        earned, remaining = (rows.onward + rows.ended) @ goals, np.full((1, 1), discount)
        alive = np.ones_like(goals) if tasks.stays else 1.0 - goals
    else:
        earned, remaining = rows.priced(rewards, ends, discount, by_arrival=by_arrival[:, part])
        if tasks.passing is not None:
            # Whatever the transitions earned: rows that pass the goal are worth that, and end.
            step = tasks.passing[:, part]
            earned = np.maximum(earned, np.where(step > 0, discount ** (step - 1.0), 0.0))
            remaining = np.where(step > 0, tasks.stays * remaining, remaining)
        earned, alive = inside * earned, np.ones((1, 1))
    shape = len(rows.start), -1, rewards.shape[1]

    def backup(values: FloatArray) -> FloatArray:
        onward = remaining * (rows.onward @ (alive * values))
        return np.asarray((earned + onward + lost).reshape(shape))

    solved = iterate(backup, np.zeros((shape[0], shape[2])), tolerance=_TOLERANCE)

    def by_task(table: FloatArray) -> FloatArray:
        return np.moveaxis(table.reshape(shape), 2, 0)

    if rows.passed is None:
        return {"action_values": by_task(backup(solved.states))}
    # The policy looks up the value of where a move ends.
    return {
        "action_values": by_task(earned + lost),
        "remaining": by_task(inside * remaining),
        "values": solved.states.T,
    }


def _policy_values(
    rows: Rows, probs: FloatArray, tasks: Tasks, settings: PlanSettings, by_arrival: BoolArray
) -> FloatArray:
    """Values (K, m) of one policy, from one factorisation of I − γ P_π for all tasks.

    Args:
        rows: what actions lead to.
        probs: (m, A) of the policy, at the landmarks.
        tasks: K of them, which end where the environment terminates.
        settings: discount, and value of the sink.
        by_arrival: (2, K) as of :func:`_by_arrival`.
    """
    ends = tasks.ends.astype(np.float64)
    earned, remaining = rows.priced(tasks.rewards, ends, settings.discount, by_arrival=by_arrival)
    size, n_actions = probs.shape
    # P_π as a product: π chooses among pairs, which lead to landmarks.
    pairs = np.repeat(np.arange(size), n_actions), np.arange(probs.size)
    choose = csr_array((probs.ravel(), pairs), shape=(size, probs.size))
    onward = choose @ diags_array(remaining[:, 0]) @ rows.onward
    lost = rows.sink[:, None] * settings.sink_values(tasks.rewards)
    right = np.asarray(choose @ ((1.0 - rows.sink)[:, None] * earned + lost))
    return np.asarray(splu(csc_array(eye_array(size) - onward)).solve(right).T)
