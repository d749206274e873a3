"""Runs that learn a task: their curve, the best policy, and two ways of learning.

By interacting (:class:`OnlineRun`, the base of fine-tuning and adapting), or from the transitions
that pretraining stored (:class:`OfflineTraining`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from scipy.integrate import trapezoid
from torch import Tensor, nn

from rover.arrays import FloatArray
from rover.data import Buffer, Collector, check_same_spaces, gather, relabel
from rover.envs import (
    Environment,
    RewardFunction,
    Spaces,
    check_rewarded,
    finite_dynamics,
    reward_function,
)
from rover.errors import warn
from rover.evaluation import best_return, greedy_episodes, mean_interval
from rover.features import Observations
from rover.finetuning.config import OfflineConfig
from rover.learners import DiscreteCQL, DiscreteDDPG
from rover.policies import (
    ContextPolicy,
    GreedyPolicy,
    NetworkPolicy,
    Policy,
    PolicyNetwork,
    TabulatedPolicy,
    TwinCritics,
)
from rover.storage import RunConfig
from rover.training.run import Run
from rover.training.run_folder import POLICY_FILE, START_FILE

_TOLERANCE = 1e-6
"""Returns of one policy differ in their last digits by the order in which rewards are added."""

# Random numbers of the evaluations, besides acting and drawing.
_EVALUATION_STREAM = 5
# Episodes of an evaluation where episodes of one policy differ.
# The policy with the greatest mean is returned: of single episodes that would be luck.
_RANDOM_EPISODES = 5
_FINAL_EPISODES = 20  # that nothing was chosen on, of the returned policy


@dataclass(frozen=True)
class TaskResult:
    """Policy, curve and summary of a run that learned a task.

    Attributes:
        actor: the best policy of all that were evaluated, a module in evaluation mode:
            observations (n, *shape) to logits (n, A).
        policy: the same, which can be saved; None for a module of the user's own.
        curve: one record per evaluation.
        summary: figures of the curve; the step that the policy is of (``policy_step``), its mean
            return (``policy_return``) with the ends of a 95% interval (``policy_interval``) in so
            many episodes (``policy_episodes``) that nothing was chosen on; ``reward_seen``; and
            seconds.
    """

    actor: nn.Module
    policy: Policy | None
    curve: tuple[Mapping[str, Any], ...] = field(repr=False)
    summary: Mapping[str, Any]


@dataclass
class _Progress:
    """State of a run besides networks, data and the best policy; `episode_return` and
    `recent_returns`, since the latest evaluation, are in the task's own units."""

    curve: list[Mapping[str, Any]] = field(default_factory=list)
    is_rewarded: bool = False  # there is anything to prefer a policy for
    first_success: int | None = None  # the step at which an episode first reached the goal
    episode_return: float = 0.0
    recent_returns: list[float] = field(default_factory=list)
    latest: dict[str, float | None] = field(default_factory=dict)  # figures of the latest update
    # Of fine-tuning; component of a set of policies and its return, by episodes of the warm-up.
    is_warming_up: bool = False
    warmup_end: int = 0
    component_returns: list[tuple[int, float]] = field(default_factory=list)
    # Of adapting: episodes that followed the plan, and transitions that it was made from.
    explores: bool = True
    n_exploited: int = 0
    n_planned: int = 0


