"""J of a policy on landmarks, estimated by simulated rollouts in the dynamics model.

A plan holds actions between landmarks; the policy chooses anew at every step. Where landmarks are
too far apart for the motion the plan's own J is optimistic. Rollouts of the policy in the law
correct it, without a step in the environment.
"""

from __future__ import annotations

import numpy as np

from rover.operators.support import FloatArray, IntArray
from rover.planning.invariants import Invariants
from rover.planning.model import LandmarkModel

_SIMULATED = 32
_LEFT = 0.05  # discount at which a simulated rollout ends


def simulated_objective(
    model: LandmarkModel,
    weights: FloatArray,
    invariants: Invariants,
    groups: IntArray,
    target: FloatArray | None = None,
    *,
    discount: float,
    uniform_share: float = 0.0,
) -> float:
    """J of a policy in the dynamics model: the chance that two of its visits meet in one cell.

    Visits are of independent episodes, so that the estimate has no bias. An episode ends in a
    terminal state, which is occupied for one step, and another one begins, as in the plan.

    Args:
        model: with the net that the policy was planned on.
        weights: (m, A) of the policy at the landmarks of that net.
        invariants: of the model's points. In hundreds of steps the law leaves the circle of an
            angle, and comes to rest where no state is.
        groups: (m,) that each cell of the model is covered with.
        target: (m,) distribution over the cells, all of a group on one of them; None: even.
        discount: γ in (0, 1), of single steps.
        uniform_share: share of uniformly random actions that are part of the policy.
    """
    rng, each = np.random.default_rng(0), np.arange(_SIMULATED)
    observations, times = model.buffer.starts()
    begins = model.points(rng.choice(observations, _SIMULATED, p=times / times.sum()))
    occupancy = np.zeros((_SIMULATED, 1 + int(groups.max())))
    points, left, is_over = begins, 1.0, np.zeros(_SIMULATED, np.bool_)
    while left > _LEFT:
        occupancy[each, groups[model.cells.nearest(points, 1)[1][:, 0]]] += left
        near, index = model.on_landmarks(points)
        logits = (near[:, :, None] * weights[index]).sum(axis=1)
        probs = np.exp(logits - logits.max(axis=1, keepdims=True))
        probs /= probs.sum(axis=1, keepdims=True)
        probs += uniform_share * (1.0 / probs.shape[1] - probs)
        draws = rng.random((_SIMULATED, 1))
        actions = np.minimum((probs.cumsum(axis=1) < draws).sum(axis=1), probs.shape[1] - 1)
        reached, ended = model.motion.step(points[None])
        ends = ended[actions, each] > rng.random(_SIMULATED)
        onward = invariants.restore(reached[actions, each])
        points = np.where(is_over[:, None], rng.permutation(begins), onward)
        is_over = ends & ~is_over
        left *= discount
    occupancy /= occupancy.sum(axis=1, keepdims=True)
    both = float((occupancy.sum(axis=0) ** 2).sum() - (occupancy**2).sum())
    objective = both / (_SIMULATED * (_SIMULATED - 1))
    if target is None:
        return objective
    wanted = np.bincount(groups, target)
    return objective + float(wanted @ (wanted - 2.0 * occupancy.mean(axis=0)))
