"""A run that learns a task, online or offline: what it leaves, its curve, and how it goes on."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.integrate import trapezoid
from torch import Tensor, nn

from rover.data import (
    Batch,
    Buffer,
    ObservationTable,
    RunningEpisode,
    check_spaces,
    episode_seed,
    n_step_batch,
    sample_windows,
)
from rover.errors import ConfigurationError, RoverWarning
from rover.features import encoder_config
from rover.finetuning.config import LearningConfig
from rover.finetuning.tasks import best_return
from rover.learners import DiscreteCQL, DiscreteDDPG, DiscreteSAC
from rover.policies import Policy, TabulatedPolicy
from rover.training.measures import observations_of
from rover.training.run import Run
from rover.training.run_folder import POLICY_FILE, RunConfig

MAX_EPISODE_STEPS = 100_000
_TOLERANCE = 1e-6
_EVALUATION_STREAM = 5
"""Of random numbers, next to those of acting and drawing."""


@dataclass(frozen=True)
class Learned:
    """What learning a task leaves.

    Attributes:
        actor: the policy with the best greedy return of all that were evaluated, the latest of
            several, as a module in evaluation mode: observations (n, *shape) to logits (n, A).
        policy: the same, which can be saved; None for a module of the user's own.
        curve: one record per evaluation.
        summary: the figures of :func:`curve_summary`, and seconds.
    """

    actor: nn.Module
    policy: Policy | None
    curve: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, Any]


class TaskRun(Run):
    """What learning a task online and offline have in common.

    The best of the policies that were evaluated is kept, and handed over at the end.

    Args:
        about: what config.json will say, or says.
        env: the task.
        evaluation_env: an instance of the task that only evaluations step.
        run_dir: folder for the run's files; None leaves none.

    Attributes:
        about: as given.
        curve: one record per evaluation so far, with ``step`` and ``greedy_return``.
        first_success: step at which an episode of training first reached the goal, or None.
    """

    can_be_extended = False
    config_class: ClassVar[type[LearningConfig]]
    _learner: DiscreteDDPG | DiscreteSAC | DiscreteCQL
    _batch_rng: np.random.Generator

    def __init__(
        self,
        about: RunConfig,
        env: gym.Env[Any, Any],
        evaluation_env: gym.Env[Any, Any],
        run_dir: str | Path | None,
    ) -> None:
        config: Any = self.config_class.make(about.algorithm, about.preset, about.settings)
        super().__init__(
            run_dir=run_dir, checkpoint_every=config.checkpoint_every, threads=config.threads
        )
        self.about = about
        self.total_timesteps = about.total_timesteps
        self.curve: list[Mapping[str, Any]] = []
        self.first_success: int | None = None
        self._best_return = best_return(env)
        self.config = config
        self._observations = observations_of(env)
        width = None if self._observations.is_image else config.learner.hidden_sizes[0]
        self._encoder_config = encoder_config(
            self._observations, architecture="learner", feature_dim=width
        )
        self._evaluation_env = evaluation_env
        stream = np.random.SeedSequence([about.seed, _EVALUATION_STREAM])
        self._evaluation_seed = int(stream.generate_state(1)[0])
        self._best: nn.Module | None = None

    @abstractmethod
    def _package(self, module: nn.Module) -> Policy | None:
        """What a learner hands over as a policy that can be saved; None for a user's module."""

    def learn(self, **watching: Any) -> Learned:
        """Finish the run, watched as by :meth:`finish`; returns what it has learned.

        Warns:
            RoverWarning: the last policy earns less than the one that is handed over.
        """
        self.finish(**watching)
        summary, best = self.summary(), self._best
        assert best is not None  # a run ends with an evaluation
        last, kept = summary["steps"], summary["policy_step"]
        if summary["greedy_return"] < summary["best_greedy_return"]:
            warnings.warn(
                f"the policy of step {last} has a greedy return of {summary['greedy_return']:g}, "
                f"less than the {summary['best_greedy_return']:g} of step {kept}: the policy of "
                f"step {kept} is handed over",
                RoverWarning,
                stacklevel=3,
            )
        policy = self._package(best)
        actor = best if policy is None else policy.eval()
        return Learned(actor, policy, tuple(self.curve), summary)

    def describe(self, total_timesteps: int) -> RunConfig:
        """What config.json says of a run of `total_timesteps` steps or updates."""
        return self.about.model_copy(update={"total_timesteps": total_timesteps})

    def _draw(self, buffer: Buffer, unit: float) -> tuple[Batch, Tensor, Tensor]:
        """A batch with n-step returns and discounts; rewards are divided by `unit`."""
        config = self.config
        rows, lengths = sample_windows(
            buffer, config.learner.batch_size, self._batch_rng, n_steps=config.n_steps
        )
        assert buffer.rewards is not None
        rewards = torch.from_numpy(buffer.rewards[rows] / unit).float()
        return n_step_batch(buffer, rows, lengths, rewards, discount=config.learner_discount)

    def _evaluate(self, figures: Mapping[str, Any]) -> dict[str, Any]:
        """Add a record to the curve, and keep the policy if none was better."""
        with self.stopwatch("evaluate"):
            returns = greedy_returns(
                self._evaluation_env,
                self._learner.policy_logits,
                seed=self._evaluation_seed,
                n_episodes=self.config.evaluation_episodes,
            )
            greedy = float(returns.mean())
            record = {"step": self.num_timesteps, "greedy_return": greedy, **figures}
            self.curve.append(record)
            if greedy >= max(map(itemgetter("greedy_return"), self.curve)):
                self._best = self._learner.policy_module()
        return record

    def _state(self) -> dict[str, Any]:
        assert self._best is not None
        return {
            "learner": self._learner.state(),
            "best": self._best.state_dict(),
            "curve": list(self.curve),
            "first_success": self.first_success,
            "batch_rng": self._batch_rng.bit_generator.state,
        }

    def _load_state(self, state: Mapping[str, Any]) -> None:
        self._learner.load_state(state["learner"])
        self._best = self._learner.policy_module()
        self._best.load_state_dict(state["best"])
        self.curve = list(state["curve"])
        self.first_success = state["first_success"]
        self._batch_rng.bit_generator.state = state["batch_rng"]

    def _save_results(self, folder: Path) -> None:
        policy = None if self._best is None else self._package(self._best)
        if policy is not None:
            policy.save(folder / POLICY_FILE)