class _TaskRun(Run):
    """Base of the runs that learn a task, online and offline.

    The final policy is the one with the greatest mean return of all evaluations, which play the
    same episodes, by their seeds; among equals the earliest that has learned. Where episodes differ
    a difference within its standard error is none: a learner keeps the earlier policy, and a plan
    is replaced by the later one, which more is known for. Its return is measured anew.

    A subclass sets ``_buffer``, with rewards, and, where networks learn, ``_batch_rng`` and
    ``_learner``, whose policies (``policy_module``) are evaluated and kept.
    """

    config_class: ClassVar[Any]

    _parts: ClassVar[tuple[str, ...]] = ("_learner",)  # with a ``state`` and a ``load_state``
    _buffer: Buffer
    _learner: Any
    _collector: Any = None  # of a run that makes steps
    _plan: Any = None  # the policy of a run without a learner, a new object each time
    _plan_class: ClassVar[type[Policy] | None] = None
    _plan_details: Mapping[str, Any]
    _final: FloatArray | None = None  # returns of the policy that is returned, measured anew
    _patience: int | None = None  # evaluations in a row at the best return that end the run
    _start: nn.Module | None = None  # what learning began with
    _batch_rng: np.random.Generator

    def __init__(
        self,
        run_config: RunConfig,
        env: gym.Env[Any, Any],
        evaluation_env: gym.Env[Any, Any],
        run_dir: Path | None,
    ) -> None:
        config = self.config_class.make(
            run_config.algorithm, run_config.preset, run_config.settings
        )
        super().__init__(
            run_dir=run_dir, checkpoint_every=config.checkpoint_every, threads=config.threads
        )
        self.config = config
        settings = config.model_dump(mode="json")
        self.run_config = run_config.model_copy(update={"settings": settings})
        self.total_timesteps = run_config.total_timesteps
        self._progress = _Progress()
        self._spaces, problem = Spaces.of(env), finite_dynamics(env)
        states = None if problem is None else problem.observations
        self._observations = Observations.from_space(self._spaces.observation, states)
        self._best_return, is_one = best_return(env, problem)
        self._evaluation_env = evaluation_env
        usual, self._final_episodes = (1, 0) if is_one else (_RANDOM_EPISODES, _FINAL_EPISODES)
        self._evaluation_episodes = config.evaluation_episodes or usual
        stream = np.random.SeedSequence([run_config.seed, _EVALUATION_STREAM])
        self._evaluation_seed, self._final_seed = stream.generate_state(2).tolist()
        # Returns, step and copy of the best policy so far; the first evaluation is of step 0.
        self._best: tuple[FloatArray, int, nn.Module] = (np.array([-np.inf]), 0, nn.Identity())

    def _package(self, module: nn.Module) -> nn.Module:
        """The policy of a learner's module as it is returned, in evaluation mode."""
        # The set is left behind: one of its policies was chosen, and alone has learned.
        if isinstance(module, ComponentActor):
            module = module.policy.single(int(module.component))
        if isinstance(module, PolicyNetwork):
            details = self._start.details if isinstance(self._start, Policy) else {}
            module = NetworkPolicy([module], None, details)
        elif isinstance(module, TwinCritics):
            module = GreedyPolicy(module)
        if isinstance(module, Policy):
            module.details = module.details | self._spaces.details
        return module.eval()

    def learn(self, **watched: Any) -> TaskResult:
        """Finish the run, `watched` as by :meth:`finish`; returns what it has learned."""
        self.finish(**watched)
        if not self._progress.is_rewarded:
            warn(
                f"no reward was seen in {len(self._buffer):,} transitions, so nothing was learned "
                "from them; choose a task whose reward is met sooner (a nearer goal, reward=dense, "
                "a longer horizon), start from a longer pretraining, or plan for the task on what "
                "pretraining stored (`rover solve RUN`, rover.solve)",
                stacklevel=5,
            )
        actor = self._package(self._best[2])
        policy = actor if isinstance(actor, Policy) else None
        return TaskResult(actor, policy, tuple(self._progress.curve), self.summary())

    def describe(self, total_timesteps: int) -> RunConfig:
        """Contents of config.json for a run of `total_timesteps` steps or updates."""
        return self.run_config.model_copy(update={"total_timesteps": total_timesteps})

    def _improve(self, **options: Any) -> dict[str, float]:
        """One update on a batch of the data; its figures, values in the task's units."""
        config: Any = self.config
        rewards = self._buffer.rewards
        assert rewards is not None
        # The largest |r| so far: step sizes, entropy bonuses and temperatures are meant for rewards
        # of size one, which a step of a sparse task has already.
        unit = float(np.abs(rewards).max()) or 1.0
        rows = self._batch_rng.integers(len(self._buffer), size=config.learner.batch_size)
        # Scaled as they are drawn and not as they are stored: the largest reward may still come.
        returns = torch.from_numpy(rewards[rows] / unit).float()
        # Truncation is no end of the task, so the value behind it counts (Pardo et al. 2018).
        discounts = np.where(self._buffer.terminated[rows], 0.0, config.learner_discount)
        batch = gather(self._buffer, rows)
        going_on = torch.from_numpy(discounts).float()
        metrics = self._learner.update(batch, returns, going_on, **options)
        return {**metrics, "q_mean": unit * metrics["q_mean"]}

    def _evaluate(self, figures: Mapping[str, Any]) -> dict[str, Any]:
        """Add a record to the curve, and keep the policy if it is the best."""
        progress, step = self._progress, self.num_timesteps
        with self.stopwatch("evaluate"):
            # A copy, which no later step changes.
            module = self._learner.policy_module() if self._plan is None else self._plan
            returns = self._episodes(module, self._evaluation_seed, self._evaluation_episodes)
            greedy = float(returns.mean())
            record = {"step": step, "greedy_return": greedy, **figures}
            progress.curve.append(record)
            greatest, begun, _ = self._best
            # Every evaluation plays the same episodes, so that equal returns are no accident.
            # A learned policy replaces the start where both earn the same: learning was asked for.
            replaces_start = begun <= progress.warmup_end < step
            both = min(len(returns), len(greatest))
            gains, noise = returns[:both] - greatest[:both], 0.0
            if both > 1:
                noise = float(gains.std(ddof=1)) / both**0.5
            gain, least = float(gains.mean()), noise if self._plan is None else -noise
            if gain > least or (gain == 0.0 and replaces_start):
                self._best = returns, step, module
        n, best = self._patience, self._best_return
        # Evaluations of the policy that learning started from do not count.
        learned = [x["greedy_return"] for x in progress.curve if x["step"] > progress.warmup_end]
        if n is not None and best is not None and len(learned) >= n:
            self._is_finished = min(learned[-n:]) >= best - _TOLERANCE
        return record

    def _episodes(self, module: nn.Module, seed: int, n_episodes: int) -> FloatArray:
        """Returns (n_episodes,) of a learner's module, by its greatest logits."""
        actor = self._package(module)
        has_memory = isinstance(actor, ContextPolicy)
        return greedy_episodes(
            self._evaluation_env,
            actor.sample_component if isinstance(actor, ContextPolicy) else actor,
            seed=seed,
            n_episodes=n_episodes,
            has_memory=has_memory,
        )

    def _conclude(self) -> None:
        if self._final_episodes:
            with self.stopwatch("evaluate"):
                self._final = self._episodes(self._best[2], self._final_seed, self._final_episodes)
        kinds = {} if self._collector is None else self._collector.kinds()
        for message in kinds.values():
            warn(message, stacklevel=4)

    def _figures(self) -> dict[str, Any]:
        """The figures of the curve of greedy returns; None where an event did not happen.

        ``steps_to_best_return`` is the first evaluation whose greedy return is the best possible
        one, or the best of this curve where that is unknown; ``steps_to_stay_at_best`` the one from
        which on all are; ``area_under_curve`` the mean over the steps, by the trapezoidal rule.
        """
        progress, best = self._progress, self._best_return
        columns = list(map(itemgetter("step", "greedy_return"), progress.curve))
        steps, returns = np.array(columns, np.float64).T
        # A policy may visit the best return by luck: what counts is from when on it stays there.
        at_best = returns >= (returns.max() if best is None else best) - _TOLERANCE
        # Counted from the end: evaluations at the best without a worse one after them.
        n_last = int(np.logical_and.accumulate(at_best[::-1]).sum())
        area = trapezoid(returns, steps) / max(1.0, steps[-1] - steps[0])
        figures: dict[str, Any] = {
            "steps": int(steps[-1]),
            "best_possible_return": best,
            "greedy_return": float(returns[-1]),
            "best_greedy_return": float(returns.max()),
            "steps_to_first_success": progress.first_success,
            "best_return_kind": "reached" if best is None else "possible",
            "steps_to_best_return": int(steps[at_best.argmax()]) if at_best.any() else None,
            "steps_to_stay_at_best": int(steps[-n_last]) if n_last else None,
            "area_under_curve": float(area) if len(steps) > 1 else float(returns[0]),
        }
        if "episode" in progress.curve[-1]:  # of a run that plays any
            figures["episodes"] = progress.curve[-1]["episode"] + 1
        final = self._best[0] if self._final is None else self._final
        mean, low, high = mean_interval(np.resize(final, max(len(final), 2))).values()
        figures["policy_step"], figures["policy_return"] = self._best[1], mean
        figures["policy_interval"], figures["policy_episodes"] = [low, high], len(final)
        figures["reward_seen"] = progress.is_rewarded
        return figures

    def _state(self) -> dict[str, Any]:
        module: Any
        (returns, step, module), plans = self._best, self._plan_class
        return {
            "best": [returns, step, module.state_dict() if plans is None else module.content()],
            "progress": dict(vars(self._progress)),
            "parts": {name: getattr(self, name).state() for name in self._parts},
        }

    def _load_state(self, state: Mapping[str, Any]) -> None:
        for name in self._parts:
            getattr(self, name).load_state(state["parts"][name])
        returns, step, weights = state["best"]
        if self._plan_class is None:
            module = self._learner.policy_module()
            module.load_state_dict(weights)
        else:
            module = self._plan_class.from_content(weights)
            module.details = dict(self._plan_details)
        self._best = np.asarray(returns), int(step), module
        self._progress = _Progress(**state["progress"])

    def _save_results(self, folder: Path) -> None:
        policy = self._package(self._best[2])
        if isinstance(policy, Policy):
            policy.save(folder / POLICY_FILE)


