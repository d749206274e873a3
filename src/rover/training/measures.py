"""Measurements of a run's policies: exact where the dynamics are known, else by roll-outs.

Roll-outs may take a share of the run's own steps.

Of few known states every update of the policy is measured; of others, and by the costlier figures,
those at evaluation points, which grow geometrically; and at the end the final policy and its
possible replacements.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.arrays import evenly_spaced
from rover.data import Arrival, Buffer
from rover.envs import FiniteMDP, map_arrays
from rover.errors import RoverWarning
from rover.evaluation import (
    CellNet,
    DataCoverage,
    FiniteEvaluator,
    Projection,
    Reference,
    RolloutEvaluator,
    aliasing_of,
    covers_less,
    data_coverage,
    episode_coverage,
    first_steps,
    novel_moments,
    policy_occupancy,
    random_references,
    sample_trajectories,
    slow_planes,
    stack_episodes,
    unseen_mass,
)
from rover.evaluation.cells import MAX_POINTS
from rover.evaluation.finite import ENDED, TARGET_COVERAGE
from rover.evaluation.rollouts import MAX_ROLLOUT_STEPS
from rover.evaluation.visits import DATA_FIGURES, tried_pairs
from rover.planning.model_selection import repeats
from rover.policies.policy import Policy
from rover.training.config import AgentConfig
from rover.training.counted import CountedObjective
from rover.training.environments import (
    NoSecondInstanceError,
    evaluation_copy,
    horizon_of,
    repeats_itself,
)

# Least ratio of the steps of two evaluation points.
_EVALUATION_GROWTH = 1.5
# Known states up to which every update is measured exactly, and not at evaluation points alone.
_ALWAYS_MEASURED = 500
# Probability of starts that were not seen above which a run warns, and episodes from which it is
# estimated.
_LARGEST_UNSEEN_START_MASS, _FEWEST_EPISODES = 0.3, 10
# Steps from which observations that are all the same are warned of.
_FEWEST_STEPS = 20
_ROUNDING = 1e-9

MAX_SNAPSHOTS, RECORDED_SNAPSHOTS = 12, 4
"""Snapshots on the way, and in the files of a finished run."""
_RECORDED_TRAJECTORIES = 50

_N_FRAMES = 8
"""Images that a run records for a picture."""
_FEW_NUMBERS = 10
"""Width of vectors that are drawn by their own numbers."""

MEASURED_SETS = 5
"""Sets of roll-outs of random actions and of the final policy; one set of all others."""
MAX_RECORDED_OBSERVATIONS = 100_000
"""Distinct observations that are kept for pictures."""

# Environment steps of a set of roll-outs, but for the rest of its last episode.
_MAX_SET_STEPS = 500
# Sets of a run too short for five whole ones, each broken off after fewer steps; these must be an
# episode's, or as many as the discount looks ahead.
_FEWEST_SETS = 3
# Seed of the episodes of random actions: one for all runs, so that cells can be compared.
_REFERENCE_SEED = 7

# Streams of random numbers, besides acting and learning.
_EVALUATION_STREAM, _RECORD_STREAM, _REPEATS_STREAM = 2, 3, 6

_FULL_COVERAGE, _TARGET_REACHED = "steps_to_full_coverage", "steps_to_95_in_20_episodes"
_LATEST_FIGURES = (
    *("coverage", "objective", "optimality_ratio", "renyi2_entropy", "shannon_entropy"),
    "sink_mass",
)
_CELL_FIGURES = tuple(
    f"{name}{error}" for name in ("cells", "knn_entropy") for error in ("", "_error")
)
_EPISODE_FIGURES = ("episode_observations", "episode_objective")
_EVALUATED = (
    *("mean_coverage", "p_coverage_95", "cell_radius"),
    *(
        f"{whose}{name}"
        for name in (*_CELL_FIGURES, *_EPISODE_FIGURES)
        for whose in ("", "uniform_")
    ),
    *("uniform_coverage", "uniform_p_coverage_95", "optimal_coverage", "optimal_p_coverage_95"),
    *("states_total", "optimum", "uniform_ratio"),
)
# Attributes that a checkpoint holds as they are.
_STATE = (
    *("milestones", "evaluated", "next_point", "left_out", "worse_than_random", "aliased"),
    "data_figures",
)


@dataclass(frozen=True)
class _Trial:
    """Figures of a candidate for the final policy.

    Attributes:
        spread: greater of a policy that covers more: its cells, or −J where dynamics are known.
        figures: the costlier figures, for the summary.
        worse_than_random: evidence that it covers less than uniformly random actions do.
        episodes: observations (T + 1, *shape) of its roll-outs.
    """

    spread: float
    figures: dict[str, Any]
    worse_than_random: bool
    episodes: Sequence[NDArray[Any]] = ()


@dataclass
class _Account:
    """Environment steps of roll-outs, and whether they include random actions."""

    steps: int = 0
    has_reference: bool = False


class Measures(ABC):
    """The measurements of one run; measuring draws from generators of its own.

    Args:
        env: the environment.
        buffer: the run's buffer.
        config: the agent's settings.
        seed: of the run.
        evaluation_env: a second instance of the environment, for roll-outs; None: a copy.

    Attributes:
        evaluator: measures policies exactly; None where the states are unknown.
        states_seen: different states in the buffer; None where they are unknown.
        latest: the last metrics line.
        within_episodes: whether each episode has a context of its own, so that what counts is
            coverage within it, and policies are rolled out at the end alone.
    """

    evaluator: FiniteEvaluator | None = None
    states_seen: int | None = None

    def __init__(
        self,
        env: gym.Env[Any, Any],
        buffer: Buffer,
        config: AgentConfig,
        *,
        seed: int,
        evaluation_env: gym.Env[Any, Any] | None = None,
    ) -> None:
        self._env, self._evaluation_env = env, evaluation_env
        self._not_judged: str | None = None  # the reason why no policy can be rolled out
        self._buffer = buffer
        self._config = config
        self._seed = seed
        # Two accounts, since a run that is made longer must go on as if it had never ended.
        self._on_the_way, self._at_the_end = _Account(), _Account()
        self._left_out: str | None = None
        self._next_point = 1
        # The costlier figures, of the last evaluation point or of the run's end.
        self._evaluated: dict[str, Any] = {}
        self._worse_than_random: bool | None = None
        self._aliased: bool | None = None
        self._data_figures: dict[str, Any] = dict.fromkeys(DATA_FIGURES)
        self._data: DataCoverage | None = None
        self._references: list[Reference] = []
        self._episodes: Sequence[NDArray[Any]] = ()
        self._milestones: dict[str, int | None] = {_FULL_COVERAGE: None, _TARGET_REACHED: None}
        self.latest: dict[str, Any] = {}
        self.within_episodes = False

    @property
    def _rollout_horizon(self) -> int:
        """Steps of a roll-out, by what the run's own episodes show of the environment's limit."""
        return min(horizon_of(self._env, self._buffer), MAX_ROLLOUT_STEPS)

    @cached_property
    def _rollout_env(self) -> gym.Env[Any, Any] | None:
        """The environment that policies are rolled out in; None where none can be trusted."""
        other = self._evaluation_env
        # Known dynamics are no copy's: only a policy with a memory is rolled out there.
        if other is None and self.evaluator is not None:
            other = evaluation_copy(self._env)
        if other is None or repeats_itself(other, self._buffer, seed=self._seed):
            return other
        self._not_measured(
            "the instance that policies would be evaluated in does not repeat the first episode of "
            "this run: something was set after it was made. Pass evaluation_env=, an instance "
            "that was set alike"
        )
        return None

    def _not_measured(self, reason: str) -> None:
        """Warn that no policy of this run is rolled out."""
        self._left_out = self._not_judged = f"the policy was not measured: {reason}"
        warnings.warn(self._left_out, RoverWarning, stacklevel=3)

    def note(self, step: int) -> None:  # noqa: B027 - nothing to note of unknown states
        """Take note of the states in the buffer after environment step number `step`."""

    @abstractmethod
    def is_due(self, step: int) -> bool:
        """True if :meth:`measure` after `step` steps looks at the policy."""

    def measure(
        self, policy: Policy, learned: Mapping[str, Any], *, step: int, episode: int
    ) -> dict[str, Any]:
        """The metrics line of an update: nothing in it depends on the clock."""
        n_observations = len(self._buffer.observations)
        if n_observations == 1 and step >= _FEWEST_STEPS:
            warnings.warn(
                f"all {step + 1:,} observations so far are the same: there is nothing to cover; "
                "check what the environment returns, and that its actions do something",
                RoverWarning,
                stacklevel=2,
            )
        figures, cost = self._measure(policy, step, is_point=step >= self._next_point)
        if cost is not None:
            # By default points grow geometrically: a run of n steps has O(log n) of them.
            every, next_point = self._config.evaluation_every, math.ceil(_EVALUATION_GROWTH * step)
            if every is not None:
                next_point = (step // every + 1) * every
            # Where a policy is rolled out, that takes no more steps than were made in between.
            self._next_point = max(next_point, step + cost)
            figures |= self._evaluated
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
    def _measure(
        self, policy: Policy, step: int, *, is_point: bool
    ) -> tuple[dict[str, Any], int | None]:
        """The figures of a policy update, and the environment steps that the costlier ones took.

        None where it is no evaluation point, or none that can be afforded.
        """

    def begin_end(self) -> None:
        """Forget what was measured at an earlier end of the run, which goes on since."""
        self._at_the_end, self._left_out = _Account(), self._not_judged
        self._episodes, self._worse_than_random = (), None

    @abstractmethod
    def try_out(self, policy: Policy | None, step: int) -> _Trial | None:
        """Measure a candidate for the final policy; None: uniform actions, beside another one.

        None where it cannot be measured, or no steps are left for that.
        """

    def try_out_within(self, policies: Sequence[Policy], *, step: int) -> list[_Trial]:
        """Measure policies, the last one uniform, within the same episodes.

        The spread of each is the distinct observations of an episode in the mean. Empty where
        nothing can be measured, or no steps are left for that.
        """
        env, horizon = self._rollout_env, self._rollout_horizon
        if env is None:
            return []
        # Shared alike: policies are compared on the same contexts, as many of each.
        allowed = self._allowed(step, at_the_end=True) // len(policies)
        if allowed < horizon:
            needed = len(policies) * horizon
            self._left_out = (
                f"the policy was not measured: {max(0, allowed):,} steps of roll-outs for each of "
                f"{len(policies)} policies are fewer than an episode's {horizon:,}. Run more "
                f"steps, or set measure_share={math.ceil(100 * needed / step) / 100:g}"
            )
            return []
        seed = (self._seed, _REPEATS_STREAM, step)
        *measured, uniform = (
            episode_coverage(
                env, policy.sample_component, horizon=horizon, max_steps=allowed, seed=seed
            )
            for policy in policies
        )
        self._at_the_end.steps += sum(one["n_steps"] for one in (*measured, uniform))
        beside = {f"uniform_{name}": uniform[name] for name in _EPISODE_FIGURES}
        # In ‖μ̂‖² of a few episodes the shortest one outweighs the rest.
        by_chance = uniform["episode_observations"]
        return [
            _Trial(
                one["episode_observations"],
                {**self._evaluated, **{name: one[name] for name in _EPISODE_FIGURES}, **beside},
                one["episode_observations"] < by_chance,
            )
            for one in (*measured, uniform)
        ]

    def _allowed(self, step: int, *, at_the_end: bool) -> int:
        """Environment steps that roll-outs may make after `step` steps of the run."""
        # Roll-outs are paid for by steps already made, so that a run's cost is bounded at any time.
        share = self._config.measure_share
        if at_the_end:
            return math.floor(share * step) - self._on_the_way.steps - self._at_the_end.steps
        # The other half of the share remains for the final policy.
        return math.floor(share / 2.0 * step) - self._on_the_way.steps

    def accept(self, trial: _Trial) -> None:
        """Report the figures of the final policy."""
        self._evaluated, self._episodes = trial.figures, trial.episodes
        self._worse_than_random = trial.worse_than_random

    @abstractmethod
    def spread_of(self, record: Mapping[str, Any]) -> float | None:
        """Greater of a policy that covers more, by its metrics line; None: it was not measured."""

    @abstractmethod
    def _starts(self) -> tuple[int, float | None]:
        """Different initial states that were seen, and the probability of all others."""

    def measure_data(self, arrival: Arrival) -> None:
        """Measure the transitions of the run beside as many of random actions.

        Args:
            arrival: of the run, at a reward.
        """
        buffer, env = self._buffer, None
        if self._config.measure_share > 0.0:
            with suppress(NoSecondInstanceError):  # known dynamics are measured without one
                env = self._rollout_env
        self._references = []
        if env is not None:
            seed, n_steps = _REFERENCE_SEED, len(buffer)
            self._references = random_references(env, buffer, n_steps=n_steps, seed=seed)
        # The reference decides, which is one for all runs, so that their figures have one unit.
        first = next((one.buffer for one in self._references), buffer)
        self._data = data_coverage(
            buffer,
            arrival,
            self._references,
            repeats=repeats(first),
            states=self._states_of([buffer, *(one.buffer for one in self._references)]),
        )
        self._data_figures = self._data.figures

    def _states_of(self, buffers: Sequence[Buffer]) -> list[NDArray[np.int64]] | None:
        """True states of the observations of each buffer, −1 for none; None if unknown."""
        return None

    def _data_arrays(self) -> dict[str, NDArray[Any]]:
        """Curves of what was visited, and the observations of random actions for pictures."""
        data = self._data
        if data is None or len(data.visited) == 0:
            return {}
        arrays: dict[str, NDArray[Any]] = {"visited_steps": data.steps, "visited": data.visited}
        if self._references:
            arrays["uniform_visited"] = data.uniform_visited
        return arrays

    def conclude(self) -> None:
        """Warn of what the run has not seen, and of observations that hide what matters."""
        (count, mass), n_episodes = self._starts(), len(self._buffer.episode_starts)
        # What is priced by all episodes was planned for starts that were never seen.
        if mass is None or mass <= _LARGEST_UNSEEN_START_MASS or self.within_episodes:
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
        evaluator, (starts_seen, unseen_start_mass) = self.evaluator, self._starts()
        return {
            "states_seen": self.states_seen,
            "observations": len(self._buffer.observations),
            **self._data_figures,
            **self._milestones,
            **{name: self.latest.get(name) for name in _LATEST_FIGURES},
            **dict.fromkeys(_EVALUATED),
            **self._evaluated,
            **({} if evaluator is None else evaluator.references),
            "starts_seen": starts_seen,
            "unseen_start_mass": unseen_start_mass,
            "worse_than_random": self._worse_than_random,
            "aliased_observations": self._aliased,
            "measured_steps": self._on_the_way.steps + self._at_the_end.steps,
            "left_out": self._left_out,
        }

    @abstractmethod
    def record(self, policy: Policy) -> dict[str, NDArray[Any]]:
        """The arrays of evaluation.safetensors; empty where nothing can be drawn."""

    def state(self) -> dict[str, Any]:
        """Everything that the next measurement depends on."""
        return {
            "latest": self.latest,
            "accounts": [vars(self._on_the_way), vars(self._at_the_end)],
            **{name: getattr(self, f"_{name}") for name in _STATE},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.latest = state["latest"]
        # States are counted anew from the buffer; milestones come after, since counting sets them.
        self.note(self.latest.get("step", len(self._buffer)))
        self._on_the_way, self._at_the_end = (_Account(**account) for account in state["accounts"])
        for name in _STATE:
            setattr(self, f"_{name}", state[name])


class ExactMeasures(Measures):
    """Measures every policy exactly, under known dynamics."""

    evaluator: FiniteEvaluator

    def __init__(
        self,
        env: gym.Env[Any, Any],
        buffer: Buffer,
        config: AgentConfig,
        problem: FiniteMDP,
        *,
        seed: int,
        evaluation_env: gym.Env[Any, Any] | None = None,
        target: NDArray[np.float64] | None = None,
    ) -> None:
        super().__init__(env, buffer, config, seed=seed, evaluation_env=evaluation_env)
        assert config.discount is not None
        self.evaluator = FiniteEvaluator(
            problem,
            discount=config.discount,
            horizon=horizon_of(env),
            n_episodes=config.evaluation_episodes,
            target=target,
        )
        _ = self.evaluator.optimum  # a solver that fails says so before the first step
        # Rounding must not call a policy worse than random that is uniform itself.
        self._largest_objective = self.evaluator.uniform_objective * (1.0 + _ROUNDING)
        self._observations = problem.observations
        self.states_seen = 0
        self._states: list[int] = []  # of every row of the table of observations, −1 for none
        self._seen: set[int] = set()
        # The step and the sampled episodes (E, H + 1) of updates, by their number.
        self._snapshots: dict[int, tuple[int, NDArray[np.int16]]] = {}

    def note(self, step: int) -> None:
        """Count the true states in the buffer after environment step number `step`."""
        table = self._buffer.observations.rows
        if len(table) == len(self._states):
            return
        # Only rows that are new since the last call: states are looked up once per observation.
        fresh = self.evaluator.problem.states_of(table[len(self._states) :])
        self._states += fresh.tolist()
        self._seen.update(fresh[fresh >= 0].tolist())
        self.states_seen = len(self._seen)
        is_full = self.states_seen == self.evaluator.n_states
        if is_full and self._milestones[_FULL_COVERAGE] is None:
            self._milestones[_FULL_COVERAGE] = step

    def is_due(self, step: int) -> bool:
        """True at evaluation points, and always where states are few."""
        return step >= self._next_point or self.evaluator.n_states <= _ALWAYS_MEASURED

    def _measure(
        self, policy: Policy, step: int, *, is_point: bool
    ) -> tuple[dict[str, Any], int | None]:
        if not self.is_due(step):
            return {}, None
        tables = policy.tables(self._observations)
        # A generator per step, so that figures do not depend on how often was measured before.
        rng = np.random.default_rng([self._seed, _EVALUATION_STREAM, step])
        figures, trajectories = self.evaluator.report(tables, rng)
        number = max(self._snapshots, default=-1) + 1
        self._snapshots[number] = step, trajectories.astype(np.int16)
        _thin(self._snapshots)
        is_enough = figures["coverage"] >= TARGET_COVERAGE
        if is_enough and self._milestones[_TARGET_REACHED] is None:
            self._milestones[_TARGET_REACHED] = step
        if not is_point:
            return figures, None
        rng = np.random.default_rng([self._seed, _REPEATS_STREAM, step])
        self._evaluated = self.evaluator.repeated(tables, rng)
        self._worse_than_random = figures["objective"] > self._largest_objective
        return figures, 0

    def try_out(self, policy: Policy | None, step: int) -> _Trial:
        """Measure a candidate for the final policy; None: uniform actions."""
        evaluator = self.evaluator
        tables = evaluator.uniform_policy if policy is None else policy.tables(self._observations)
        rng = np.random.default_rng([self._seed, _REPEATS_STREAM, step])
        figures = evaluator.repeated(tables, rng)
        # The figures of an update, as the metrics line of the latest one would have them.
        step = self.latest.get("step", step)
        rng = np.random.default_rng([self._seed, _EVALUATION_STREAM, step])
        exact, _ = evaluator.report(tables, rng)
        if self.latest:
            figures |= exact
        objective: float = exact["objective"]
        return _Trial(-objective, figures, objective > self._largest_objective)

    def _states_of(self, buffers: Sequence[Buffer]) -> list[NDArray[np.int64]]:
        """True states of the observations of each buffer, −1 for none."""
        return [self.evaluator.problem.states_of(one.observations.rows) for one in buffers]

    def spread_of(self, record: Mapping[str, Any]) -> float | None:
        """−J, by a metrics line; None: it was not measured."""
        objective = record.get("objective")
        return None if objective is None else -float(objective)

    def _starts(self) -> tuple[int, float]:
        # An episode that began after the last step counts too, but its row may not be looked up
        # yet.
        rows = self._buffer.episode_starts
        states = np.array(self._states, np.int64)
        begun = np.unique(states[rows[rows < len(states)]])
        begun = begun[begun >= 0]
        # Exact, where the roll-outs' form estimates it from starts that were seen once.
        seen_mass = float(self.evaluator.problem.dynamics.start[begun].sum())
        return len(begun), max(0.0, 1.0 - seen_mass)

    def record(self, policy: Policy) -> dict[str, NDArray[Any]]:
        """Arrays over the S true states, the map where there is one, and the snapshots."""
        evaluator, tables = self.evaluator, policy.tables(self._observations)
        problem, n_states = evaluator.problem, evaluator.n_states
        rng = np.random.default_rng([self._seed, _RECORD_STREAM])
        trajectories = sample_trajectories(
            problem.dynamics,
            tables,
            n_episodes=_RECORDED_TRAJECTORIES,
            horizon=evaluator.horizon,
            rng=rng,
        )
        return {
            "policy_probs": evaluator.marginal(tables),
            "occupancy": policy_occupancy(problem.dynamics, tables, discount=evaluator.discount),
            "optimal_occupancy": evaluator.optimum.state_occupancy,
            "uniform_occupancy": policy_occupancy(
                problem.dynamics, evaluator.uniform_policy, discount=evaluator.discount
            ),
            "trajectories": trajectories,
            "sampled_visits": np.bincount(trajectories[trajectories != ENDED], minlength=n_states),
            "buffer_visits": self._visits_of(self._buffer),
            **(
                {"uniform_buffer_visits": self._visits_of(self._references[0].buffer)}
                if self._references
                else {}
            ),
            **map_arrays(self._env, self._observations),
            **self._recorded_snapshots(),
            **self._data_arrays(),
        }

    def _visits_of(self, buffer: Buffer) -> NDArray[np.int64]:
        """Visits of each state in a buffer, (S,)."""
        visits = np.zeros(self.evaluator.n_states, np.int64)
        (states,) = self._states_of([buffer])
        # Noise may make one state look like several observations: their visits are added.
        np.add.at(visits, states[states >= 0], buffer.visits()[states >= 0])
        return visits

    def _recorded_snapshots(self) -> dict[str, NDArray[Any]]:
        """snapshot_steps (n,) and snapshot_trajectories (n, E, H + 1), n ≤ 4; empty before any."""
        if not self._snapshots:
            return {}
        steps, trajectories = zip(*self._snapshots.values(), strict=True)
        # The steps nearest to an even grid: pictures show a run at equal distances.
        wanted = np.linspace(steps[0], steps[-1], RECORDED_SNAPSHOTS)
        chosen = np.unique(np.abs(np.subtract.outer(wanted, steps)).argmin(axis=1))
        return {
            "snapshot_steps": np.array(steps)[chosen],
            "snapshot_trajectories": np.stack([trajectories[index] for index in chosen]),
        }

    def state(self) -> dict[str, Any]:
        """Everything that the next measurement depends on."""
        snapshots = [(number, *kept) for number, kept in self._snapshots.items()]
        return {**super().state(), "snapshots": snapshots}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        super().load_state(state)
        self._snapshots = {number: (step, seen) for number, step, seen in state["snapshots"]}


def _thin(snapshots: dict[int, Any]) -> None:
    """Keep the snapshots of at most twelve updates, spread evenly over all so far, and the latest.

    They follow from the number of updates alone, and not from how long the run is going to be.
    """
    latest = max(snapshots)
    stride = 1
    while latest // stride >= MAX_SNAPSHOTS:
        stride *= 2
    for number in list(snapshots):
        if number % stride != 0 and number != latest:
            del snapshots[number]


class RolloutMeasures(Measures):
    """Measures policies now and then by roll-outs, beside uniformly random actions."""

    def __init__(
        self,
        env: gym.Env[Any, Any],
        buffer: Buffer,
        config: AgentConfig,
        *,
        seed: int,
        evaluation_env: gym.Env[Any, Any] | None = None,
    ) -> None:
        super().__init__(env, buffer, config, seed=seed, evaluation_env=evaluation_env)
        if config.measure_share == 0.0:
            self._not_judged = "the policy was not measured: measure_share=0"
        elif evaluation_env is None:
            # Before the first episode, since copies may turn out to drive the same simulator.
            try:
                self._evaluation_env = evaluation_copy(env)
            except NoSecondInstanceError as error:
                self._not_measured(str(error))
        self._n_episodes = max(2, config.evaluation_episodes)
        # Cells can be compared on one net alone, so an end of the run has one evaluator.
        self._evaluator_of_end: RolloutEvaluator | None = None
        self._judge: CountedObjective | str | None = None  # of an end, too
        self._tested: tuple[int, Any] | None = None

    @property
    def _longest_set(self) -> int:
        """Steps that a set may take at most, since it ends with its last episode."""
        horizon = self._rollout_horizon
        return min(self._n_episodes * horizon, max(2 * horizon, _MAX_SET_STEPS - 1 + horizon))

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

        The sets of random actions come first, once: one for the net, and the reference's. During
        the run, where nothing is chosen by the figures, one set of a policy is enough.
        """
        steps = self._allowed(step, at_the_end=at_the_end)
        is_paid = self._on_the_way.has_reference
        if not (is_paid or (at_the_end and self._at_the_end.has_reference)):
            steps -= (1 + MEASURED_SETS) * self._longest_set
        # As many sets as are left to pay for, since the errors of means need several.
        fewest, most = (_FEWEST_SETS, MEASURED_SETS) if at_the_end else (1, 1)
        n_sets = min(most, steps // self._longest_set)
        return n_sets if n_sets >= fewest else 0

    def is_due(self, step: int) -> bool:
        """True at evaluation points that there are steps for."""
        if step < self._next_point or self.within_episodes or self._rollout_env is None:
            return False
        return self._affordable_sets(step, at_the_end=False) > 0

    def _measure(
        self, policy: Policy, step: int, *, is_point: bool
    ) -> tuple[dict[str, Any], int | None]:
        if not self.is_due(step):
            return {}, None
        n_sets = self._affordable_sets(step, at_the_end=False)
        self._pay_for_reference(self._on_the_way)
        self._evaluated, cost = self._roll_out(self._evaluator, policy, step, n_sets)
        self._on_the_way.steps += cost
        return {}, cost

    def begin_end(self) -> None:
        """Forget what was measured at an earlier end of the run, which goes on since."""
        super().begin_end()
        self._evaluator_of_end = self._judge = None

    def try_out(self, policy: Policy | None, step: int) -> _Trial | None:
        """Measure a candidate for the final policy; None: uniformly random actions."""
        if self.within_episodes:
            return None
        figures, episodes, is_worse = self._rolled_out(policy, step)
        if self._judge is None:
            self._judge = self._judge_of(policy, is_rolled_out=figures is not None)
        if isinstance(self._judge, CountedObjective):
            least, greatest = self._judge.bounds(policy)
            # Rounding must not call a policy worse than random that is uniform itself.
            largest = self._judge.uniform[1] * (1.0 + _ROUNDING)
            return _Trial(-greatest, figures or {}, least > largest, episodes)
        if figures is None:
            return None
        return _Trial(float(figures["cells"]), figures, is_worse, episodes)

    def _judge_of(self, policy: Policy | None, *, is_rolled_out: bool) -> CountedObjective | str:
        """The figure that policies of this end are compared by.

        J on the run's counts where observations are states and the untried pairs cannot change the
        order of a policy and random actions; else the visited cells.
        """
        # Less than the state may be covered, or unevenly, and what is aliased is no state.
        is_of_all = all(getattr(self._config, name, None) is None for name in ("cover", "target"))
        if not (is_of_all and repeats(self._buffer)) or self._aliasing().is_aliased:
            return "cells"
        assert self._config.discount is not None
        counted = CountedObjective(self._buffer, discount=self._config.discount)
        (least, greatest), (lower, upper) = counted.bounds(policy), counted.uniform
        is_uniform = (least, greatest) == (lower, upper)
        if is_uniform or least > upper * (1.0 + _ROUNDING) or greatest <= lower * (1.0 + _ROUNDING):
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

    def _aliasing(self) -> Any:
        """The test of aliased observations, made once for as many transitions."""
        if self._tested is None or self._tested[0] != len(self._buffer):
            self._tested = len(self._buffer), aliasing_of(self._buffer)
        return self._tested[1]

    def _rolled_out(
        self, policy: Policy | None, step: int
    ) -> tuple[dict[str, Any] | None, Sequence[NDArray[Any]], bool]:
        """Figures of a policy and the episodes they are of, and whether it visits fewer cells.

        The figures are None where nothing can be rolled out, or no steps are left for that.
        """
        if self._rollout_env is None:
            return None, (), False
        if policy is None:
            # Uniform actions were rolled out as the reference already, and cost nothing again.
            evaluator = self._evaluator_of_end
            if evaluator is None:
                return None, (), False
            return _beside_random(evaluator.uniform, evaluator), evaluator.uniform_episodes, False
        n_sets = self._affordable_sets(step, at_the_end=True)
        if self._evaluator_of_end is None and n_sets > 0:
            self._pay_for_reference(self._at_the_end)
            self._evaluator_of_end = self._evaluator
        elif self._evaluator_of_end is None:
            self._evaluator_of_end, n_sets = self._short_evaluator(step), _FEWEST_SETS
        evaluator = self._evaluator_of_end
        if evaluator is None or n_sets == 0:
            return None, (), False
        figures, cost = self._roll_out(evaluator, policy, step, n_sets)
        self._at_the_end.steps += cost
        return figures, evaluator.episodes, covers_less(figures, n_sets=n_sets)

    def spread_of(self, record: Mapping[str, Any]) -> float | None:
        """Visited cells, by a metrics line; None: the policy was not measured."""
        return record.get("cells")

    def _pay_for_reference(self, account: _Account) -> None:
        """Charge the episodes of random actions, which serve every policy, once."""
        if not (self._on_the_way.has_reference or account.has_reference):
            account.has_reference = True
            account.steps += self._evaluator.reference_steps

    def _roll_out(
        self, evaluator: RolloutEvaluator, policy: Policy, step: int, n_sets: int
    ) -> tuple[dict[str, Any], int]:
        """Figures of a policy and of random actions, and the environment steps of the policy."""
        rng = np.random.default_rng([self._seed, _REPEATS_STREAM, step])
        measured = evaluator.measure(policy.sample_component, rng, n_sets=n_sets)
        return _beside_random(measured, evaluator), measured["n_steps"]

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
            self._left_out = (
                f"the policy was not measured: the evaluation budget ({share} of the run = "
                f"{max(0, allowed):,} steps) is too small. Run {needed / share_of_run:,.0f} steps, "
                f"or set measure_share={math.ceil(100 * needed / step) / 100:g}"
            )
            return None
        self._left_out = (
            f"the policy was measured by {_FEWEST_SETS} sets of {short} steps only, within the "
            f"evaluation budget ({share} of the run). Run more steps, or set measure_share higher"
        )
        evaluator = self._make_evaluator(
            max_steps=short, n_sets=_FEWEST_SETS, net_of=self._some_observations()
        )
        self._at_the_end.steps += evaluator.reference_steps
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
        test = self._aliasing()
        self._aliased = test.is_aliased
        if test.is_aliased and not self.within_episodes:
            if test.follows_history:
                warnings.warn(
                    "observations look aliased: the same action in the same observation leads to "
                    "outcomes that follow the step before (they agree after the same step alone "
                    f"{test.history[0]} times, after another step alone {test.history[1]} times). "
                    "A hidden state changes within episodes: let observations show it, or the last "
                    "few observations (gymnasium.wrappers.FrameStackObservation)",
                    RoverWarning,
                    stacklevel=2,
                )
                super().conclude()
                return
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
        """Distinct observations, thinned evenly, their visits, roll-outs, and novel images."""
        table, arrays = self._buffer.observations, self._data_arrays()
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


def _beside_random(measured: Mapping[str, Any], evaluator: RolloutEvaluator) -> dict[str, Any]:
    figures: dict[str, Any] = {"cell_radius": evaluator.net.radius}
    for name in _CELL_FIGURES:
        figures |= {name: measured[name], f"uniform_{name}": evaluator.uniform[name]}
    return figures
