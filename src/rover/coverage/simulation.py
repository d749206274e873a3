"""J of a policy on landmarks, estimated by simulated rollouts in the dynamics model.

A plan repeats actions between landmarks; the policy chooses anew at every step. Where landmarks are
too far apart for the motion, the plan's own J is optimistic. Rollouts of the policy in the dynamics
model correct it, without a step in the environment.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rover.operators.support import FloatArray, IntArray
from rover.planning.invariants import Invariants
from rover.planning.model import LandmarkModel
from rover.planning.net import Net
from rover.policies import CoveragePolicy

_SIMULATED = 32
_LEFT = 0.05  # discount at which a simulated rollout ends


def at_points(policy: CoveragePolicy, model: LandmarkModel) -> Callable[[FloatArray], FloatArray]:
    """The action probabilities (n, A) of a policy at points (n, k) of a model.

    Args:
        policy: on landmarks of the model.
        model: of its points; columns that a function appends to the features are not the policy's.
    """
    seen = model.kept < policy.encoder.feature_dim

    def probs(points: FloatArray) -> FloatArray:
        features = torch.zeros(len(points), policy.encoder.feature_dim, dtype=torch.float64)
        features[:, model.kept[seen]] = torch.from_numpy(points[:, seen])
        with torch.no_grad():
            return torch.softmax(policy.logits_from_features(features), dim=1).numpy()

    return probs


def simulate(
    model: LandmarkModel,
    probs: Callable[[FloatArray], FloatArray],
    invariants: Invariants,
    *,
    discount: float,
) -> FloatArray:
    """Points (T, E, k) of E independent episodes of a policy in the dynamics model, at every step.

    An episode ends in a terminal state, which is occupied for one step, and another one begins, as
    in the plan.

    Args:
        model: of the buffer's transitions.
        probs: the policy's action probabilities (n, A) at points (n, k).
        invariants: of the model's points. In hundreds of steps the dynamics model leaves the circle
            of an angle, and comes to rest where no state is.
        discount: γ in (0, 1), of single steps, which the number of steps T follows from.
    """
    rng, each = np.random.default_rng(0), np.arange(_SIMULATED)
    observations, times = model.buffer.starts()
    begins = model.points(rng.choice(observations, _SIMULATED, p=times / times.sum()))
    points, left, is_over = begins, 1.0, np.zeros(_SIMULATED, np.bool_)
    visits = []
    while left > _LEFT:
        visits.append(points)
        sums = probs(points).cumsum(axis=1)
        draws = rng.random((_SIMULATED, 1))
        actions = np.minimum((sums < draws).sum(axis=1), sums.shape[1] - 1)
        reached, ended = model.dynamics.step(points[None])
        ends = ended[actions, each] > rng.random(_SIMULATED)
        onward = invariants.restore(reached[actions, each])
        points = np.where(is_over[:, None], rng.permutation(begins), onward)
        is_over = ends & ~is_over
        left *= discount
    return np.stack(visits)


def simulated_objective(
    visits: FloatArray,
    net: Net,
    groups: IntArray,
    target: Tensor | None = None,
    *,
    discount: float,
) -> float:
    """J of simulated visits on a net: the probability that two episodes meet, so without bias.

    Args:
        visits: (T, E, k) points of E independent episodes.
        net: its m landmarks.
        groups: (m,) that each landmark is covered with.
        target: (m,) distribution over the landmarks, all of a group on one of them; None: even.
        discount: γ in (0, 1), between one visit and the next.
    """
    n_steps, n_episodes, width = visits.shape
    owner = groups[net.nearest(visits.reshape(-1, width), 1)[1][:, 0]].reshape(n_steps, n_episodes)
    occupancy = np.zeros((n_episodes, 1 + int(groups.max())))
    weights = np.repeat(discount ** np.arange(n_steps), n_episodes)
    np.add.at(occupancy, (np.tile(np.arange(n_episodes), n_steps), owner.ravel()), weights)
    occupancy /= occupancy.sum(axis=1, keepdims=True)
    both = float((occupancy.sum(axis=0) ** 2).sum() - (occupancy**2).sum())
    objective = float(both / (n_episodes * (n_episodes - 1)))
    if target is None:
        return objective
    wanted = np.bincount(groups, target.numpy())
    return objective + float(wanted @ (wanted - 2.0 * occupancy.mean(axis=0)))
