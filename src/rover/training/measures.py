"""Measurements of a run's policies and of its data.

- After an update (:meth:`Measures.measure`): a metrics line. Figures that cost little are measured
  after every update, the others at evaluation points, whose distances grow geometrically.
- At the end of the run (:meth:`Measures.choose`): the final policy beside random actions.
- Of the data (:meth:`Measures.measure_data`): what all transitions visited, beside random actions.

Policies are measured exactly where the dynamics are known (:class:`ExactMeasures`), and else by
roll-outs (:class:`~rover.training.rollout_measures.RolloutMeasures`), which may make a share of the
run's own steps. Random numbers come from streams of their own, so that measuring changes nothing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rover.data import Buffer, Collector
from rover.envs import Environment, FiniteMDP, horizon_of, map_arrays
from rover.errors import warn
from rover.evaluation import FiniteEvaluator, PolicyChain, policy_occupancy
from rover.evaluation.finite import ENDED, TARGET_COVERAGE
from rover.evaluation.rollouts import MAX_ROLLOUT_STEPS, SampleComponent, episode_coverage
from rover.evaluation.visits import DATA_FIGURES, data_coverage, first_steps, random_references
from rover.operators import Objective
from rover.policies.policy import Policy
from rover.training.config import AgentConfig
from rover.world.world import repeats

# Share of a run's steps up to which all that are not its own are made where steps are slow (and
# `measure_share` of its policies', if that is more).
_SLOW_SHARE = 0.3
# Share of the states of random actions below which a run of so many steps visits too few.
_FEWER, _FEWEST_RUN = 0.9, 500

# Known states up to which every update is measured exactly, and not at evaluation points alone.
_ALWAYS_MEASURED = 500

# In the files of a finished run.
_RECORDED_SNAPSHOTS, _RECORDED_TRAJECTORIES = 4, 50
# Least ratio of the steps of two evaluation points.
_EVALUATION_GROWTH = 1.5
# Steps from which observations that are all the same are warned of.
_FEWEST_STEPS = 20
# Relative error of J, by which a policy that is uniform itself may be above random actions.
_ROUNDING = 1e-9

REFERENCE_SEED = 7
"""Seed of the episodes of random actions: one for all runs, so that cells can be compared."""

EVALUATION_STREAM, REPEATS_STREAM, RECORD_STREAM = 2, 6, 3
"""Streams of random numbers, besides acting and learning."""

_STREAMS = EVALUATION_STREAM, REPEATS_STREAM

_LATEST_FIGURES = (
    *("coverage", "objective", "optimality_ratio", "renyi2_entropy", "shannon_entropy"),
    "sink_mass",
)
Purpose = Literal["points", "end", "data"]
"""The purpose of steps that are not the run's: points of evaluation, its end, its data."""

CELL_FIGURES = "cells", "cells_error"
_EPISODE_FIGURES = "episode_observations", "episode_objective"
_EVALUATED = (
    *("mean_coverage", "p_coverage_95", "cell_radius"),
    *(f"{whose}{name}" for name in CELL_FIGURES + _EPISODE_FIGURES for whose in ("", "uniform_")),
    *("uniform_coverage", "uniform_p_coverage_95", "optimal_coverage", "optimal_p_coverage_95"),
    *("states_total", "optimum", "uniform_ratio"),
)


class FinalPolicy(NamedTuple):
    """A policy that a run returns in place of its latest one, and the step it was planned after."""

    policy: Policy
    step: int


@dataclass(frozen=True)
class Trial:
    """Figures of a candidate for the final policy: its spread, greater where it covers more (−J of
    J); the same in words, beside random actions'; `figures` for the summary; `episodes`,
    observations (T + 1, *shape) of its roll-outs."""

    spread: float
    words: str
    figures: dict[str, Any]
    worse_than_random: bool
    episodes: Sequence[NDArray[Any]] = ()


