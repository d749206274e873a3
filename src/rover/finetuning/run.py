"""A run that learns a task, online or offline: what it leaves, its curve, and how it goes on."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

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
    as_reward,
    check_spaces,
    episode_seed,
    n_step_batch,
    sample_windows,
)
from rover.errors import ConfigurationError, RoverWarning
from rover.features import EncoderConfig, encoder_config
from rover.finetuning.config import TaskConfig
from rover.finetuning.tasks import best_return, is_deterministic
from rover.policies import Policy, TabulatedPolicy
from rover.storage import restore_tensors
from rover.training.environments import observations_of
from rover.training.run import Run
from rover.training.run_folder import POLICY_FILE, RunConfig

MAX_EPISODE_STEPS = 100_000
_TOLERANCE = 1e-6
_EVALUATION_STREAM = 5
"""Of random numbers, next to those of acting and drawing."""

REMEDY = (
    "choose a task whose reward is met sooner (a nearer goal, reward=dense, a longer horizon), or "
    "start from more coverage (a longer pretraining, another agent), or plan for the task on what "
    "pretraining stored (`rover solve RUN`, rover.solve)"
)
_RANDOM_EPISODES, _FINALISTS = 5, 4
"""Where episodes of one policy differ: those of an evaluation, and policies that are compared."""


@dataclass(frozen=True)
class Learned:
    """What learning a task leaves.

    Attributes:
        actor: the best policy (:class:`TaskRun`), a module in evaluation mode: observations
            (n, *shape) to logits (n, A).
        policy: the same, which can be saved; None for a module of the user's own.
        curve: one record per evaluation.
        summary: the figures of :func:`curve_summary`; ``policy_step``, the evaluation at which the
            policy was the learner's, and ``policy_return``, by which it was chosen (of the final
            episodes where there are any); ``reward_seen``; and seconds.
    """

    actor: nn.Module
    policy: Policy | None
    curve: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, Any]


if TYPE_CHECKING:

    class _Learner(Protocol):
        """What a run asks of that which learns: its policy, and a state to go on from."""

        def policy_logits(self, observations: Tensor) -> Tensor:
            """Logits (n, A) of raw observations (n, *shape), without gradient."""
            ...

        def policy_module(self) -> nn.Module:
            """A copy of the policy in evaluation mode that no later update changes."""
            ...

        def state(self) -> dict[str, Tensor]:
            """Everything that learning depends on, copied."""
            ...

        def load_state(self, state: Mapping[str, Tensor], /) -> None:
            """Restore what :meth:`state` returned."""
            ...


class TaskRun(Run):
    """What learning a task online and offline have in common.

    The best of the policies that were evaluated is kept, through checkpoints too, and handed over;
    the one that learning started from is among them. Every evaluation plays the same episodes, by
    their seeds. Where dynamics and start are known to be deterministic one episode is exact, and
    the best is the one with the greatest return, the latest of several. Elsewhere the greatest of
    many noisy means is too good to be true: the four best with different means over
    ``evaluation_episodes``, and the start, are compared once more at the end, on ``final_episodes``
    further episodes, the same for all, and the one with the greatest mean there is handed over,
    the latest of several.

    Args:
        about: what config.json will say, or says.
        env: the task.
        evaluation_env: an instance of the task that only evaluations step.
        run_dir: folder for the run's files; None leaves none.

    Attributes:
        about: as given.
        curve: one record per evaluation so far, with ``step`` and ``greedy_return``.
        first_success: step at which an episode of training first reached the goal, or None.
        is_rewarded: whether any reward or end of an episode was seen that another could be
            preferred to.
    """

    can_be_extended = False
    config_class: ClassVar[type[TaskConfig]]
    _buffer: Buffer
    _learner: _Learner
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
        self.is_rewarded = False
        self._best_return = best_return(env)
        self._is_deterministic = is_deterministic(evaluation_env)
        self.config = config
        self._observations = observations_of(env)
        self._evaluation_env = evaluation_env
        stream = np.random.SeedSequence([about.seed, _EVALUATION_STREAM])
        self._evaluation_seed, self._final_seed = map(int, stream.generate_state(2))
        self._finalists: dict[float, tuple[int, nn.Module]] = {}
        """Steps and copies of the best policies, by their mean return."""
        self._start: nn.Module | None = None
        self._chosen: tuple[float, int, nn.Module] | None = None

    def _encoder_config(self) -> EncoderConfig:
        """The encoder of a learner's networks."""
        config: Any = self.config
        width = None if self._observations.is_image else config.learner.hidden_sizes[0]
        return encoder_config(self._observations, architecture="learner", feature_dim=width)

    @abstractmethod
    def _package(self, module: nn.Module) -> nn.Module:
        """A learner's policy as what is handed over, in evaluation mode.

        A :class:`rover.policies.Policy` where it can be saved, else the user's module.
        """

    def learn(self, **watching: Any) -> Learned:
        """Finish the run, watched as by :meth:`finish`; returns what it has learned.

        Warns:
            RoverWarning: the last policy earns less than the one that is handed over; or no reward
                was seen.
        """
        self.finish(**watching)
        summary, last = self.summary(), self.curve[-1]
        assert self._chosen is not None  # a run ends with an evaluation
        _, kept, module = self._chosen
        best = self.curve[list(map(itemgetter("step"), self.curve)).index(kept)]
        if last["greedy_return"] < best["greedy_return"]:
            start = ", from which learning started," if kept == 0 else ""
            warnings.warn(
                f"the policy of step {last['step']} has a greedy return of "
                f"{last['greedy_return']:g}, less than the {best['greedy_return']:g} of step "
                f"{kept}{start}: the policy of step {kept} is handed over",
                RoverWarning,
                stacklevel=3,
            )
        if not self.is_rewarded:
            warnings.warn(
                f"no reward was seen in {len(self._buffer):,} transitions, so nothing was learned "
                f"from them (what is handed over has a greedy return of "
                f"{summary['policy_return']:g}); {REMEDY}",
                RoverWarning,
                stacklevel=3,
            )
        actor = self._package(module)
        policy = actor if isinstance(actor, Policy) else None
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
        """Add a record to the curve, and keep the policy if it is among the best."""
        usual = 1 if self._is_deterministic else _RANDOM_EPISODES
        n_episodes = self.config.evaluation_episodes or usual
        with self.stopwatch("evaluate"):
            returns = greedy_returns(
                self._evaluation_env,
                self._learner.policy_logits,
                seed=self._evaluation_seed,
                n_episodes=n_episodes,
            )
            greedy = float(returns.mean())
            record = {"step": self.num_timesteps, "greedy_return": greedy, **figures}
            self.curve.append(record)
            # Of those with one and the same mean, which behave alike, the latest is enough.
            entry = self.num_timesteps, self._learner.policy_module()
            self._finalists[greedy] = entry
            if self.num_timesteps == 0 and not self._is_deterministic:
                self._start = entry[1]
            if len(self._finalists) > (1 if self._is_deterministic else _FINALISTS):
                del self._finalists[min(self._finalists)]
        return record

    def _conclude(self) -> None:
        """Choose the policy that is handed over."""
        if self._is_deterministic:
            ((greedy, (step, module)),) = self._finalists.items()
            self._chosen = greedy, step, module
            return
        self._chosen, entries = None, dict(self._finalists.values())
        if self._start is not None:
            entries[0] = self._start
        with self.stopwatch("evaluate"):
            for step, module in sorted(entries.items(), key=itemgetter(0)):
                mean = greedy_returns(
                    self._evaluation_env,
                    self._package(module),
                    seed=self._final_seed,
                    n_episodes=self.config.final_episodes,
                ).mean()
                if self._chosen is None or mean >= self._chosen[0]:  # the latest of several
                    self._chosen = float(mean), step, module

    def _figures(self) -> dict[str, Any]:
        greatest = max(self._finalists)
        chosen = self._chosen or (greatest, self._finalists[greatest][0])
        episode = self.curve[-1].get("episode")  # where learning plays any
        return {
            **curve_summary(self.curve, self._best_return, self.first_success),
            **({} if episode is None else {"episodes": episode + 1}),
            "policy_step": chosen[1],
            "policy_return": chosen[0],
            "reward_seen": self.is_rewarded,
        }

    def _state(self) -> dict[str, Any]:
        return {
            "learner": self._learner.state(),
            "finalists": [
                (greedy, step, self._stored(module))
                for greedy, (step, module) in self._finalists.items()
            ],
            "start": None if self._start is None else self._stored(self._start),
            "is_rewarded": self.is_rewarded,
            "curve": list(self.curve),
            "first_success": self.first_success,
            "batch_rng": self._batch_rng.bit_generator.state,
        }

    def _load_state(self, state: Mapping[str, Any]) -> None:
        self._learner.load_state(state["learner"])
        for greedy, step, weights in state["finalists"]:
            self._finalists[greedy] = step, self._restored(weights)
        if state["start"] is not None:
            self._start = self._restored(state["start"])
        self.is_rewarded = bool(state["is_rewarded"])
        self.curve = list(state["curve"])
        self.first_success = state["first_success"]
        self._batch_rng.bit_generator.state = state["batch_rng"]
        self._figures()  # which can be made of what was read, or it is refused

    def _stored(self, module: nn.Module) -> Mapping[str, Any]:
        """What a checkpoint holds of a policy of the learner's."""
        return module.state_dict()

    def _restored(self, weights: Mapping[str, Any]) -> nn.Module:
        """A copy of the learner's policy with weights that were stored."""
        module = self._learner.policy_module()
        restore_tensors(module.state_dict(), weights, owner="the policy")
        return module

    def _save_results(self, folder: Path) -> None:
        assert self._chosen is not None
        policy = self._package(self._chosen[2])
        if isinstance(policy, Policy):
            policy.save(folder / POLICY_FILE)


