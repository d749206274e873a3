"""The pretraining loop: collect, let the method learn, measure, and survive being killed.

The loop knows no method. A method acts, observes and updates; the loop steps the environment,
measures each new policy, writes the run folder, and can continue from any checkpoint in the same
bits: a checkpoint is taken right after a policy update, where a method's state is smallest.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from rover.agents.policy import CoveragePolicy
from rover.agents.progress import Monitor
from rover.agents.run_folder import RunConfig, RunFolder, read_run_config
from rover.agents.timing import Stopwatch
from rover.artefacts import write_arrays, write_json
from rover.collection import Collector, ReplayBuffer, StepOutcome
from rover.envs import FiniteMDP, finite_dynamics
from rover.errors import ArtefactError, ConfigurationError, RoverError, RoverWarning
from rover.evaluation import (
    FiniteEvaluator,
    StateLookup,
    record_finite,
    record_grid,
    record_vectors,
)
from rover.version import __version__

Callback = Callable[[Mapping[str, Any]], bool | None]

TARGET_COVERAGE = 0.95
DEFAULT_HORIZON = 200
MAX_EVALUATED_STATES = 3000
"""States up to which every policy update is measured exactly (J* is a quadratic program)."""


class Method(Protocol):
    """What the loop needs of a reward-free method."""

    name: str
    policy: CoveragePolicy

    def act(self, observation: int) -> int:
        """Action on the observation with this index in the buffer."""
        ...

    def observe(self, outcome: StepOutcome) -> None:
        """The transition that the last action led to."""
        ...

    def update(self) -> dict[str, Any] | None:
        """Learn when due; metrics if the policy was updated."""
        ...

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON-able state after a policy update."""
        ...

    def load_state(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        ...


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Use `count` torch threads in a `with` block: more change the bits, and slow small nets."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def horizon_of(env: gym.Env[Any, Any]) -> int:
    """Steps after which episodes of the environment are truncated; 200 if it does not say."""
    own = getattr(env.unwrapped, "horizon", None)
    limits = [own, None if env.spec is None else env.spec.max_episode_steps]
    return min((limit for limit in limits if isinstance(limit, int)), default=DEFAULT_HORIZON)


def fresh_copy(env: gym.Env[Any, Any]) -> gym.Env[Any, Any] | None:
    """Another, silent instance of an environment; None if nothing makes it again."""
    if env.spec is None:
        return None
    silent = {"render_mode": None} if "render_mode" in env.spec.kwargs else {}
    try:
        return gym.make(env.spec, **silent)
    except (gym.error.Error, ValueError):  # a wrapper that does not record how it was made
        return None


class Pretraining:
    """One run of one method on one environment.

    Args:
        env: the environment; its reward is never looked at.
        method: makes the method once the buffer and the stopwatch exist.
        buffer: the replay buffer that the method reads.
        stopwatch: shared with the method.
        seed: seed of the run.
        discount: γ of the exact occupancy that policies are measured by.
        evaluation_episodes: episodes of each coverage figure.
        checkpoint_every: environment steps between checkpoints.
        threads: torch threads while learning.
        describe: what config.json says of the run.
        run_dir: the run folder; None leaves no files.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        method: Method,
        buffer: ReplayBuffer,
        stopwatch: Stopwatch,
        *,
        seed: int,
        discount: float,
        evaluation_episodes: int,
        checkpoint_every: int,
        threads: int,
        describe: Callable[[int], RunConfig],
        run_dir: str | Path | None,
    ) -> None:
        self.env = env
        self.method = method
        self.buffer = buffer
        self.stopwatch = stopwatch
        self.num_timesteps = 0
        self._seed = seed
        self._discount = discount
        self._checkpoint_every = checkpoint_every
        self._threads = threads
        self._evaluation_episodes = evaluation_episodes
        self._describe = describe
        self._collector = Collector(env, buffer, seed=seed)
        self._folder = None if run_dir is None else RunFolder(run_dir)
        self._is_new = True
        self._n_records = 0
        self._last_checkpoint = 0
        self.milestones: dict[str, int | None] = {
            "steps_to_full_coverage": None,
            "steps_to_95_in_20_episodes": None,
        }
        self.evaluator = _make_evaluator(
            finite_dynamics(env),
            discount=discount,
            horizon=horizon_of(env),
            n_episodes=evaluation_episodes,
        )
        self._states = (
            None
            if self.evaluator is None
            else StateLookup(self.evaluator.problem, buffer.observations.dtype)
        )
        self._seen: set[int] = set()
        self._matched = 0
        self._latest: dict[str, Any] = {}
        self._wall_seconds = 0.0
        self._running_since: float | None = None

    @property
    def policy(self) -> CoveragePolicy:
        """The method's policy, which says what it was trained on."""
        policy = self.method.policy
        config = self._describe(self.num_timesteps)
        policy.details = {
            **config.model_dump(
                mode="json", include={"method", "preset", "seed", "env_id", "env_kwargs"}
            ),
            "steps": self.num_timesteps,
            "discount": self._discount,
        }
        return policy

    @property
    def states_seen(self) -> int | None:
        """Distinct true states in the buffer; None where the states are unknown."""
        if self._states is None:
            return None
        table = self.buffer.observations.rows
        if len(table) > self._matched:
            fresh = self._states(table[self._matched :])
            self._seen.update(int(state) for state in fresh if state >= 0)
            self._matched = len(table)
        return len(self._seen)

    def run(
        self,
        total_timesteps: int,
        *,
        monitor: Monitor,
        callback: Callback | None,
    ) -> None:
        """Continue until `total_timesteps` environment steps have been made in all."""
        with torch_threads(self._threads), self._clock():
            if self._folder is None:
                self._loop(total_timesteps, monitor, callback)
                return
            if self._is_new:
                self._folder.prepare(needed_bytes=self._bytes_needed(total_timesteps))
            with self._folder:
                self._open(self._folder, total_timesteps)
                self._loop(total_timesteps, monitor, callback)
                self._finish(self._folder)

    @contextmanager
    def _clock(self) -> Iterator[None]:
        self._running_since = time.perf_counter()
        try:
            yield
        finally:
            self._wall_seconds, self._running_since = self.wall_seconds, None

    @property
    def wall_seconds(self) -> float:
        """Time spent in this run, its resumptions added up."""
        if self._running_since is None:
            return self._wall_seconds
        return self._wall_seconds + time.perf_counter() - self._running_since

    def _open(self, folder: RunFolder, total_timesteps: int) -> None:
        """Begin the run in a locked folder, or cut off what lies beyond the state in memory."""
        if self._is_new:
            folder.create(self._describe(total_timesteps))
            return
        folder.metrics.truncate_after(self._n_records)
        stored = read_run_config(folder.path)
        if total_timesteps > stored.total_timesteps:
            folder.write_config(stored.model_copy(update={"total_timesteps": total_timesteps}))

    def _loop(self, total: int, monitor: Monitor, callback: Callback | None) -> None:
        if self._collector.episode < 0:
            self._collector.start_episode()
        self._is_new = False
        with monitor.watch(self.num_timesteps, total):
            while self.num_timesteps < total:
                action = self.method.act(self._collector.observation)
                with self.stopwatch("collect"):
                    outcome = self._collector.step(action)
                self.method.observe(outcome)
                self.num_timesteps += 1
                self._note_full_coverage()
                learned = self.method.update()
                if learned is None:
                    continue
                record = self._measure(learned)
                monitor.report(record, self.stopwatch.seconds)
                self._store(record, is_last=self.num_timesteps >= total)
                if callback is not None and callback(record) is False:
                    break
        if not self._latest:
            warnings.warn(
                f"{self.num_timesteps} steps were too few for a policy update, so the policy is "
                "still uniform; run more steps or lower policy_every (and seed_steps)",
                RoverWarning,
                stacklevel=2,
            )

    def _note_full_coverage(self) -> None:
        if self.evaluator is None or self.milestones["steps_to_full_coverage"] is not None:
            return
        if self.states_seen == self.evaluator.n_states:
            self.milestones["steps_to_full_coverage"] = self.num_timesteps

    def _measure(self, learned: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics line of a policy update: nothing in it depends on the clock."""
        record: dict[str, Any] = {
            "step": self.num_timesteps,
            "episode": self._collector.episode,
            "observations": len(self.buffer.observations),
            "states_seen": self.states_seen,
        }
        if self.evaluator is not None:
            with self.stopwatch("evaluate"):
                rng = np.random.default_rng([self._seed, 2, self.num_timesteps])
                report = self.evaluator.report(self.state_policy(), rng)
            record |= {
                "coverage": report.coverage,
                "objective": report.objective,
                "optimality_ratio": report.optimality_ratio,
            }
            name = "steps_to_95_in_20_episodes"
            if report.coverage >= TARGET_COVERAGE and self.milestones[name] is None:
                self.milestones[name] = self.num_timesteps
        self._latest = record | dict(learned)
        return self._latest

    def state_policy(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The current policy as a table (S, A) over the true states.

        Raises:
            ConfigurationError: the states are unknown.
        """
        if self.evaluator is None:
            raise ConfigurationError("this environment's states are not known")
        return self.method.policy.probs(self.evaluator.problem.observations)

    def summary(self) -> dict[str, Any]:
        """What summary.json holds; keys are null where the states are unknown."""
        evaluator = self.evaluator
        return {
            "steps": self.num_timesteps,
            "episodes": self._collector.episode + 1,
            "states_total": None if evaluator is None else evaluator.n_states,
            "states_seen": self.states_seen,
            "observations": len(self.buffer.observations),
            **self.milestones,
            "coverage": self._latest.get("coverage"),
            "objective": self._latest.get("objective"),
            "optimum": None if evaluator is None else evaluator.optimum.objective,
            "optimality_ratio": self._latest.get("optimality_ratio"),
            "uniform_ratio": None if evaluator is None else evaluator.uniform_ratio,
            "sink_mass": self._latest.get("sink_mass"),
            "wall_seconds": self.wall_seconds,
            "seconds": dict(self.stopwatch.seconds),
        }

    def _store(self, record: Mapping[str, Any], *, is_last: bool) -> None:
        if self._folder is None:
            return
        with self.stopwatch("store"):
            self._folder.metrics.append(record)
            self._n_records += 1
            due = self.num_timesteps - self._last_checkpoint >= self._checkpoint_every
            if due and not is_last:  # the last one is written by _finish, when all files are there
                self._checkpoint(self._folder)

    def _checkpoint(self, folder: RunFolder) -> None:
        tensors, state = self.method.state()
        arrays = {f"buffer.{k}": torch.from_numpy(v) for k, v in self.buffer.arrays().items()}
        tensors = {f"method.{k}": v for k, v in tensors.items()} | arrays
        metadata = {
            "run": self._identity(),
            "step": self.num_timesteps,
            "records": self._n_records,
            "milestones": self.milestones,
            "latest": self._latest,
            "seconds": self.stopwatch.seconds,
            "wall_seconds": self.wall_seconds,
            "episode": self._collector.episode,
            "episode_steps": len(self._collector.episode_actions),
            "method": state,
        }
        folder.write_checkpoint(self.num_timesteps, tensors, metadata)
        self._last_checkpoint = self.num_timesteps
        write_json(folder.path / "summary.json", self.summary())

    def _identity(self) -> dict[str, Any]:
        """What a checkpoint must agree on with the run that it is read for."""
        config = self._describe(self.num_timesteps).model_dump(mode="json")
        return {k: config[k] for k in ("method", "seed", "env_id", "env_kwargs", "settings")}

    def _finish(self, folder: RunFolder) -> None:
        with self.stopwatch("store"):
            self.policy.save(folder.path / "policy.safetensors")
            write_arrays(
                folder.path / "buffer.h5",
                self.buffer.arrays(),
                kind="buffer",
                metadata={"n_actions": self.buffer.n_actions},
            )
            arrays = self._record()
            if arrays:
                write_arrays(folder.path / "evaluation.h5", arrays, kind="evaluation", metadata={})
        if self._latest.get("step") == self.num_timesteps != self._last_checkpoint:
            # Last, so that a checkpoint of the last step means that the run is complete.
            self._checkpoint(folder)
        write_json(folder.path / "summary.json", self.summary())

    def _record(self) -> dict[str, Any]:
        """The arrays of evaluation.h5; empty where there is nothing that can be drawn."""
        table, visits = self.buffer.observations.rows, self.buffer.visits()
        if self.evaluator is not None:
            rng = np.random.default_rng([self._seed, 3])
            arrays = record_finite(self.evaluator, self.state_policy(), table, visits, rng)
            return arrays | record_grid(self.env)
        if table.ndim != 2:
            return {}
        fresh = fresh_copy(self.env)
        arrays = record_vectors(
            fresh,
            self.method.policy.probs,
            table,
            visits,
            horizon=horizon_of(self.env),
            n_episodes=self._evaluation_episodes,
            seed=self._seed,
        )
        if fresh is not None:
            fresh.close()
        return arrays

    def restore(self) -> None:
        """Take over the state of the run folder's latest checkpoint.

        Raises:
            ArtefactError: the checkpoint is damaged or does not belong to this configuration.
            ReplayMismatchError: the environment does not repeat itself.
        """
        assert self._folder is not None
        self._is_new = False
        stored = self._folder.read_checkpoint()
        if stored is None:
            return
        try:
            with torch_threads(self._threads):
                self._take_over(stored.tensors, stored.metadata)
        except (KeyError, TypeError, RuntimeError) as error:
            if isinstance(error, RoverError):
                raise
            raise ArtefactError(
                f"the checkpoint in {self._folder.path} does not fit this run: {error}"
            ) from error

    def _take_over(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        expected = self._identity()
        found = state["run"]
        wrong = [name for name, value in expected.items() if found.get(name) != value]
        if wrong:
            raise ArtefactError(
                f"the latest checkpoint is not of this run: it has another {', '.join(wrong)} than "
                "config.json says; restore the folder from a copy"
            )
        arrays = {
            k.removeprefix("buffer."): v.numpy()
            for k, v in tensors.items()
            if k.startswith("buffer.")
        }
        self.buffer.load_arrays(arrays)
        self.method.load_state(
            {k.removeprefix("method."): v for k, v in tensors.items() if k.startswith("method.")},
            state["method"],
        )
        self.num_timesteps = self._last_checkpoint = int(state["step"])
        self._n_records = int(state["records"])
        self.milestones = dict(state["milestones"])
        self._latest = dict(state["latest"])
        self.stopwatch.seconds.update(state["seconds"])
        self._wall_seconds = float(state["wall_seconds"])
        actions = self.buffer.actions[len(self.buffer) - int(state["episode_steps"]) :]
        self._collector.replay(int(state["episode"]), actions.tolist())

    def _bytes_needed(self, total_timesteps: int) -> int:
        """What the run may write: three copies of the buffer and a few policies."""
        row = int(np.prod(self.buffer.observations.shape)) * self.buffer.observations.dtype.itemsize
        distinct = self.evaluator.n_states if self.evaluator is not None else total_timesteps
        table = min(distinct * row, self.buffer.observations.max_bytes)
        return 3 * (table + 40 * total_timesteps) + 2**24


def _make_evaluator(
    problem: FiniteMDP | None, *, discount: float, horizon: int, n_episodes: int
) -> FiniteEvaluator | None:
    if problem is None:
        return None
    if problem.dynamics.n_states > MAX_EVALUATED_STATES:
        warnings.warn(
            f"{problem.dynamics.n_states} states are too many to measure every policy exactly "
            f"(limit {MAX_EVALUATED_STATES}); coverage and optimality are not reported",
            RoverWarning,
            stacklevel=2,
        )
        return None
    return FiniteEvaluator(problem, discount=discount, horizon=horizon, n_episodes=n_episodes)


def library_version() -> str:
    """The version that files are marked with."""
    return __version__