class ComponentActor(nn.Module):
    """One stationary policy of a set; its number `component` is part of the learner's state."""

    component: Tensor

    def __init__(self, policy: NetworkPolicy) -> None:
        super().__init__()
        self.policy = policy
        self.register_buffer("component", torch.zeros((), dtype=torch.int64))

    def draw(self, rng: np.random.Generator) -> None:
        """Choose the policy of an episode, of a set of several."""
        if self.policy.n_components > 1:
            self.component.fill_(self.policy.draw_component(rng))

    def forward(self, observations: Tensor) -> Tensor:
        """Logits (n, A) of raw observations (n, *shape)."""
        return self.policy.component_logits(observations, int(self.component))


class OnlineRun(_TaskRun):
    """Base of the runs that learn a task by interacting with it.

    A subclass chooses the actions (:meth:`_choose`), by its table ``_acting`` if it has any, and
    learns from each transition (:meth:`_learn`).
    """

    # The buffer first, which the collector replays the unfinished episode of.
    _parts: ClassVar[tuple[str, ...]] = ("_buffer", "_collector", "_learner")
    _acting: TabulatedPolicy | None = None

    def __init__(
        self, run_config: RunConfig, environment: Environment, run_dir: Path | None
    ) -> None:
        env = environment.env
        Spaces.of(env)  # refuses what cannot be learned on
        check_rewarded(env)
        # Without another instance an evaluation ends the episode, which is then played again.
        super().__init__(run_config, env, environment.another() or env, run_dir)
        # Empty, and with rewards: what pretraining stored has none, and is not looked at.
        self._buffer = Buffer.of(self._spaces, rewards=True)
        self._collector = Collector(env, self._buffer, seed=run_config.seed, spaces=self._spaces)
        # Two streams: how often batches are drawn must not change how the agent acts.
        self._rng, self._batch_rng = np.random.default_rng([run_config.seed, 0]).spawn(2)

    def _prepare_folder(self, folder: Path) -> None:
        if isinstance(self._start, Policy):
            self._start.save(folder / START_FILE)

    @abstractmethod
    def _choose(self) -> int:
        """The action on the collector's observation."""

    @abstractmethod
    def _learn(self, *, done: bool) -> None:
        """Learn from the buffer's latest transition, `done` if it ended its episode."""

    def _begin(self) -> dict[str, Any]:
        self._collector.start_episode()
        return self._measure()

    def _step(self, *, is_last: bool) -> dict[str, Any] | None:
        with self.stopwatch("collect"):
            done = self._collector.step(self._choose())
        self.num_timesteps += 1
        progress = self._progress
        rewards, terminated = self._buffer.rewards, self._buffer.terminated
        assert rewards is not None
        # In the task's own units, which a curve of returns is read in.
        progress.episode_return += float(rewards[-1])
        # Until there is anything to prefer a policy can only get worse.
        progress.is_rewarded |= bool(rewards[-1] != rewards[0] or (terminated[-1] and rewards[-1]))
        if done:
            if progress.first_success is None and terminated[-1]:
                # An end that earns more than any step before it: a goal, and not a fall.
                before = rewards[~terminated].max(initial=-np.inf)
                progress.first_success = self.num_timesteps if rewards[-1] > before else None
            progress.recent_returns.append(progress.episode_return)
            progress.episode_return = 0.0
        self._learn(done=done)
        is_due = is_last or self.num_timesteps % self.config.evaluate_every == 0
        return self._measure() if is_due else None

    def _measure(self) -> dict[str, Any]:
        # A run that goes on from here has nothing tabulated, and rounding depends on what was.
        if self._acting is not None:
            self._acting.forget()
        recent, self._progress.recent_returns = self._progress.recent_returns, []
        return self._evaluate(
            {
                "episode": self._collector.episodes[0],
                "training_return": float(np.mean(recent)) if recent else None,
                "observations": len(self._buffer.observations),
                **self._progress.latest,
            }
        )


