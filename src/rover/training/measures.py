"""Measurements of a run's policies, as far as the environment allows them.

On a finite problem with known dynamics every policy is measured exactly; elsewhere policies are
rolled out now and then beside random actions.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.data import Buffer
from rover.envs import finite_dynamics
from rover.errors import RoverWarning
from rover.evaluation import (
    CellNet,
    FiniteEvaluator,
    Projection,
    RolloutEvaluator,
    compare_outcomes,
    covers_less,
    episode_coverage,
    record_finite,
    record_vectors,
    stack_episodes,
    unseen_mass,
)
from rover.evaluation.finite import TARGET_COVERAGE
from rover.evaluation.rollouts import MAX_POINTS, MAX_ROLLOUT_STEPS
from rover.policies.policy import Policy
from rover.training.environments import fresh_copy, horizon_of, warn_of_limits

MAX_SNAPSHOTS, RECORDED_SNAPSHOTS = 12, 4
MAX_EVALUATED_STATES = 3000
"""States up to which every policy update is measured exactly (J* is a quadratic program)."""

FULL_COVERAGE = "steps_to_full_coverage"
TARGET_REACHED = "steps_to_95_in_20_episodes"
_LATEST_FIGURES = (
    *("coverage", "objective", "optimality_ratio", "renyi2_entropy", "shannon_entropy"),
    "sink_mass",
)
EVALUATION_GROWTH = 1.5
"""Least ratio of the steps of two evaluation points."""
MAX_MEASURED_STEPS = 500
"""Environment steps of a set of roll-outs, but for the rest of its last episode."""
MEASURED_SETS = 5
"""Sets of roll-outs of random actions, and of the policy that is handed over; one of all others."""
FEWEST_SETS = 3
"""The same of a run too short for so many: each then ends after fewer steps, which must be an
episode's, or as many as the discount looks ahead."""
LARGEST_UNSEEN_START_MASS = 0.3
"""Probability of starts that were not seen above which a run warns."""
_ROUNDING = 1e-9
# Steps from which observations that are all the same are warned of.
_FEWEST_STEPS = 20
# Episodes from which this probability is estimated.
_FEWEST_EPISODES = 10

_EVALUATED = (
    *("mean_coverage", "p_coverage_95", "uniform_coverage", "uniform_p_coverage_95"),
    *("optimal_coverage", "optimal_p_coverage_95"),
    *("cells", "uniform_cells", "cell_radius", "knn_entropy", "uniform_knn_entropy"),
    *("cells_error", "uniform_cells_error", "knn_entropy_error", "uniform_knn_entropy_error"),
    *("episode_observations", "uniform_episode_observations"),
    *("episode_objective", "uniform_episode_objective"),
)
# Streams of random numbers, next to those of acting and learning.
_EVALUATION_STREAM, _RECORD_STREAM, _REPEATS_STREAM = 2, 3, 6
# Seed of the episodes of random actions: one for all runs, so that cells can be compared.
_REFERENCE_SEED = 7


@dataclass(frozen=True)
class _Trial:
    """Figures of a policy that may be handed over.

    Attributes:
        spread: greater of a policy that covers more: its cells, or −J where dynamics are known.
        evaluated: its figures.
        worse_than_random: as of :class:`Measures`.
        episodes: observations (T + 1, *shape) of its roll-outs.
    """

    spread: float
    evaluated: dict[str, Any]
    worse_than_random: bool | None
    episodes: list[NDArray[Any]]


