"""Plans for goals in many dimensions, or with contacts: the returned policy samples them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rover.arrays import FloatArray
from rover.errors import ConfigurationError
from rover.policies import PointGoals, SampledPolicy
from rover.solving.experience import Experience
from rover.solving.tasks import GOAL_RADIUS, Goal, as_point
from rover.world.gated import FEWEST_MOVES, GatedSums
from rover.world.model_selection import has_metric
from rover.world.net import FIRST_UNITS, time_units
from rover.world.sampled import Controls, Sampling

MOST_DIMENSIONS = 6
"""Dimensions up to which goals are planned for on landmarks: Acrobot's six swing up on them, of
FetchReach's ten no goal is kept (docs/decisions/continuous.md#d47)."""


def sampled_policy(
    experience: Experience, goals: str | Sequence[Goal], discount: float, *, is_asked: bool
) -> SampledPolicy | None:
    """The policy of goals that samples its plans; None where landmarks do, or goals are no points.

    Args:
        experience: the transitions.
        goals: as of :func:`rover.solve`.
        discount: γ in (0, 1).
        is_asked: whether the user asks for it, so that only goals that are no points are refused.

    Raises:
        ConfigurationError, NonFiniteError: as of :func:`~rover.solving.tasks.as_point`.
        ConfigurationError: it is asked for, and cannot be.
    """
    policy = _sampled_policy(experience, goals, discount, is_asked=is_asked)
    if policy is None and is_asked:
        raise ConfigurationError(
            "planner='sampled' is for goals that are points or observations, in at least "
            f"{FIRST_UNITS} transitions between vectors of floats that are no names of states"
        )
    return policy


def _sampled_policy(
    experience: Experience, goals: str | Sequence[Goal], discount: float, *, is_asked: bool
) -> SampledPolicy | None:
    buffer = experience.buffer
    table, shape = buffer.observations.rows, buffer.observations.shape
    if isinstance(goals, str) or len(shape) != 1 or len(buffer) < FIRST_UNITS:
        return None
    if not has_metric(table) or (experience.world.kind == "states" and not is_asked):
        return None
    begins, ends = table[buffer.inputs], table[buffer.successors]
    units = time_units(begins.astype(np.float64), ends.astype(np.float64), buffer.previous)
    points = [_as_numbers(goal, experience, units) for goal in goals]
    known = [point for point in points if point is not None]
    if not known or len(known) < len(points):
        return None
    targets, factors = (np.stack(part) for part in zip(*known, strict=True))
    covered = np.flatnonzero(factors.any(axis=0))

    def taken_in() -> GatedSums:
        sums = GatedSums(buffer, covered)
        sums.extend(len(buffer))
        return sums

    sums = experience.world.part((GatedSums, *covered.tolist()), taken_in)
    is_small = np.isfinite(units).sum() <= MOST_DIMENSIONS and sums.n_moving < FEWEST_MOVES
    # On a grid each coordinate is still in most steps: there is no hand that is not.
    is_pushed = sums.n_moving >= FEWEST_MOVES and len(sums.units.still) < len(units)
    if not is_asked and (is_small or (experience.world.repeats and not is_pushed)):
        return None
    actions, scale, is_continuous = buffer.action_set, np.ones(buffer.controls.shape[1]), False
    if actions is not None and actions.dtype.kind == "f":
        is_continuous = True
        scale = np.abs(actions.reshape(len(actions), -1).astype(np.float64)).max(axis=0)
    return SampledPolicy(
        sums.model(),
        PointGoals(torch.from_numpy(targets).float(), torch.from_numpy(factors).float()),
        Controls.among(buffer.controls, is_continuous=is_continuous),
        torch.from_numpy(scale),
        sampling=Sampling(discount=discount),
        observation_shape=shape,
        details=experience.policy_details([f"goal {k}" for k in range(len(known))], discount),
    ).requires_grad_(False)


def _as_numbers(
    goal: Goal, experience: Experience, units: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Target and factors (d,) of a goal that is a point or an observation; None of others."""
    shape = experience.buffer.observations.shape
    point = as_point(goal, experience.env, shape)
    target, factors = np.zeros(shape), np.zeros(shape)
    if point is not None:
        columns = list(point.columns)
        target[columns], factors[columns] = point.target, 1.0 / point.radius
        return target, factors
    if not isinstance(goal, np.ndarray) or goal.shape != shape:
        return None
    # An observation is reached within the radius that it has on landmarks.
    target[:] = goal
    return target, np.where(np.isfinite(units), 1.0 / (GOAL_RADIUS * units), 0.0)
