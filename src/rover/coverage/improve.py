"""Estimate and improve: mirror descent on a planning model, made of the rows of a world.

The result is a policy in closed form, π = softmax(ρ(φ) W), at every feature vector φ. A descent
begins where the last one ended, if it still can.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from rover.arrays import IntArray, evenly_spaced
from rover.coverage.config import RoverConfig
from rover.coverage.cover import Cover
from rover.features import Encoder
from rover.operators import Objective, TransitionOperator, mirror_descend
from rover.world.counts import Rows
from rover.world.dynamics import ACTION_REPEAT, MOST_UNEXPLAINED
from rover.world.model import LandmarkModel
from rover.world.net import DENSITY_WIDTH, MOST_ROWS, Net, nearest
from rover.world.world import World

# While much is new, the next plan replaces this one long before its last digits matter.
_FEW_NEW, _DISCOVERY_STEPS = 0.03, 40
"""Share of new pairs up to which a policy is planned to the end, and most steps of one that data of
exploration plans soon replaces."""

# J falls towards a target for longer than to even coverage, which is near where descents begin.
_TARGET_FACTOR = 10
"""Factor on the most steps of a descent towards a target, which the tolerance ends."""

_COVERED_ALIKE = 0.5
"""Tries that all of a state's count for in each pair, for each unit of the outcomes' variance."""

_KEPT = 0.5
"""Share of a warm start that is kept where outcomes vary. Each plan is then for another model, and
from a policy that is already certain mirror descent hardly moves (docs/deviations.md)."""

# Acrobot's policy visits twice as many cells with 2,000 landmarks as with 800.
_FINER = 2.5  # most landmarks of a fine net, as a multiple of `n_landmarks`

_LANDMARK_STEPS, _LANDMARK_TOLERANCE = 100, 1e-3
"""Steps and tolerance of mirror descent on landmarks, whose model is no better than that."""


@dataclass(frozen=True)
class PlanningModel:
    """A transition model on s anchors: states, landmarks, or the anchors of a kernel.

    Attributes:
        operator: the transition operator on the anchors.
        start: (s,) initial weights on the anchors.
        anchors: (s,) what each anchor stands for.
        basis: (u, z) features that regressors compare with; None for ρ(φ) = φ.
        coefficients: (q, A) extension of Σ_i v_i P_a[i, x] to every x, of values v (s,).
        target: (s,) occupancy that is wanted; None: as even as possible.
        n_pairs: number of distinct pairs (x, a) that it was made of.
        varies: whether their outcomes vary.
        on_landmarks: whether the anchors are landmarks, which are never the same twice, and each
            row repeats its action.
    """

    operator: TransitionOperator
    start: Tensor
    anchors: IntArray
    basis: Tensor | None
    coefficients: Callable[[Tensor], Tensor]
    target: Tensor | None
    n_pairs: int = 0
    varies: bool = False
    on_landmarks: bool = False

    @classmethod
    def of_states(
        cls, world: World, basis: Tensor | None, config: RoverConfig, cover: Cover
    ) -> Self:
        """The planning model of N states: rows of drawn outcomes, where these predict better than
        what states that share nothing have, relative frequencies.

        `basis` (N, z) are features that policies read states by, None: by their names.
        """
        assert config.ridge is not None
        # λ / (n + λ) of what n tries leave open
        counts, variance = world.counts, world.counts.outcome_variance
        outcomes = world.outcomes if variance > 0.0 else None
        buffer = cover.buffer
        states, weights = buffer.starts(unseen=config.unseen_starts)
        everything = np.arange(len(buffer.observations))
        groups = everything if cover.part is None else cover.groups()
        target = cover.target(groups, everything, everything) if cover.has_target else None
        start = np.bincount(states, weights, minlength=len(everything)).astype(np.float64)
        if outcomes is not None:
            rows = outcomes.rows(outcomes.table)
        else:
            rows = counts.rows(ridge=config.ridge)
            if variance > 0.0:
                rows = rows.shrunk(np.array(counts.tries), _COVERED_ALIKE * variance)
        model = cls._of_rows(replace(rows, start=start), basis, groups, target)
        return replace(model, n_pairs=sum(counts.first_tries), varies=variance > 0.0)

    @classmethod
    def of_landmarks(
        cls, model: LandmarkModel, encoder: Encoder, cover: Cover, *, most: int
    ) -> tuple[Self, Encoder]:
        """The planning model of landmarks, and the encoder in their units.

        Args:
            model: of all transitions.
            encoder: of the features that landmarks lie in.
            cover: the target distribution.
            most: landmarks; more where the dynamics model explains almost all motion.
        """
        # With a poorer model finer landmarks plan a J that simulation does not confirm (D35).
        if model.dynamics.unexplained <= MOST_UNEXPLAINED:
            most = round(_FINER * most)
        rows, units = model.rows(most, growth=1.1), model.units
        assert rows.landmarks is not None
        groups, target = np.arange(len(rows.landmarks)), None
        if not units.to_slow.all():  # what each landmark is to cover, as numbers of a net
            points = rows.landmarks * units.to_slow
            owner = Net(points[:0], DENSITY_WIDTH).add(points)
            assert owner is not None  # a net without a limit takes them all
            groups = owner
        if cover.has_target:
            some = evenly_spaced(len(model.buffer.observations), MOST_ROWS)
            owner = nearest(rows.tree, units.points(some), 1)[1][:, 0]
            target = cover.target(groups, some, owner)
        seen = units.kept < encoder.feature_dim  # others are what a function makes of observations
        kept = units.kept[seen]
        # Divided by infinity, dimensions of noise are the same everywhere.
        scale = np.full(encoder.feature_dim, np.inf)
        scale[kept] = units.scale[seen]
        basis = torch.zeros(len(rows.landmarks), encoder.feature_dim, dtype=torch.float64)
        basis[:, kept] = torch.from_numpy(rows.landmarks[:, seen])
        planned = cls._of_rows(rows, basis, groups, target)
        planned = replace(planned, n_pairs=model.n_pairs, on_landmarks=True)
        return planned, encoder.in_units(scale)

    @classmethod
    def _of_rows(
        cls, rows: Rows, basis: Tensor | None, groups: IntArray, target: Tensor | None
    ) -> Self:
        """The model of rows of m landmarks, with groups (m,) and a target (m,) of them."""
        operator, n_landmarks = rows.operator(groups), len(groups)
        if target is not None:  # twins are covered with their landmarks
            target = torch.cat([target, target.new_zeros(operator.n_states - n_landmarks)])
        return cls(
            operator=operator,
            start=operator.start,
            anchors=np.arange(operator.n_states),
            basis=basis,
            coefficients=lambda values: operator.action_values(values)[:n_landmarks],
            target=target,
        )


@dataclass(frozen=True)
class WarmStart:
    """The end of the last descent, for the next one on the same anchors and the same pairs."""

    anchors: IntArray  # (s,) what the anchors stood for
    pairs: int  # distinct pairs (x, a) that were known, which only ever grow
    dual: Tensor  # (s,) of the policy
    step_size: float  # with which a further step would have begun


class Improvement(NamedTuple):
    """A policy π = softmax(ρ(φ) W) that mirror descent has planned, with figures of the descent."""

    weights: Tensor  # W (q, A)
    warm_start: WarmStart
    figures: dict[str, Any]


def improve(
    model: PlanningModel,
    warm: WarmStart | None,
    config: RoverConfig,
    *,
    step: int,
    is_exploring: bool,
) -> Improvement:
    """Descend J by the policy on a planning model, from the end of the last descent if it fits.

    The sink's norm may grow with the environment's `step`. Policies made while much is new to
    exploration plans are soon replaced, and planned in fewer steps. SingularSolveError: the model
    creates mass.
    """
    assert config.discount is not None
    discount = config.discount ** (ACTION_REPEAT if model.on_landmarks else 1)
    dual, step_size = None, config.step_size
    n_new = model.n_pairs - (0 if warm is None else warm.pairs)
    is_known = n_new == 0 and config.warm_start and not model.on_landmarks
    if warm is not None and is_known and np.array_equal(warm.anchors, model.anchors):
        dual = _KEPT * warm.dual if model.varies else warm.dual
        if not model.varies:
            step_size = warm.step_size
    n_steps, tolerance = config.mirror_steps, config.mirror_tolerance
    if model.on_landmarks:
        n_steps, tolerance = _LANDMARK_STEPS, max(tolerance, _LANDMARK_TOLERANCE)
    elif is_exploring and n_new > _FEW_NEW * model.n_pairs:
        n_steps = min(_DISCOVERY_STEPS, n_steps)
    elif model.target is not None and tolerance > 0.0:
        n_steps *= _TARGET_FACTOR
    warmup = min(1.0, step / config.sink_warmup) if config.sink_warmup else 1.0
    descent = mirror_descend(
        model.operator,
        model.start,
        discount=discount,
        objective=Objective(model.target, config.sink_norm * warmup),
        n_steps=n_steps,
        step_size=step_size,
        step_rule=config.step_rule,
        tolerance=tolerance,
        dual=dual,
    )
    # A descent that ended in rejected steps leaves a step size too small to begin with.
    step_size = max(descent.step_size, config.step_size)
    return Improvement(
        # The policy at the anchors is softmax(−γ Σ_i v_i P_a[i, x]), extended to every φ.
        weights=model.coefficients(descent.dual).mul_(-discount),
        warm_start=WarmStart(model.anchors, model.n_pairs, descent.dual, step_size),
        figures={
            "model_objective": descent.occupancy.objective,
            # On landmarks every row leads to the sink with the same small probability.
            "sink_mass": None if model.on_landmarks else descent.occupancy.sink_mass,
            "column_sum_max": float(model.operator.transition.sum(1).max()),
            "mirror_steps": len(descent.objectives) - 1,
            "anchors": len(model.anchors),
            "pairs": model.n_pairs,
        },
    )
