"""Measurements of policies by roll-outs, which may take a share of the run's own steps."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.data import Buffer
from rover.errors import RoverWarning
from rover.evaluation import (
    CellNet,
    Projection,
    RolloutEvaluator,
    aliasing_of,
    covers_less,
    evenly_spaced,
    stack_episodes,
    unseen_mass,
)
from rover.evaluation.cells import MAX_POINTS
from rover.policies.policy import Policy
from rover.training.config import AgentConfig
from rover.training.measures import CELL_FIGURES, REPEATS_STREAM, Account, Measures, Trial

MEASURED_SETS = 5
"""Sets of roll-outs of random actions, and of the policy that is handed over; one of all others."""
MAX_RECORDED_OBSERVATIONS = 100_000
"""Distinct observations that are kept for pictures."""

# Environment steps of a set of roll-outs, but for the rest of its last episode.
_MAX_SET_STEPS = 500
# Sets of a run too short for five whole ones, each broken off after fewer steps; these must be an
# episode's, or as many as the discount looks ahead.
_FEWEST_SETS = 3
# Seed of the episodes of random actions: one for all runs, so that cells can be compared.
_REFERENCE_SEED = 7


class RolloutMeasures(Measures):
    """Measures policies now and then by roll-outs, beside uniformly random actions."""

    def __init__(
        self, env: gym.Env[Any, Any], buffer: Buffer, config: AgentConfig, *, seed: int
    ) -> None:
        super().__init__(env, buffer, config, seed=seed)
        self._n_episodes = max(2, config.evaluation_episodes)
        # A set ends with its last episode, so this is what it may take at most.
        horizon = self._rollout_horizon
        self._longest_set = min(
            self._n_episodes * horizon, max(2 * horizon, _MAX_SET_STEPS - 1 + horizon)
        )
        # Cells can be compared on one net alone, so an end of the run has one evaluator.
        self._evaluator_of_end: RolloutEvaluator | None = None

    @cached_property
    def _evaluator(self) -> RolloutEvaluator:
        """Whole sets, on the net of random actions: the same for every run and policy."""
        return self._make_evaluator(max_steps=_MAX_SET_STEPS, n_sets=MEASURED_SETS)

    def _make_evaluator(self, **limits: Any) -> RolloutEvaluator:
        assert self._rollout_env is not None
        return RolloutEvaluator(
            self._rollout_env,
            self._buffer.n_actions,
            horizon=self._rollout_horizon,
            n_episodes=self._n_episodes,
            rng=np.random.default_rng(_REFERENCE_SEED),
            **limits,
        )

    def _affordable_sets(self, step: int, *, at_the_end: bool) -> int:
        """Whole sets of a policy that there are steps for; 0 where there are too few.

        The sets of random actions are paid for before, unless that is done: one for the net, and
        those of the reference. On the way one set of a policy is enough, which nothing is chosen
        by.
        """
        steps = self._allowed(step, at_the_end=at_the_end)
        is_paid = self._on_the_way.has_reference
        if not (is_paid or (at_the_end and self._at_the_end.has_reference)):
            steps -= (1 + MEASURED_SETS) * self._longest_set
        # As many sets as are left to pay for, since the errors of means need several.
        fewest, most = (_FEWEST_SETS, MEASURED_SETS) if at_the_end else (1, 1)
        n_sets = min(most, steps // self._longest_set)
        return n_sets if n_sets >= fewest else 0

    def _measure(
        self, policy: Policy, step: int, *, is_point: bool
    ) -> tuple[dict[str, Any], int | None]:
        if not is_point or self.within_episodes or self._rollout_env is None:
            return {}, None
        n_sets = self._affordable_sets(step, at_the_end=False)
        if n_sets == 0:
            return {}, None
        self._pay_for_reference(self._on_the_way)
        self._evaluated, cost = self._roll_out(self._evaluator, policy, step, n_sets)
        self._on_the_way.steps += cost
        return {}, cost

    def begin_end(self) -> None:
        """Forget what was measured at an earlier end of the run, which goes on since."""
        super().begin_end()
        self._evaluator_of_end = None

    def try_out(self, policy: Policy | None, step: int) -> Trial | None:
        """Measure a policy that may be handed over; None: uniformly random actions."""
        if self._rollout_env is None or self.within_episodes:
            return None
        if policy is None:
            # Uniform actions were rolled out as the reference already, and cost nothing again.
            return self._uniform_trial()
        n_sets = self._affordable_sets(step, at_the_end=True)
        if self._evaluator_of_end is None and n_sets > 0:
            self._pay_for_reference(self._at_the_end)
            self._evaluator_of_end = self._evaluator
        elif self._evaluator_of_end is None:
            self._evaluator_of_end, n_sets = self._short_evaluator(step), _FEWEST_SETS
        evaluator = self._evaluator_of_end
        if evaluator is None or n_sets == 0:
            return None
        figures, cost = self._roll_out(evaluator, policy, step, n_sets)
        self._at_the_end.steps += cost
        is_worse = covers_less(figures, n_sets=n_sets)
        return Trial(figures["cells"], figures, is_worse, evaluator.episodes)

    def _pay_for_reference(self, account: Account) -> None:
        """Charge the episodes of random actions, which serve every policy, once."""
        if not (self._on_the_way.has_reference or account.has_reference):
            account.has_reference = True
            account.steps += self._evaluator.reference_steps

    def _roll_out(
        self, evaluator: RolloutEvaluator, policy: Policy, step: int, n_sets: int
    ) -> tuple[dict[str, Any], int]:
        """Figures of a policy and of random actions, and the environment steps of the policy."""
        rng = np.random.default_rng([self._seed, REPEATS_STREAM, step])
        measured = evaluator.measure(policy.sample_component, rng, n_sets=n_sets)
        return _beside_random(measured, evaluator), measured["n_steps"]

    def _uniform_trial(self) -> Trial | None:
        evaluator = self._evaluator_of_end
        if evaluator is None:
            return None
        figures = _beside_random(evaluator.uniform, evaluator)
        return Trial(figures["cells"], figures, False, evaluator.uniform_episodes)

    def _short_evaluator(self, step: int) -> RolloutEvaluator | None:
        """Three short sets, on a net of the run's own observations; None if too short to tell."""
        discount, allowed = self._config.discount, self._allowed(step, at_the_end=True)
        assert discount is not None
        # Shorter sets would say nothing of a policy that plans farther ahead than they last.
        least = min(self._rollout_horizon, math.ceil(1.0 / (1.0 - discount)))
        # Half for random actions and half for the policy, three sets each.
        short, share = allowed // (2 * _FEWEST_SETS), f"{self._config.measure_share:g}"
        if short < least:
            needed = 2 * _FEWEST_SETS * least
            self._left_out = (
                f"the policy was not measured: {max(0, allowed):,} steps of roll-outs, a share of "
                f"{share} of the run's, are too few. Run more steps, or set "
                f"measure_share={math.ceil(100 * needed / step) / 100:g}"
            )
            return None
        self._left_out = (
            f"the policy was measured by {_FEWEST_SETS} sets of {short} steps only, a share of "
            f"{share} of the run's. Run more steps, or set measure_share higher"
        )
        evaluator = self._make_evaluator(
            max_steps=short, n_sets=_FEWEST_SETS, net_of=self._some_observations()
        )
        self._at_the_end.steps += evaluator.reference_steps
        return evaluator

    def _some_observations(self) -> NDArray[Any]:
        # Evenly over the time of their first sight: the latest alone would be those of one plan.
        rows = self._buffer.observations.rows
        return rows[evenly_spaced(len(rows), MAX_POINTS)]

    def _starts(self) -> tuple[int, float | None]:
        """The same, where a cell of a net over the run's observations counts as a state."""
        rows = self._buffer.episode_starts
        if len(rows) == 0:
            return 0, None
        table, rng = self._buffer.observations, np.random.default_rng(_REFERENCE_SEED)
        # With a generator of its own, so that figures do not depend on what was measured
        # before.
        project = Projection(table.shape, rng)
        net = CellNet(project(self._some_observations()), rng)
        cells = net.cells_of(project(table.rows[rows]), rng)
        return len(np.unique(cells)), unseen_mass(cells)

    def conclude(self) -> None:
        """Warn of what the run has not seen, and of observations that hide what matters."""
        # Within an episode a hidden state stays what it is, and across episodes it may not:
        # outcomes that agree more often within one are evidence that something is hidden.
        test = aliasing_of(self._buffer)
        self._aliased = test.is_aliased
        if test.is_aliased and not self.within_episodes:
            warnings.warn(
                "observations look aliased: the same action in the same observation leads to "
                f"what it led to before in the same episode ({test.n_within} times), and to "
                f"something else in the next ({test.n_across} times the other way round). "
                "States that look alike are planned as one: let observations say what differs, "
                "such as the position, the layout or the last few observations "
                "(gymnasium.wrappers.FrameStackObservation)",
                RoverWarning,
                stacklevel=2,
            )
        super().conclude()

    def record(self, policy: Policy) -> dict[str, NDArray[Any]]:
        """Distinct observations (N, d), thinned evenly, their visits (N,), and the roll-outs."""
        rows = self._buffer.observations.rows
        # Images and discrete observations have no plane to be drawn in.
        if rows.ndim != 2:
            return {}
        # Evenly over the order of first visits, which pictures show as colours.
        keep = evenly_spaced(len(rows), MAX_RECORDED_OBSERVATIONS)
        arrays = {"observations": rows[keep], "visits": self._buffer.visits()[keep]}
        if self._episodes:
            drawn = self._episodes[: self._config.evaluation_episodes]
            arrays["rollouts"] = stack_episodes(drawn, self._rollout_horizon)
        return arrays


def _beside_random(measured: Mapping[str, Any], evaluator: RolloutEvaluator) -> dict[str, Any]:
    figures: dict[str, Any] = {"cell_radius": evaluator.net.radius}
    for name in CELL_FIGURES:
        figures |= {name: measured[name], f"uniform_{name}": evaluator.uniform[name]}
    return figures