def curve_summary(
    curve: Sequence[Mapping[str, Any]],
    best: float | None = None,
    first_success: int | None = None,
) -> dict[str, Any]:
    """The figures of a curve of greedy returns; None where an event did not happen.

    ``steps_to_best_return`` is the first evaluation whose greedy return is the best possible,
    ``steps_to_stay_at_best`` the one from which on all are. ``policy_step`` is the evaluation
    of the policy that is handed over: the one with the best return, the last of several.
    ``area_under_curve`` is the mean greedy return over the steps, by the trapezoidal rule.

    Args:
        curve: at least one record, with ``step`` and ``greedy_return``.
        best: the best return of the task; None where it is unknown.
        first_success: step at which an episode of training first reached the goal.
    """
    figures = map(itemgetter("step", "greedy_return"), curve)
    steps, returns = np.array(list(figures), np.float64).T
    at_best = returns >= (np.inf if best is None else best - _TOLERANCE)
    n_last = int(np.logical_and.accumulate(at_best[::-1]).sum())
    area = trapezoid(returns, steps) / max(1.0, steps[-1] - steps[0])
    return {
        "steps": int(steps[-1]),
        "best_possible_return": best,
        "greedy_return": float(returns[-1]),
        "best_greedy_return": float(returns.max()),
        "policy_step": int(steps[returns == returns.max()][-1]),
        "steps_to_first_success": first_success,
        "steps_to_best_return": int(steps[at_best.argmax()]) if at_best.any() else None,
        "steps_to_stay_at_best": int(steps[-n_last]) if n_last else None,
        "area_under_curve": float(area) if len(steps) > 1 else float(returns[0]),
    }


def greedy_returns(
    env: gym.Env[Any, Any],
    logits: Callable[[Tensor], Tensor],
    *,
    seed: int,
    n_episodes: int,
) -> NDArray[np.float64]:
    """Undiscounted returns (n_episodes,) with the likeliest action in each state.

    Args:
        env: the task's environment, which nothing else steps.
        logits: the policy: logits (n, A) of raw observations (n, *shape).
        seed: of the episodes' resets; the same seed plays the same episodes.
        n_episodes: how many.

    Raises:
        ConfigurationError: an episode that does not end.
    """
    shape, dtype, _ = check_spaces(env)
    table = ObservationTable(shape, dtype)
    policy = TabulatedPolicy(table, lambda observations, rows: logits(observations))
    returns = np.zeros(n_episodes)
    for number in range(n_episodes):
        episode = RunningEpisode(env, seed=episode_seed(seed, number))
        observation = episode.observation
        for _ in range(MAX_EPISODE_STEPS):
            action = policy.greedy(table.intern(observation))
            observation, reward, terminated, truncated = episode.step(action)
            returns[number] += float(reward)
            if terminated or truncated:
                break
        else:
            raise ConfigurationError(
                f"an episode did not end within {MAX_EPISODE_STEPS:,} steps: wrap the environment "
                "in gymnasium.wrappers.TimeLimit"
            )
    return returns
