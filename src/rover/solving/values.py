"""Plans by value iteration: values of many tasks at once, on the rows of a transition model."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from rover.arrays import BoolArray, FloatArray, blocks
from rover.errors import ConfigurationError
from rover.policies import ValuePolicy
from rover.solving.experience import Experience
from rover.solving.tasks import Tasks
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
        tables = _optimal_tables(rows, tasks, settings, read_by_arrival(points, tasks))
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


def read_by_arrival(points: Points, tasks: Tasks) -> BoolArray:
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
        by_arrival: (2, K) as of :func:`read_by_arrival`.
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