class OfflineTraining(_TaskRun):
    """One run of a learner on transitions that pretraining stored, labelled by a reward function or
    else by the task's, without a further step. What the data does not show cannot be learned."""

    activity = "offline"
    config_class = OfflineConfig
    config: OfflineConfig
    _learner: DiscreteCQL | DiscreteDDPG

    def __init__(
        self,
        run_config: RunConfig,
        start: tuple[Buffer, RewardFunction | None],
        environment: Environment,
        run_dir: Path | None,
    ) -> None:
        (buffer, reward), env = start, environment.env
        check_same_spaces(buffer, env)
        check_rewarded(env)
        super().__init__(run_config, env, env, run_dir)
        self._buffer = relabel(buffer, reward_function(env) if reward is None else reward)
        # One reward everywhere, and no end, prefers no policy to any other.
        rewards = self._buffer.rewards
        assert rewards is not None
        differ = bool((rewards != rewards[0]).any())
        self._progress.is_rewarded = differ or bool(self._buffer.terminated.any())
        self._batch_rng = np.random.default_rng([run_config.seed, 1])
        learner: Any = DiscreteCQL if run_config.algorithm == "cql" else DiscreteDDPG
        self._learner = learner(
            self._observations,
            n_actions=buffer.n_actions,
            config=self.config.learner,
            generator=torch.Generator().manual_seed(run_config.seed),
        )
        self._learner.centre(buffer.observations.rows)

    def _begin(self) -> None:
        return None

    def _step(self, *, is_last: bool) -> dict[str, Any] | None:
        with self.stopwatch("improve"):
            metrics = self._improve()
        self.num_timesteps += 1
        if not (is_last or self.num_timesteps % self.config.evaluate_every == 0):
            return None
        return self._evaluate({"critic_loss": metrics["critic_loss"], "q_mean": metrics["q_mean"]})

    def _figures(self) -> dict[str, Any]:
        return {
            **super()._figures(),
            "labelled_goals": int(self._buffer.terminated.sum()),
            "transitions": len(self._buffer),
        }