class Measures:
    """The measurements of one run.

    Args:
        env: the environment.
        buffer: the run's buffer.
        seed: seed of the run; measuring draws from generators of its own.
        discount: γ of the exact occupancy.
        n_episodes: episodes of each coverage figure.
        every: steps between the costlier figures; None: half as many again each time.
        share: environment steps that roll-outs may make for each step of the run.

    Attributes:
        evaluator: measures policies exactly; None where the states are unknown.
        milestones: steps to what was reached, None where it was not.
        latest: the last metrics line.
        evaluated: the costlier figures, of the last evaluation point or of the run's end.
        worse_than_random: evidence that the policy measured last covers less than uniformly random
            actions do; None where that was not measured.
        within_episodes: whether each episode has a context of its own, so that what counts is
            coverage within it, and policies are rolled out at the end alone.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        buffer: Buffer,
        *,
        seed: int,
        discount: float,
        n_episodes: int,
        every: int | None = None,
        share: float = 0.2,
    ) -> None:
        self._share = share
        # Two budgets, since a run that is made longer must go on as if it had never ended.
        self._spent = 0  # environment steps of roll-outs on the way
        self._spent_at_end = 0  # apart, so that a run that is made longer goes on as if it had been
        self._has_reference = False  # in what was spent on the way
        self._roller: RolloutEvaluator | None = None
        self._short: RolloutEvaluator | None = None
        self._episodes: list[NDArray[Any]] = []
        self._uniform_episodes: list[NDArray[Any]] = []
        self._objective = math.nan
        self._left_out: str | None = None
        self.aliased: bool | None = None
        self.worse_than_random: bool | None = None
        self.within_episodes = False
        self._every = every
        self._env = env
        self._buffer = buffer
        self._seed = seed
        self._discount = discount
        self._n_episodes = n_episodes
        self.milestones: dict[str, int | None] = {FULL_COVERAGE: None, TARGET_REACHED: None}
        self.latest: dict[str, Any] = {}
        self.evaluator: FiniteEvaluator | None = None
        self._next_point = 1
        self.evaluated: dict[str, Any] = {}
        self._states: list[int] = []  # of every row of the table of observations, −1 for none
        problem = finite_dynamics(env)
        warn_of_limits(env, problem, horizon_of(env))
        if problem is not None and problem.dynamics.n_states > MAX_EVALUATED_STATES:
            warnings.warn(
                f"{problem.dynamics.n_states} states are too many to measure every policy exactly "
                f"(limit {MAX_EVALUATED_STATES}); coverage and optimality are not reported",
                RoverWarning,
                stacklevel=2,
            )
        elif problem is not None:
            self.evaluator = FiniteEvaluator(
                problem, discount=discount, horizon=horizon_of(env), n_episodes=n_episodes
            )
            self._state_of = problem.lookup(buffer.observations.dtype)
            _ = self.evaluator.optimum  # a solver that fails says so before the first step
        self._snapshots = _Snapshots()
        self._seen: set[int] = set()
        self._matched = 0

    @cached_property
    def _fresh(self) -> gym.Env[Any, Any] | None:
        """The environment that policies are rolled out in; None where nothing makes it again."""
        return fresh_copy(self._env)

    def _make_rollouts(self, **limits: Any) -> RolloutEvaluator:
        """Measures policies by roll-outs; rolls random actions out."""
        assert self._fresh is not None
        return RolloutEvaluator(
            self._fresh,
            self._buffer.n_actions,
            horizon=min(horizon_of(self._env), MAX_ROLLOUT_STEPS),
            n_episodes=max(2, self._n_episodes),
            rng=np.random.default_rng(_REFERENCE_SEED),
            **limits,
        )

    def _rollouts(self, step: int, *, at_the_end: bool) -> tuple[RolloutEvaluator | None, int]:
        """The evaluator that the run can afford after `step` steps, and the sets of a policy."""
        # A set ends with its last episode, so `longest` is what it may take at most.
        horizon, few = min(horizon_of(self._env), MAX_ROLLOUT_STEPS), max(2, self._n_episodes)
        longest = min(few * horizon, max(2 * horizon, MAX_MEASURED_STEPS - 1 + horizon))
        share = self._share if at_the_end else self._share / 2.0
        # Half of the share on the way leaves the other half for the policy that is handed over.
        allowed = math.floor(share * step) - self._spent - at_the_end * self._spent_at_end
        # Random actions are rolled out once: their net and figures serve every policy.
        is_paid = self._has_reference or (at_the_end and self._roller is not None)
        reference = 0 if is_paid else (1 + MEASURED_SETS) * longest
        if self._short is None and allowed >= reference + (3 if at_the_end else 1) * longest:
            if self._roller is None:
                self._roller = self._make_rollouts(
                    max_steps=MAX_MEASURED_STEPS, n_sets=MEASURED_SETS
                )
            if not is_paid and at_the_end:
                self._spent_at_end += self._roller.reference_steps
            elif not is_paid:
                self._spent += self._roller.reference_steps
                self._has_reference = True
            # As many sets as are left to pay for, since the errors of means need several.
            n_sets = min(MEASURED_SETS, (allowed - reference) // longest)
            return self._roller, n_sets if at_the_end else 1
        if not at_the_end or self._short is not None:
            return None, 0
        # Shorter sets would say nothing of a policy that plans farther ahead than they last.
        least = min(horizon, math.ceil(1.0 / (1.0 - self._discount)))
        short = allowed // (2 * FEWEST_SETS)
        if short < least:
            wanted = math.ceil(200 * FEWEST_SETS * least / max(1, step)) / 100
            self._left_out = (
                f"the policy was not measured: {max(0, allowed):,} steps of roll-outs, a share of "
                f"{self._share:g} of the run's, are too few. Run more steps, or set "
                f"measure_share={wanted:g}"
            )
            return None, 0
        self._short = self._make_rollouts(
            max_steps=short, n_sets=FEWEST_SETS, net_of=self._some_observations()
        )
        self._spent_at_end += self._short.reference_steps
        self._left_out = (
            f"the policy was measured by {FEWEST_SETS} sets of {short} steps only, a share of "
            f"{self._share:g} of the run's. Run more steps, or set measure_share higher"
        )
        return self._short, FEWEST_SETS

    def note(self, step: int) -> None:
        """Count the true states in the buffer after environment step number `step`."""
        table = self._buffer.observations.rows
        if self.evaluator is None or len(table) == self._matched:
            return
        # Only rows that are new since the last call: states are looked up once per observation.
        for row in table[self._matched :]:
            state = self._state_of.get(row.tobytes(), -1)
            self._states.append(state)
            if state >= 0:
                self._seen.add(state)
        self._matched = len(table)
        if len(self._seen) == self.evaluator.n_states and self.milestones[FULL_COVERAGE] is None:
            self.milestones[FULL_COVERAGE] = step

    def measure(
        self, policy: Policy, learned: Mapping[str, Any], *, step: int, episode: int
    ) -> dict[str, Any]:
        """The metrics line of a policy update: nothing in it depends on the clock."""
        table, n_steps = self._buffer.observations, len(self._buffer)
        if n_steps >= _FEWEST_STEPS and len(table) == 1:
            warnings.warn(
                f"all {n_steps + 1:,} observations so far are the same: there is nothing to cover; "
                "check what the environment returns, and that its actions do something",
                RoverWarning,
                stacklevel=2,
            )
        record: dict[str, Any] = {
            "step": step,
            "episode": episode,
            "observations": len(table),
            "states_seen": None if self.evaluator is None else len(self._seen),
        }
        if self.evaluator is not None:
            rng = np.random.default_rng([self._seed, _EVALUATION_STREAM, step])
            tables = policy.tables(self.evaluator.problem.observations)
            figures, trajectories = self.evaluator.report(tables, rng)
            self._snapshots.append(step, trajectories)
            record |= figures
            if figures["coverage"] >= TARGET_COVERAGE and self.milestones[TARGET_REACHED] is None:
                self.milestones[TARGET_REACHED] = step
        # By default points grow geometrically: a run of n steps has O(log n) of them.
        if step >= self._next_point:
            # Where a policy is rolled out, that takes no more steps than were made in between.
            is_measured, cost = self._evaluate(policy, step)
            if is_measured:
                regular = math.ceil(EVALUATION_GROWTH * step)
                if self._every is not None:
                    regular = (step // self._every + 1) * self._every
                self._next_point = max(regular, step + cost)
                record |= self.evaluated
        self.latest = record | dict(learned)
        return self.latest

    def _evaluate(self, policy: Policy, step: int, *, at_the_end: bool = False) -> tuple[bool, int]:
        """Measure the costlier figures of a policy, as far as roll-outs are affordable."""
        # A generator per step, so that figures do not depend on how often was measured before.
        rng = np.random.default_rng([self._seed, _REPEATS_STREAM, step])
        if self.evaluator is not None:
            tables = policy.tables(self.evaluator.problem.observations)
            mean, probability = self.evaluator.repeated(tables, rng)
            self.evaluated = {"mean_coverage": mean, "p_coverage_95": probability}
            figures = self.evaluator.exact_figures(tables, with_optimum=False)
            self._objective = float(figures["objective"])
            # Rounding must not call a policy worse that is uniform itself.
            least = self.evaluator.uniform_objective * (1.0 + _ROUNDING)
            self.worse_than_random = self._objective > least
            if at_the_end and self.latest:  # which are those of the latest policy
                self.evaluated |= self._exact_figures(tables)
            return True, 0
        if self._fresh is None or self.within_episodes:
            return False, 0
        evaluator, n_sets = self._rollouts(step, at_the_end=at_the_end)
        if evaluator is None:
            return False, 0
        self.evaluated, cost = evaluator.report(policy.sample_component, rng, n_sets=n_sets)
        if not at_the_end:
            self._spent += cost
            return True, cost
        self._spent_at_end += cost
        self._episodes, self._uniform_episodes = evaluator.episodes, evaluator.uniform_episodes
        names = ("cells", "cells_error", "uniform_cells", "uniform_cells_error")
        counted = [float(self.evaluated[name]) for name in names]
        self.worse_than_random = covers_less(*counted, n_sets=n_sets)
        return True, cost

    def _exact_figures(self, tables: NDArray[np.float64]) -> dict[str, float]:
        """Coverage and exact figures of a policy, as its metrics line would have them."""
        assert self.evaluator is not None
        rng = np.random.default_rng([self._seed, _EVALUATION_STREAM, self.latest["step"]])
        return self.evaluator.report(tables, rng)[0]

    def starts(self) -> tuple[int, float | None]:
        """Different initial states that were seen, and the probability of all others.

        Where the states are unknown a cell of a net over the run's observations counts as one.
        """
        rows = self._buffer.episode_starts
        if self.evaluator is not None:
            states = np.array(self._states, np.int64)
            return self.evaluator.starts(states[rows[rows < len(states)]])
        if len(rows) == 0:
            return 0, None
        table, rng = self._buffer.observations, np.random.default_rng(_REFERENCE_SEED)
        project = Projection(table.shape, rng)
        net = CellNet(project(self._some_observations()), rng)
        cells = net.cells_of(project(table.rows[rows]), rng)
        return len(np.unique(cells)), unseen_mass(cells)

    def _some_observations(self) -> NDArray[Any]:
        """Up to 5,000 of the run's distinct observations, evenly spaced, that a net is made of."""
        rows = self._buffer.observations.rows
        # Evenly over the time of their first sight: the latest alone would be those of one plan.
        n_kept = min(len(rows), MAX_POINTS)
        return rows[np.linspace(0, len(rows) - 1, n_kept).astype(np.int64)]

    def begin_end(self) -> None:
        """Forget what was measured at an earlier end of the run, which goes on since."""
        self._spent_at_end, self._short, self._left_out = 0, None, None
        self._episodes, self.worse_than_random = [], None

    def try_out(self, policy: Policy, *, step: int) -> _Trial | None:
        """Measure a policy that may be handed over after `step` steps.

        Returns:
            None where it cannot be measured, or no steps are left for that.
        """
        is_measured, _ = self._evaluate(policy, step, at_the_end=True)
        if not is_measured:
            return None
        # J is Σ d², which is least where visits are spread evenly.
        spread = -self._objective if self.evaluator is not None else self.evaluated["cells"]
        return _Trial(spread, self.evaluated, self.worse_than_random, self._episodes)

    def try_out_within(self, policies: Sequence[Policy], *, step: int) -> list[_Trial]:
        """Measure policies that may be handed over after `step` steps within the same episodes.

        Args:
            policies: the last of them acts uniformly at random.
            step: environment steps of the run so far.

        Returns:
            One for each, whose spread are the distinct observations of an episode in the mean; none
            where nothing can be measured, or no steps are left for that.
        """
        horizon = min(horizon_of(self._env), MAX_ROLLOUT_STEPS)
        allowed = (math.floor(self._share * step) - self._spent) // len(policies)
        if self._fresh is None:
            return []
        if allowed < horizon:
            wanted = math.ceil(100 * len(policies) * horizon / max(1, step)) / 100
            self._left_out = (
                f"the policy was not measured: {max(0, allowed):,} steps of roll-outs for each of "
                f"{len(policies)} policies are fewer than an episode's {horizon:,}. Run more "
                f"steps, or set measure_share={wanted:g}"
            )
            return []
        measured = [
            episode_coverage(
                self._fresh,
                policy.sample_component,
                horizon=horizon,
                max_steps=allowed,
                seed=(self._seed, _REPEATS_STREAM, step),
            )
            for policy in policies
        ]
        self._spent_at_end += sum(one["n_steps"] for one in measured)
        names = ("episode_observations", "episode_objective")
        # ‖μ̂‖² of a few episodes is that of the shortest of them: one early end outweighs the rest.
        by_chance = measured[-1]["episode_observations"]
        uniform = {f"uniform_{name}": measured[-1][name] for name in names}
        return [
            _Trial(
                one["episode_observations"],
                self.evaluated | {name: one[name] for name in names} | uniform,
                one["episode_observations"] < by_chance,
                [],
            )
            for one in measured
        ]

    def uniform_trial(self, step: int) -> _Trial:
        """The :class:`_Trial` of uniformly random actions, beside another policy."""
        if self.evaluator is not None:
            rng = np.random.default_rng([self._seed, _REPEATS_STREAM, step])
            tables = self.evaluator.uniform_policy
            mean, probability = self.evaluator.repeated(tables, rng)
            figures = {"mean_coverage": mean, "p_coverage_95": probability}
            if self.latest:
                figures |= self._exact_figures(tables)
            return _Trial(-self.evaluator.uniform_objective, self.evaluated | figures, False, [])
        names = ("cells", "cells_error", "knn_entropy", "knn_entropy_error")
        figures = {name: self.evaluated[f"uniform_{name}"] for name in names}
        episodes = self._uniform_episodes
        return _Trial(figures["cells"], self.evaluated | figures, False, episodes)

    def accept(self, trial: _Trial) -> None:
        """Report what was measured of the policy that is handed over."""
        self.evaluated, self._episodes = trial.evaluated, trial.episodes
        self.worse_than_random = trial.worse_than_random

    def conclude(self) -> None:
        """Warn of what the run has not seen, and of observations that hide what matters."""
        buffer = self._buffer
        # Where dynamics are known observations tell the state, and the test would find nothing.
        if self.evaluator is None and len(buffer):
            # Within an episode a hidden state stays what it is, and across episodes it may not:
            # outcomes that agree more often within one are evidence that something is hidden.
            done = buffer.terminated | buffer.truncated
            test = compare_outcomes(
                buffer.inputs * buffer.n_actions + buffer.actions,
                2 * buffer.successors + buffer.terminated,
                np.cumsum(done) - done,
            )
            self.aliased = test.is_aliased
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
        (count, mass), n_episodes = self.starts(), len(self._buffer.episode_starts)
        # What is priced by all episodes was planned for starts that were never seen.
        if mass is None or mass <= LARGEST_UNSEEN_START_MASS or self.within_episodes:
            return
        if self.evaluator is not None or n_episodes >= _FEWEST_EPISODES:
            estimated = "" if self.evaluator is not None else "about "
            warnings.warn(
                f"{n_episodes} episodes began in {count} different states, and "
                f"{estimated}{mass:.0%} of further episodes will begin in others, for which the "
                "policy was not planned: run more steps, or give the environment fewer starts or "
                "shorter episodes",
                RoverWarning,
                stacklevel=2,
            )

    def summary(self) -> dict[str, Any]:
        """The part of summary.json that says how good the policy is."""
        evaluator, (starts_seen, unseen_start_mass) = self.evaluator, self.starts()
        return {
            "states_total": None if evaluator is None else evaluator.n_states,
            "states_seen": None if evaluator is None else len(self._seen),
            "observations": len(self._buffer.observations),
            **self.milestones,
            **{name: self.latest.get(name) for name in _LATEST_FIGURES},
            "optimum": None if evaluator is None else evaluator.optimum.objective,
            "uniform_ratio": None if evaluator is None else evaluator.uniform_ratio,
            **dict.fromkeys(_EVALUATED),
            **self.evaluated,
            **({} if evaluator is None else evaluator.references),
            "starts_seen": starts_seen,
            "unseen_start_mass": unseen_start_mass,
            "worse_than_random": self.worse_than_random,
            "aliased_observations": self.aliased,
            "measured_steps": self._spent + self._spent_at_end,
            "left_out": self._left_out,
        }

    def record(self, policy: Policy) -> dict[str, NDArray[Any]]:
        """The arrays of evaluation.safetensors; empty where nothing can be drawn."""
        table, visits = self._buffer.observations.rows, self._buffer.visits()
        if self.evaluator is not None:
            rng = np.random.default_rng([self._seed, _RECORD_STREAM])
            tables = policy.tables(self.evaluator.problem.observations)
            arrays = record_finite(self._env, self.evaluator, tables, table, visits, rng)
            return arrays | self._snapshots.record()
        # Images and discrete observations have no plane to be drawn in.
        if table.ndim != 2:
            return {}
        limits = {"horizon": 0, "n_episodes": 0, "seed": 0}
        arrays = record_vectors(None, policy.sample_component, table, visits, **limits)
        if self._episodes:
            longest = min(horizon_of(self._env), MAX_ROLLOUT_STEPS)
            arrays["rollouts"] = stack_episodes(self._episodes[: self._n_episodes], longest)
        return arrays

    def state(self) -> dict[str, Any]:
        """Everything that the next measurement depends on."""
        return {
            "milestones": self.milestones,
            "latest": self.latest,
            "evaluated": self.evaluated,
            "next_point": self._next_point,
            "spent": self._spent,
            "has_reference": self._has_reference,
            "at_end": {
                "spent": self._spent_at_end,
                "left_out": self._left_out,
                "worse_than_random": self.worse_than_random,
                "aliased": self.aliased,
            },
            "snapshots": self._snapshots.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.latest = dict(state["latest"])
        # States are counted anew from the buffer; milestones come after, since counting sets them.
        self.note(int(self.latest["step"]))
        self.milestones = dict(state["milestones"])
        self.evaluated = dict(state["evaluated"])
        self._next_point = int(state["next_point"])
        self._spent = int(state["spent"])
        self._has_reference = bool(state["has_reference"])
        at_end = state["at_end"]
        self._spent_at_end = int(at_end["spent"])
        self._left_out, self.aliased = at_end["left_out"], at_end["aliased"]
        self.worse_than_random = at_end["worse_than_random"]
        self._snapshots.load_state(state["snapshots"])


class _Snapshots:
    """Keeps the episodes of at most twelve policies, spread evenly over all updates so far.

    Whenever there are more, every other one is forgotten, and from then on only every second as
    many are kept: what is kept follows from the number of updates alone, and not from how long the
    run is going to be. The latest policy is always there.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[int, NDArray[np.int16]]] = []
        self._n_seen = 0
        self._stride = 1

    def append(self, step: int, trajectories: NDArray[np.int64]) -> None:
        """Note the episodes (E, H + 1) of the policy after environment step number `step`."""
        if self._entries and (self._n_seen - 1) % self._stride:
            self._entries.pop()  # was there as the latest only
        self._entries.append((step, trajectories.astype(np.int16)))
        if self._n_seen % self._stride == 0 and len(self._entries) > MAX_SNAPSHOTS:
            self._entries = self._entries[::2]
            self._stride *= 2
        self._n_seen += 1

    def record(self) -> dict[str, NDArray[Any]]:
        """snapshot_steps (n,) and snapshot_trajectories (n, E, H + 1), n ≤ 4; empty before any."""
        if not self._entries:
            return {}
        steps = np.array([step for step, _ in self._entries])
        # The steps nearest to an even grid: pictures show a run at equal distances.
        wanted = np.linspace(steps[0], steps[-1], RECORDED_SNAPSHOTS)
        chosen = np.unique(np.abs(steps[None, :] - wanted[:, None]).argmin(axis=1))
        return {
            "snapshot_steps": steps[chosen],
            "snapshot_trajectories": np.stack([self._entries[index][1] for index in chosen]),
        }

    def state(self) -> dict[str, Any]:
        """Everything that is kept."""
        return {
            "steps": [step for step, _ in self._entries],
            "trajectories": [trajectories for _, trajectories in self._entries],
            "n_seen": self._n_seen,
            "stride": self._stride,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self._entries = list(zip(state["steps"], state["trajectories"], strict=True))
        # Episodes are stacked for pictures, which needs one shape and dtype.
        kinds = {(episodes.shape, episodes.dtype) for _, episodes in self._entries}
        if len(kinds) > 1 or not all(isinstance(step, int) for step, _ in self._entries):
            raise ValueError("its snapshots do not fit each other")
        self._n_seen, self._stride = int(state["n_seen"]), int(state["stride"])
