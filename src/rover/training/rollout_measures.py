"""Measurements of policies by roll-outs, where the dynamics are unknown.

Roll-outs are paid for by the run's own steps. A policy is rolled out in sets of episodes, and so
are uniformly random actions, once: they make the net that cells are counted on, and then their own
figures. At the end of a run policies are compared by the cells that they visit.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.arrays import evenly_spaced
from rover.data import Collector
from rover.data.histories import are_aliased
from rover.errors import warn
from rover.evaluation.regret import is_less
from rover.evaluation.rollouts import MEASURED_SETS, RolloutEvaluator
from rover.evaluation.visits import first_steps
from rover.policies.policy import Policy
from rover.training.measures import (
    CELL_FIGURES,
    REFERENCE_SEED,
    REPEATS_STREAM,
    Measures,
    Purpose,
    Trial,
)

# Environment steps of a set of roll-outs, but for the rest of its last episode.
_MAX_SET_STEPS = 500
# Sets of a policy at the end of a run, where there are steps for no more.
_FEWEST_SETS = 3

MAX_RECORDED_OBSERVATIONS = 100_000
"""Distinct observations that are kept for pictures."""


class RolloutMeasures(Measures):
    """Measures policies now and then by roll-outs, beside uniformly random actions."""

    @cached_property
    def _evaluator(self) -> RolloutEvaluator:
        """The net of random actions and their figures: the same for every run and policy."""
        return RolloutEvaluator(
            self.rollout_env,
            self._buffer.n_actions,
            horizon=self._rollout_horizon,
            n_episodes=max(2, self._config.evaluation_episodes),
            max_steps=_MAX_SET_STEPS,
            n_sets=MEASURED_SETS,
            rng=np.random.default_rng(REFERENCE_SEED),
        )

    def _affordable_sets(self, step: int, purpose: Purpose) -> int:
        """Sets of a policy that there are steps for; 0 where there are too few.

        The sets of random actions come first, once: one for the net, and the reference's. During
        the run, where nothing is chosen by the figures, one set of a policy is enough.
        """
        # As many sets as are left to pay for, since the errors of means need several.
        fewest, most = (_FEWEST_SETS, MEASURED_SETS) if purpose == "end" else (1, 1)
        horizon, steps = self._rollout_horizon, self._allowed(step, purpose)
        # A set ends with its last episode.
        n_episodes = max(2, self._config.evaluation_episodes)
        longest = min(n_episodes * horizon, max(2 * horizon, _MAX_SET_STEPS - 1 + horizon))
        n_random = 0 if self._has_random(purpose) else 1 + MEASURED_SETS
        n_sets = min(most, steps // longest - n_random)
        if n_sets >= fewest:
            return n_sets
        if purpose == "end":
            self._leave_out(step, needed=(n_random + fewest) * longest)
        return 0

    def _has_random(self, purpose: Purpose) -> bool:
        """True if random actions are paid for, which serve every policy."""
        return self._progress.steps["points"] > 0 or self._progress.steps[purpose] > 0

    def _roll_out(self, policy: Policy, step: int, purpose: Purpose, n_sets: int) -> dict[str, Any]:
        """Figures of a policy beside random actions."""
        evaluator, spent = self._evaluator, self._progress.steps
        if not self._has_random(purpose):
            spent[purpose] += evaluator.reference_steps
        # By the step: figures do not depend on how often was measured before.
        rng = np.random.default_rng([self._seed, REPEATS_STREAM, step])
        measured = evaluator.measure(policy.sample_component, rng, n_sets=n_sets)
        spent[purpose] += measured["n_steps"]
        figures: dict[str, Any] = {"cell_radius": evaluator.net.radius}
        for name in CELL_FIGURES:
            figures |= {name: measured[name], f"uniform_{name}": evaluator.uniform[name]}
        return figures

    def is_due(self, step: int) -> bool:
        """True at evaluation points that there are steps for."""
        # An instance is stepped by the run alone, until its end.
        if step < self._progress.next_point or self.within_episodes:
            return False
        if self.rollout_env is self._env:
            return False
        return self._affordable_sets(step, "points") > 0

    def _measure(self, policy: Policy, step: int, *, is_point: bool) -> dict[str, Any]:
        self._progress.evaluated = self._roll_out(policy, step, "points", 1)
        return {}

    def try_out(self, policy: Policy, step: int) -> Trial | None:
        """Beside random actions by visited cells, or within episodes."""
        if self.within_episodes:
            return self._try_out_within(policy, step)
        n_sets = self._affordable_sets(step, "end")
        if n_sets == 0:
            return None
        figures = self._roll_out(policy, step, "end", n_sets)
        means = figures["cells"], figures["uniform_cells"]
        is_worse = is_less(means, (figures["cells_error"], figures["uniform_cells_error"]), n_sets)
        words = "{:.0f} visited cells, random actions {:.0f}".format(*means)
        return Trial(means[0], words, figures, is_worse, self._evaluator.episodes)

    def measure_data(self, run: Collector, *, n_replayed: int = 0) -> bool:
        """Measure the transitions of the run, and warn of observations that hide what matters."""
        is_behind = super().measure_data(run, n_replayed=n_replayed)
        self._progress.aliased = are_aliased(self._buffer)
        if self._progress.aliased and not self.within_episodes:
            # Within an episode a hidden state stays what it is, and across episodes it may not.
            warn(
                "observations look aliased: the same action in the same observation leads to what "
                "it led to before in the same episode, and to something else in another. States "
                "that look alike are planned as one: let observations say what differs, such as "
                "the position, the layout or the last few observations "
                "(gymnasium.wrappers.FrameStackObservation)",
                stacklevel=2,
            )
        return is_behind

    def record(self, policy: Policy) -> dict[str, NDArray[Any]]:
        """Distinct observations, thinned evenly, their visits, and roll-outs."""
        arrays = dict(self._data_arrays)
        for whose, buffer in self._compared.items():
            rows = buffer.observations.rows
            # Evenly over the order of first visits, which pictures show as colours.
            keep = evenly_spaced(len(rows), MAX_RECORDED_OBSERVATIONS)
            arrays[f"{whose}visits"] = buffer.visits()[keep]
            arrays[f"{whose}first_steps"] = first_steps(buffer)[keep]
            if rows.ndim < 3:
                arrays[f"{whose}observations"] = rows[keep]
        if self._episodes and len(self._buffer.observations.shape) == 1:
            drawn = self._episodes[: self._config.evaluation_episodes]
            longest = self._rollout_horizon + 1
            # (E, T + 1, d), NaN behind the end of an episode.
            arrays["rollouts"] = np.full((len(drawn), longest, *drawn[0].shape[1:]), np.nan)
            for row, episode in zip(arrays["rollouts"], drawn, strict=True):
                row[: len(episode)] = episode
        return arrays