def curve_summary(
    curve: Sequence[Mapping[str, Any]],
    best: float | None = None,
    first_success: int | None = None,
) -> dict[str, Any]:
    """The figures of a curve of greedy returns; None where an event did not happen.

    ``steps_to_best_return`` is the first evaluation whose greedy return is the best possible,
    ``steps_to_stay_at_best`` the one from which on all are. ``area_under_curve`` is the mean greedy
    return over the steps, by the trapezoidal rule.

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
    """Undiscounted returns (n_episodes,) with the likeliest action; as of :func:`greedy_episodes`.

    Args:
        env, logits, seed, n_episodes: as of :func:`greedy_episodes`.
    """
    return greedy_episodes(env, logits, seed=seed, n_episodes=n_episodes)[0]


def greedy_episodes(
    env: gym.Env[Any, Any],
    logits: Callable[[Tensor], Tensor],
    *,
    seed: int,
    n_episodes: int,
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Undiscounted returns (n_episodes,) and the observations of all decisions (m, *shape).

    Args:
        env: the task's environment, which nothing else steps.
        logits: the policy: logits (n, A) of raw observations (n, *shape), of which the likeliest
            action is taken.
        seed: of the episodes' resets; the same seed plays the same episodes.
        n_episodes: how many.

    Raises:
        ConfigurationError: an episode that does not end.
    """
    shape, dtype, _ = check_spaces(env)
    table = ObservationTable(shape, dtype)
    policy = TabulatedPolicy(table, lambda observations, rows: logits(observations))
    returns, decisions = np.zeros(n_episodes), []
    for number in range(n_episodes):
        episode = RunningEpisode(env, seed=episode_seed(seed, number), number=number)
        observation = episode.observation
        for _ in range(MAX_EPISODE_STEPS):
            decisions.append(table.intern(observation))
            observation, reward, terminated, truncated = episode.step(policy.greedy(decisions[-1]))
            returns[number] += as_reward(reward, episode.where)
            if terminated or truncated:
                break
        else:
            raise ConfigurationError(
                f"an episode did not end within {MAX_EPISODE_STEPS:,} steps: wrap the environment "
                "in gymnasium.wrappers.TimeLimit"
            )
    return returns, table.rows[decisions]
