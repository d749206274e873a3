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

from rover.data import Collector, ReplayBuffer, StepOutcome
from rover.errors import ArtefactError, RoverError, RoverWarning
from rover.policies.coverage import Policy
from rover.storage import write_arrays, write_json
from rover.training.measuring import Measures
from rover.training.progress import Monitor
from rover.training.run_folder import RunConfig, RunFolder, read_run_config
from rover.training.timing import Stopwatch

Callback = Callable[[Mapping[str, Any]], bool | None]


class Method(Protocol):
    """What the loop needs of a reward-free method."""

    name: str

    @property
    def policy(self) -> Policy:
        """The policy that is handed over."""
        ...

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
        self._describe = describe
        self._collector = Collector(env, buffer, seed=seed)
        self._folder = None if run_dir is None else RunFolder(run_dir)
        self._is_new = True
        self._n_records = 0
        self._last_checkpoint = 0
        self.measures = Measures(
            env, buffer, seed=seed, discount=discount, n_episodes=evaluation_episodes
        )
        self._wall_seconds = 0.0
        self._running_since: float | None = None

    @property
    def policy(self) -> Policy:
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
                self.measures.note(self.num_timesteps)
                learned = self.method.update()
                if learned is None:
                    continue
                with self.stopwatch("evaluate"):
                    record = self.measures.measure(
                        self.method.policy,
                        learned,
                        step=self.num_timesteps,
                        episode=self._collector.episode,
                    )
                monitor.report(record, self.stopwatch.seconds)
                self._store(record, is_last=self.num_timesteps >= total)
                if callback is not None and callback(record) is False:
                    break
        if not self.measures.latest:
            warnings.warn(
                f"{self.num_timesteps} steps were too few for a policy update, so the policy is "
                "still uniform; run more steps or lower policy_every (and seed_steps)",
                RoverWarning,
                stacklevel=2,
            )

    def summary(self) -> dict[str, Any]:
        """What summary.json holds; keys are null where the states are unknown."""
        return {
            "steps": self.num_timesteps,
            "episodes": self._collector.episode + 1,
            **self.measures.summary(),
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
        snapshots, measures = self.measures.state()
        tensors |= {f"snapshots.{k}": v for k, v in snapshots.items()}
        metadata = {
            "run": self._identity(),
            "step": self.num_timesteps,
            "records": self._n_records,
            "measures": measures,
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
            arrays = self.measures.record(self.method.policy)
            if arrays:
                write_arrays(folder.path / "evaluation.h5", arrays, kind="evaluation", metadata={})
        if self.measures.latest.get("step") == self.num_timesteps != self._last_checkpoint:
            # Last, so that a checkpoint of the last step means that the run is complete.
            self._checkpoint(folder)
        write_json(folder.path / "summary.json", self.summary())

    def restore(self) -> None:
        """Take over the state of the run folder's latest checkpoint.

        Raises:
            ArtefactError: the checkpoint is damaged or does not belong to this configuration.
            ReplayMismatchError: the environment does not repeat itself.
        """
        assert self._folder is not None
        self._is_new = False
        stored = self._folder.checkpoints.read_latest()
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

        def part(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

        self.buffer.load_arrays({k: v.numpy() for k, v in part("buffer.").items()})
        self.method.load_state(part("method."), state["method"])
        self.num_timesteps = self._last_checkpoint = int(state["step"])
        self._n_records = int(state["records"])
        self.measures.load_state(part("snapshots."), state["measures"])
        self.stopwatch.seconds.update(state["seconds"])
        self._wall_seconds = float(state["wall_seconds"])
        actions = self.buffer.actions[len(self.buffer) - int(state["episode_steps"]) :]
        self._collector.replay(int(state["episode"]), actions.tolist())

    def _bytes_needed(self, total_timesteps: int) -> int:
        """What the run may write: three copies of the buffer and a few policies."""
        row = int(np.prod(self.buffer.observations.shape)) * self.buffer.observations.dtype.itemsize
        evaluator = self.measures.evaluator
        distinct = evaluator.n_states if evaluator is not None else total_timesteps
        table = min(distinct * row, self.buffer.observations.max_bytes)
        return 3 * (table + 40 * total_timesteps) + 2**24