@dataclass
class _Progress:
    """Everything that the next measurement depends on, for checkpoints."""

    # Environment steps that were not the run's, by what they were made for: policies' fall under
    # `measure_share`. Steps of an end are counted apart, since a run that is made longer goes on as
    # if it had never ended.
    steps: dict[Purpose, int] = field(default_factory=lambda: {"points": 0, "end": 0, "data": 0})
    next_point: int = 1  # the first step that may be an evaluation point
    evaluated: dict[str, Any] = field(default_factory=dict)  # the costlier figures
    left_out: str | None = None  # what was not measured, and why
    worse_than_random: bool | None = None
    aliased: bool | None = None
    data_figures: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(DATA_FIGURES))
    # Step and sampled episodes (E, H + 1) of each evaluation point, where states are known.
    snapshots: list[tuple[int, NDArray[np.int16]]] = field(default_factory=list)
    target_reached: int | None = None  # the first step with 95% coverage


class Measures(ABC):
    """The measurements of one run.

    Args:
        environment: that the run learns in.
        buffer: the run's buffer.
        config: the agent's settings.
        seed: of the run.

    Attributes:
        evaluator: measures policies exactly; None where the states are unknown.
        states_seen: different states in the buffer; None where they are unknown.
        latest: the last metrics line.
        within_episodes: each episode has a context of its own, so that coverage within it counts,
            and policies are rolled out at the end alone.
    """

    evaluator: FiniteEvaluator | None = None
    states_seen: int | None = None

    def __init__(
        self, environment: Environment, buffer: Buffer, config: AgentConfig, *, seed: int
    ) -> None:
        # What policies are rolled out in: another instance, or at the end of the run its own, whose
        # episode is then played again if the run goes on.
        self._env = self.rollout_env = environment.env
        if config.measure_share > 0.0:
            self.rollout_env = environment.another() or self._env
        self._buffer, self._config, self._seed = buffer, config, seed
        self.within_episodes = False
        self.latest: dict[str, Any] = {}
        self._progress = _Progress()
        self._episodes: Sequence[NDArray[Any]] = ()
        self._data_arrays: dict[str, NDArray[Any]] = {}
        self._compared = {"": buffer}  # transitions of the run, and of random actions

    @property
    def _rollout_horizon(self) -> int:
        """Steps of a roll-out, by what the run's own episodes show of the environment's limit."""
        return min(horizon_of(self._env, longest=self._buffer.longest_episode), MAX_ROLLOUT_STEPS)

    @abstractmethod
    def is_due(self, step: int) -> bool:
        """True if :meth:`measure` after `step` steps looks at the policy."""

    def measure(
        self, policy: Policy, learned: Mapping[str, Any], *, step: int, episode: int
    ) -> dict[str, Any]:
        """The metrics line of an update: nothing in it depends on the clock."""
        n_observations = len(self._buffer.observations)
        if n_observations == 1 and step >= _FEWEST_STEPS:
            warn(
                f"all {step + 1:,} observations so far are the same: there is nothing to cover; "
                "check what the environment returns, and that its actions do something",
                stacklevel=2,
            )
        figures: dict[str, Any] = {}
        if self.is_due(step):
            is_point = step >= self._progress.next_point
            figures = self._measure(policy, step, is_point=is_point)
            if is_point:
                # By default points grow geometrically: a run of n steps has O(log n) of them.
                every, following = self._config.evaluation_every, _EVALUATION_GROWTH * step
                if every is not None:
                    following = (step // every + 1) * every
                self._progress.next_point = math.ceil(following)
                figures |= self._progress.evaluated
        self.latest = {
            "step": step,
            "episode": episode,
            "observations": n_observations,
            "states_seen": self.states_seen,
            **figures,
            **learned,
        }
        return self.latest

    @abstractmethod
    def _measure(self, policy: Policy, step: int, *, is_point: bool) -> dict[str, Any]:
        """The cheap figures of a policy; the costlier ones are set at an evaluation point."""

    def choose(self, policy: Policy, best: FinalPolicy | None, step: int) -> FinalPolicy | None:
        """Measure the last policy of a run that has ended; `best`, the best one that was measured,
        where that is better, else None.

        Policies are compared where random actions cover more than the last one: elsewhere a choice
        would follow the noise of the roll-outs, or an exact J that no agent knows.
        """
        progress = self._progress
        # An earlier end of this run spent steps and left figures that no longer count.
        progress.steps["end"], progress.left_out = 0, None
        progress.worse_than_random, self._episodes = None, ()
        last, chosen = self.try_out(policy, step), None
        if last is None:
            return None
        trial = last
        if last.worse_than_random:
            other = None if best is None else self.try_out(best.policy, step)
            instead = "it is returned all the same"
            if best is not None and other is not None and other.spread > last.spread:
                trial, chosen = other, best
                instead = f"the policy of step {best.step} is returned instead ({other.words})"
            warn(
                f"the policy of step {step} covers less than uniformly random actions do "
                f"({last.words}): {instead}. Run more steps; let "
                "observations show all that matters; or use the transitions of the run, which "
                "do not depend on the policy (rover solve, rover finetune --offline)",
                stacklevel=5,
            )
        progress.evaluated, self._episodes = trial.figures, trial.episodes
        progress.worse_than_random = trial.worse_than_random
        return chosen

    @abstractmethod
    def try_out(self, policy: Policy, step: int) -> Trial | None:
        """Measure a candidate for the final policy beside uniformly random actions; None where it
        cannot be measured, or no steps are left for that."""

    def _try_out_within(self, policy: Policy, step: int) -> Trial | None:
        """The same by coverage within the same episodes."""
        env, horizon = self.rollout_env, self._rollout_horizon
        # Half for random actions: both are measured on the same contexts, as many of each.
        limit = self._allowed(step, "end") // 2
        if limit < horizon:
            self._leave_out(step, needed=2 * horizon)
            return None

        def measured(component: SampleComponent) -> dict[str, Any]:
            seed = self._seed, REPEATS_STREAM, step
            found = episode_coverage(env, component, horizon=horizon, max_steps=limit, seed=seed)
            self._progress.steps["end"] += found["n_steps"]
            return {name: found[name] for name in _EPISODE_FIGURES}

        n = self._buffer.n_actions
        uniform = measured(lambda _: lambda seen: np.full((len(seen), n), 1.0 / n))
        figures = measured(policy.sample_component)
        # In ‖μ̂‖² of a few episodes the shortest one outweighs the rest.
        spread, by_chance = (one["episode_observations"] for one in (figures, uniform))
        beside = {f"uniform_{name}": value for name, value in uniform.items()}
        words = f"{spread:.0f} observations of an episode, random actions {by_chance:.0f}"
        shown = {**self._progress.evaluated, **figures, **beside}
        return Trial(spread, words, shown, worse_than_random=spread < by_chance)

    def _allowed(self, step: int, purpose: Purpose) -> int:
        """Environment steps that roll-outs may make after `step` steps of the run."""
        # Roll-outs are paid for by steps already made, so that a run's cost is bounded at any time.
        share, spent = self._config.measure_share, self._progress.steps
        if purpose == "end":
            return math.floor(share * step) - spent["points"] - spent["end"]
        # The other half of the share remains for the final policy.
        return math.floor(share / 2.0 * step) - spent["points"]

    def _leave_out(self, step: int, *, needed: int) -> None:
        """Note that the final policy is not measured, whose roll-outs would need so many steps."""
        share, reason = self._config.measure_share, "measure_share=0"
        if share > 0.0:
            reason = (
                f"its roll-outs need {needed:,} steps, more than the evaluation budget of "
                f"{share:.0%} of the run has. Run {needed / share:,.0f} steps, or set "
                f"measure_share={math.ceil(100 * needed / step) / 100:g}"
            )
        self._progress.left_out = f"the policy was not measured: {reason}"

    def _full_coverage(self) -> int | None:
        """Steps after which all states were in the buffer; None: not yet, or unknown."""
        return None

    def measure_data(self, run: Collector, *, n_replayed: int = 0) -> bool:
        """Measure the transitions of the run beside as many of random actions; `n_replayed` steps
        were played again. True if it visited clearly fewer states than these."""
        references: list[Collector] = []
        progress, n = self._progress, len(self._buffer)
        progress.steps["data"] = n_replayed
        if self._config.measure_share > 0.0:
            allowed = math.floor(_SLOW_SHARE * n) - sum(progress.steps.values())
            references = random_references(
                self.rollout_env, run, n_steps=n, allowed=allowed, seed=REFERENCE_SEED
            )
            self._compared["uniform_"] = references[0].buffer
            progress.steps["data"] += sum(len(one.buffer) for one in references)
        progress.data_figures, self._data_arrays = figures, curves = data_coverage(
            run,
            references,
            # The reference decides, which is one for all runs, so that their figures have one unit.
            repeats=repeats([*self._compared.values()][-1]),
            states_of=None if self.evaluator is None else self.evaluator.problem.states_of,
        )
        is_counted = references and figures["visited_unit"] in ("states", "observations")
        if not is_counted or figures["compared_steps"] < _FEWEST_RUN:
            return False
        return bool(curves["visited"][-1] < _FEWER * curves["uniform_visited"][-1])

    def summary(self) -> dict[str, Any]:
        """The part of summary.json that says how good policy and data are."""
        evaluator, progress = self.evaluator, self._progress
        return {
            "states_seen": self.states_seen,
            "observations": len(self._buffer.observations),
            **progress.data_figures,
            "steps_to_full_coverage": self._full_coverage(),
            "steps_to_95_in_20_episodes": progress.target_reached,
            **{name: self.latest.get(name) for name in _LATEST_FIGURES},
            **dict.fromkeys(_EVALUATED),
            **progress.evaluated,
            **({} if evaluator is None else evaluator.references),
            "worse_than_random": progress.worse_than_random,
            "aliased_observations": progress.aliased,
            "measured_steps": progress.steps["points"] + progress.steps["end"],
            "reference_steps": progress.steps["data"],
            "left_out": progress.left_out,
        }

    @abstractmethod
    def record(self, policy: Policy) -> dict[str, NDArray[Any]]:
        """The arrays of evaluation.safetensors."""

    def state(self) -> dict[str, Any]:
        """Everything that the next measurement depends on."""
        return {"latest": self.latest, "progress": asdict(self._progress)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.latest, self._progress = state["latest"], _Progress(**state["progress"])


class ExactMeasures(Measures):
    """Measures every policy exactly, under known dynamics."""

    evaluator: FiniteEvaluator

    def __init__(
        self,
        environment: Environment,
        buffer: Buffer,
        config: AgentConfig,
        problem: FiniteMDP,
        *,
        seed: int,
        objective: Objective,
    ) -> None:
        super().__init__(environment, buffer, config, seed=seed)
        assert config.discount is not None
        self.evaluator = FiniteEvaluator(
            problem,
            discount=config.discount,
            horizon=horizon_of(self._env),
            n_episodes=config.evaluation_episodes,
            objective=objective,
        )
        _ = self.evaluator.uniform  # a solver that fails says so before the first step
        self._observations = problem.observations
        self.states_seen = 0
        self._states = np.zeros(0, np.int64)  # of each observation in the buffer, −1 for none
        self._n_compared = 0  # transitions that the table was compared with

    def refutation(self) -> str:
        """Look up the states of what is new in the buffer: a step since the last call that the
        table of dynamics has no probability for; empty: none."""
        buffer, since = self._buffer, self._n_compared
        self._n_compared = len(buffer)
        # Only rows that are new since the last call: states are looked up once per observation.
        fresh = buffer.observations.rows[len(self._states) :]
        if len(fresh):
            self._states = np.append(self._states, self.evaluator.problem.states_of(fresh))
            self.states_seen = len(np.unique(self._states[self._states >= 0]))
        states = self._states
        begun, reached = states[buffer.inputs[since:]], states[buffer.successors[since:]]
        for action, matrix in enumerate(self.evaluator.problem.dynamics.transition):
            some = (buffer.actions[since:] == action) & (begun >= 0) & (reached >= 0)
            for x, y in {*zip(begun[some].tolist(), reached[some].tolist(), strict=True)}:
                if matrix[x, y] == 0.0:
                    return f"from state {x} by action {action} to state {y}"
        return ""

    def _full_coverage(self) -> int | None:
        if self.states_seen != self.evaluator.n_states:
            return None
        return int(first_steps(self._buffer, self._states).max())

    def is_due(self, step: int) -> bool:
        """True at evaluation points, and always where states are few."""
        return step >= self._progress.next_point or self.evaluator.n_states <= _ALWAYS_MEASURED

    def _measure(self, policy: Policy, step: int, *, is_point: bool) -> dict[str, Any]:
        tables, progress = policy.tables(self._observations), self._progress
        # By the step: figures do not depend on how often was measured before.
        rng, again = (np.random.default_rng([self._seed, one, step]) for one in _STREAMS)
        # One set of episodes, as a user would see them; its expectation is the costlier figure.
        shares, episodes = self.evaluator.coverage(tables, 1, rng)
        figures = {"coverage": float(shares[0]), **self.evaluator.exact_figures(tables)}
        if progress.target_reached is None and figures["coverage"] >= TARGET_COVERAGE:
            progress.target_reached = step
        if is_point:
            progress.snapshots.append((step, episodes.astype(np.int16)))
            progress.evaluated = self.evaluator.repeated(tables, again)
        return figures

    def try_out(self, policy: Policy, step: int) -> Trial | None:
        """Beside random actions by the exact J, or within episodes."""
        if self.within_episodes:
            return self._try_out_within(policy, step)
        evaluator, tables = self.evaluator, policy.tables(self._observations)
        # As in the latest metrics line, if that is of this policy.
        steps = zip(_STREAMS, (self.latest.get("step", step), step), strict=True)
        rng, again = (np.random.default_rng([self._seed, *one]) for one in steps)
        figures: dict[str, Any] = evaluator.repeated(tables, again)
        exact = evaluator.exact_figures(tables)
        figures |= exact | {"coverage": float(evaluator.coverage(tables, 1, rng)[0][0])}
        objective, by_chance = exact["objective"], evaluator.uniform["objective"]
        words = f"J = {objective:.3g}, random actions {by_chance:.3g}"
        is_worse = objective > by_chance * (1.0 + _ROUNDING)
        return Trial(-objective, words, figures, worse_than_random=is_worse)

    def record(self, policy: Policy) -> dict[str, NDArray[Any]]:
        """Arrays over the S true states, the map where there is one, and the snapshots."""
        evaluator, tables = self.evaluator, policy.tables(self._observations)
        problem, uniform = evaluator.problem, evaluator.uniform_policy
        dynamics, discount, n_states = problem.dynamics, evaluator.discount, evaluator.n_states
        trajectories = PolicyChain(dynamics, tables).trajectories(
            _RECORDED_TRAJECTORIES,
            horizon=evaluator.horizon,
            rng=np.random.default_rng([self._seed, RECORD_STREAM]),
        )
        arrays = {
            "policy_probs": policy.probs(self._observations),
            "occupancy": policy_occupancy(dynamics, tables, discount=discount),
            "optimal_occupancy": evaluator.optimum.state_occupancy,
            "uniform_occupancy": policy_occupancy(dynamics, uniform, discount=discount),
            "trajectories": trajectories,
            "sampled_visits": np.bincount(trajectories[trajectories != ENDED], minlength=n_states),
            **map_arrays(self._env, self._observations),
            **self._data_arrays,
        }
        for whose, buffer in self._compared.items():
            states = problem.states_of(buffer.observations.rows)
            # Noise may make one state look like several observations: their visits are added.
            arrays[f"{whose}buffer_visits"] = np.bincount(
                states[states >= 0], buffer.visits()[states >= 0], minlength=n_states
            ).astype(np.int64)
        if self._progress.snapshots:
            steps, episodes = zip(*self._progress.snapshots, strict=True)
            # The steps nearest to an even grid: pictures show a run at equal distances.
            wanted = np.linspace(steps[0], steps[-1], _RECORDED_SNAPSHOTS)
            chosen = np.unique(np.abs(np.subtract.outer(wanted, steps)).argmin(axis=1))
            arrays["snapshot_steps"] = np.array(steps)[chosen]
            arrays["snapshot_trajectories"] = np.stack([episodes[index] for index in chosen])
        return arrays
