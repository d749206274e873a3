"""Measurements of policies by roll-outs, where the dynamics are unknown.

Roll-outs are paid for by the run's own steps. A policy is rolled out in sets of episodes, and so
are uniformly random actions, once: they make the net that cells are counted on, and then their own
figures. At the end of a run policies are compared by the cells that they visit, or by J on the
counted transitions where that decides (:class:`~rover.training.counted.CountedObjective`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rover.arrays import evenly_spaced
from rover.data import Buffer
from rover.envs import Environment
from rover.errors import RoverWarning
from rover.evaluation.aliasing import aliasing_of
from rover.evaluation.cells import MAX_POINTS, CellNet, Projection
from rover.evaluation.rollouts import MEASURED_SETS, RolloutEvaluator, is_less, stack_episodes
from rover.evaluation.visits import first_steps, novel_moments, slow_planes, tried_pairs
from rover.policies.policy import Policy
from rover.training.config import AgentConfig
from rover.training.counted import CountedObjective
from rover.training.measures import (
    CELL_FIGURES,
    REFERENCE_SEED,
    REPEATS_STREAM,
    ROUNDING,
    Measures,
    Trial,
)
from rover.world.model_selection import repeats

# Environment steps of a set of roll-outs, but for the rest of its last episode.
_MAX_SET_STEPS = 500
# Sets of a run too short for five whole ones, each broken off after fewer steps; these must be an
# episode's, or as many as the discount looks ahead.
_FEWEST_SETS = 3

MAX_RECORDED_OBSERVATIONS = 100_000
"""Distinct observations that are kept for pictures."""
_N_FRAMES = 8
"""Images that a run records for a picture."""
_FEW_NUMBERS = 10
"""Width of vectors that are drawn by their own numbers."""


class RolloutMeasures(Measures):
    """Measures policies now and then by roll-outs, beside uniformly random actions."""

    def __init__(
        self,
        environment: Environment,
        buffer: Buffer,
        config: AgentConfig,
        *,
        seed: int,
    ) -> None:
        super().__init__(environment, buffer, config, seed=seed)
        if config.measure_share == 0.0:
            self._not_judged = "the policy was not measured: measure_share=0"
        else:
            self._second = environment.another()
        self._n_episodes = max(2, config.evaluation_episodes)
        # Of an end of the run. Cells can be compared on one net alone: an end has one evaluator.
        self._evaluator_of_end: RolloutEvaluator | None = None
        self._judge: CountedObjective | Literal["cells"] | None = None
        self._aliasing: Any = None

    @cached_property
    def _evaluator(self) -> RolloutEvaluator:
        """Whole sets, on the net of random actions: the same for every run and policy."""
        return self._make_evaluator(max_steps=_MAX_SET_STEPS, n_sets=MEASURED_SETS)

    def _make_evaluator(self, **limits: Any) -> RolloutEvaluator:
        return RolloutEvaluator(
            self._rollout_env,
            self._buffer.n_actions,
            horizon=self._rollout_horizon,
            n_episodes=self._n_episodes,
            rng=np.random.default_rng(REFERENCE_SEED),
            **limits,
        )

    def _affordable_sets(self, step: int, *, at_the_end: bool) -> int:
        """Whole sets of a policy that there are steps for; 0 where there are too few.

        The sets of random actions come first, once: one for the net, and the reference's. During
        the run, where nothing is chosen by the figures, one set of a policy is enough.
        """
        steps, horizon = self._allowed(step, at_the_end=at_the_end), self._rollout_horizon
        # A set ends with its last episode.
        longest = min(self._n_episodes * horizon, max(2 * horizon, _MAX_SET_STEPS - 1 + horizon))
        if not (
            self._progress.steps["points"] or (at_the_end and self._evaluator_of_end is not None)
        ):
            steps -= (1 + MEASURED_SETS) * longest
        # As many sets as are left to pay for, since the errors of means need several.
        fewest, most = (_FEWEST_SETS, MEASURED_SETS) if at_the_end else (1, 1)
        n_sets = min(most, steps // longest)
        return n_sets if n_sets >= fewest else 0

    def is_due(self, step: int) -> bool:
        """True at evaluation points that there are steps for."""
        if step < self._progress.next_point or self.within_episodes or self._second is None:
            return False
        return self._affordable_sets(step, at_the_end=False) > 0

    def _measure(self, policy: Policy, step: int, *, is_point: bool) -> tuple[dict[str, Any], int]:
        if self._progress.steps["points"] == 0:  # the random actions serve every policy
            self._progress.steps["points"] = self._evaluator.reference_steps
        measured = self._evaluator.measure(
            policy.sample_component, self._rng(REPEATS_STREAM, step), n_sets=1
        )
        self._progress.evaluated = _beside_random(measured, self._evaluator)
        self._progress.steps["points"] += measured["n_steps"]
        return {}, measured["n_steps"]

    def begin_end(self) -> None:
        """Forget what was measured at an earlier end of the run, which goes on since."""
        super().begin_end()
        self._evaluator_of_end = self._judge = self._aliasing = None

    def _try_out(self, policy: Policy, step: int) -> Trial | None:
        trial = self._roll_out(policy, step)
        if self._judge is None:
            self._judge = self._judge_of(policy, is_rolled_out=trial is not None)
        if isinstance(self._judge, CountedObjective):
            least, greatest = self._judge.bounds(policy)
            figures, episodes = ({}, ()) if trial is None else (trial.figures, trial.episodes)
            by_chance = self._judge.uniform[1]
            is_worse = least > by_chance * (1.0 + ROUNDING)
            return Trial(-greatest, -by_chance, "J", figures, is_worse, episodes)
        return trial

    def _judge_of(
        self, policy: Policy, *, is_rolled_out: bool
    ) -> CountedObjective | Literal["cells"]:
        """The figure that policies of this end are compared by.

        J on the run's counts where observations are states and the untried pairs cannot change the
        order of a policy and random actions; else the visited cells.
        """
        # Less than the state may be covered, or unevenly, and what is aliased is no state.
        is_of_all = all(getattr(self._config, name, None) is None for name in ("cover", "target"))
        if not (is_of_all and repeats(self._buffer)) or self._is_aliased():
            return "cells"
        assert self._config.discount is not None
        counted = CountedObjective(self._buffer, discount=self._config.discount)
        (least, greatest), (lower, upper) = counted.bounds(policy), counted.uniform
        is_uniform = (least, greatest) == (lower, upper)
        if is_uniform or least > upper * (1.0 + ROUNDING) or greatest <= lower * (1.0 + ROUNDING):
            return counted
        if not is_rolled_out:
            n_tried, n_known = tried_pairs(self._buffer)
            warnings.warn(
                f"{len(self._buffer):,} steps are too few to compare the policy with random "
                f"actions: {n_tried:,} of {n_known:,} state-action pairs were "
                f"tried, and J is between {least:.3g} and {greatest:.3g}, of random actions "
                f"between {lower:.3g} and {upper:.3g}. Run more steps",
                RoverWarning,
                stacklevel=5,
            )
        return "cells"

    def _is_aliased(self) -> bool | None:
        """The test of aliased observations at this end, made once."""
        if self._aliasing is None:
            self._aliasing = aliasing_of(self._buffer)
        self._progress.aliased = self._aliasing.is_aliased
        return self._progress.aliased

    def _roll_out(self, policy: Policy, step: int) -> Trial | None:
        """Measure a candidate by its cells; None: no roll-outs, or no steps are left for them."""
        evaluator = self._evaluator_of_end
        if self._not_judged is not None:
            return None
        n_sets = self._affordable_sets(step, at_the_end=True)
        if evaluator is None and n_sets > 0:
            evaluator = self._evaluator
            if self._progress.steps["points"] == 0:
                self._progress.steps["end"] += evaluator.reference_steps
        elif evaluator is None:
            evaluator, n_sets = self._short_evaluator(step), _FEWEST_SETS
        self._evaluator_of_end = evaluator
        if evaluator is None or n_sets == 0:
            return None
        measured = evaluator.measure(
            policy.sample_component, self._rng(REPEATS_STREAM, step), n_sets=n_sets
        )
        self._progress.steps["end"] += measured["n_steps"]
        figures = _beside_random(measured, evaluator)
        means = figures["cells"], figures["uniform_cells"]
        errors = figures["cells_error"], figures["uniform_cells_error"]
        return Trial(
            *means,
            "visited cells",
            figures,
            worse_than_random=is_less(means, errors, n_sets),
            episodes=evaluator.episodes,
        )

    def _short_evaluator(self, step: int) -> RolloutEvaluator | None:
        """Three short sets, on a net of the run's own observations; None if too short to tell."""
        discount, allowed = self._config.discount, self._allowed(step, at_the_end=True)
        assert discount is not None
        # Shorter sets could not judge a policy that plans farther ahead than they last.
        least = min(self._rollout_horizon, math.ceil(1.0 / (1.0 - discount)))
        # Half for random actions and half for the policy, three sets each.
        share_of_run = self._config.measure_share
        short, share = allowed // (2 * _FEWEST_SETS), f"{share_of_run:.0%}"
        if short < least:
            needed = 2 * _FEWEST_SETS * least
            self._progress.left_out = (
                f"the policy was not measured: the evaluation budget ({share} of the run = "
                f"{max(0, allowed):,} steps) is too small. Run {needed / share_of_run:,.0f} steps, "
                f"or set measure_share={math.ceil(100 * needed / step) / 100:g}"
            )
            return None
        self._progress.left_out = (
            f"the policy was measured by {_FEWEST_SETS} sets of {short} steps only, within the "
            f"evaluation budget ({share} of the run). Run more steps, or set measure_share higher"
        )
        evaluator = self._make_evaluator(
            max_steps=short, n_sets=_FEWEST_SETS, net_of=self._some_observations()
        )
        self._progress.steps["end"] += evaluator.reference_steps
        return evaluator

    def _some_observations(self) -> NDArray[Any]:
        # Evenly over time: the latest ones alone would come from one plan.
        rows = self._buffer.observations.rows
        return rows[evenly_spaced(len(rows), MAX_POINTS)]

    def _starts(self) -> tuple[int, float | None]:
        """The same, where a cell of a net over the run's observations counts as a state."""
        rows = self._buffer.episode_starts
        if len(rows) == 0:
            return 0, None
        table, rng = self._buffer.observations, np.random.default_rng(REFERENCE_SEED)
        project = Projection(table.shape, rng)
        net = CellNet(project(self._some_observations()), rng)
        cells = net.cells_of(project(table.rows[rows]), rng)
        return len(np.unique(cells)), _unseen_mass(cells)

    def conclude(self) -> None:
        """Warn of what the run has not seen, and of observations that hide what matters."""
        if self._is_aliased() and not self.within_episodes:
            test = self._aliasing
            # Within an episode a hidden state stays what it is, and across episodes it may not.
            reason = (
                "observations look aliased: the same action in the same observation leads to "
                f"what it led to before in the same episode ({test.n_within} times), and to "
                f"something else in the next ({test.n_across} times the other way round). "
                "States that look alike are planned as one: let observations say what differs, "
                "such as the position, the layout or the last few observations "
                "(gymnasium.wrappers.FrameStackObservation)"
            )
            warnings.warn(reason, RoverWarning, stacklevel=2)
        super().conclude()

    def record(self, policy: Policy) -> dict[str, NDArray[Any]]:
        """Distinct observations, thinned evenly, their visits, roll-outs, and novel images."""
        table, arrays = self._buffer.observations, dict(self._data_arrays)
        buffers = {"": self._buffer}
        if self._references:
            buffers["uniform_"] = self._references[0].buffer
        # Of images, and of vectors too long to choose two of their numbers, the slowest features.
        is_plane = len(table.shape) > 1 or (len(table.shape) == 1 and table.shape[0] > _FEW_NUMBERS)
        planes = slow_planes([*buffers.values()]) if is_plane else []
        for number, (whose, buffer) in enumerate(buffers.items()):
            rows = buffer.observations.rows
            # Evenly over the order of first visits, which pictures show as colours.
            keep = evenly_spaced(len(rows), MAX_RECORDED_OBSERVATIONS)
            arrays[f"{whose}visits"] = buffer.visits()[keep]
            arrays[f"{whose}first_steps"] = first_steps(buffer)[keep]
            if is_plane:
                arrays[f"{whose}plane"] = planes[number][keep]
            if rows.ndim < 3:
                arrays[f"{whose}observations"] = rows[keep]
        if len(table.shape) > 1:
            shown = novel_moments(table.rows, _N_FRAMES)
            steps = first_steps(self._buffer)[shown]
            arrays |= {"frames": table.rows[shown], "frame_steps": steps}
        if self._episodes and len(table.shape) == 1:
            drawn = self._episodes[: self._config.evaluation_episodes]
            arrays["rollouts"] = stack_episodes(drawn, self._rollout_horizon)
        return arrays


def _unseen_mass(labels: NDArray[Any]) -> float:
    """Probability that the next of independent draws is none of the labels (n,) seen, n ≥ 1: draws
    seen once over all draws (Good 1953)."""
    counts = np.unique(labels, return_counts=True)[1]
    return float(np.count_nonzero(counts == 1) / len(labels))


def _beside_random(measured: Mapping[str, Any], evaluator: RolloutEvaluator) -> dict[str, Any]:
    figures: dict[str, Any] = {"cell_radius": evaluator.net.radius}
    for name in CELL_FIGURES:
        figures |= {name: measured[name], f"uniform_{name}": evaluator.uniform[name]}
    return figures
