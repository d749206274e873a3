"""Base class of every agent, in the manner of Stable-Baselines3: learn, policy, resume.

An agent is a class with a name, settings, a label, and four methods: `_act` chooses an
action, `_observe` takes note of the transition, `_update` learns when due, and `_state` is what the
next step depends on. Collecting, measuring, the run folder and resuming are here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.data import Buffer, Collector
from rover.data.checking import DRAWN_WHEN_MADE, UNSEEDED
from rover.data.copies import Copies
from rover.data.rollout import not_repeated
from rover.envs import Environment, GivenEnv, Spaces, finite_dynamics, known_id
from rover.envs.dynamics import MAX_EVALUATED_STATES, FiniteMDP
from rover.envs.registration import versions_of, warn_of_versions
from rover.errors import (
    ArtefactError,
    ConfigurationError,
    ReplayMismatchError,
    choose,
    warn,
    whole_number,
)
from rover.features import learning_mode
from rover.operators import Objective
from rover.policies.policy import Policy
from rover.storage import RunConfig, fitting, read_run_config, write_tensors
from rover.training.config import AgentConfig, discount_of, merge_settings, validate_settings
from rover.training.measures import ExactMeasures, FinalPolicy, Measures
from rover.training.monitor import Log
from rover.training.rollout_measures import RolloutMeasures
from rover.training.run import Callback, Run
from rover.training.run_folder import BUFFER_FILE, EVALUATION_FILE, POLICY_FILE
from rover.version import __version__
from rover.world.world import World

AGENTS: dict[str, type[Agent[Any]]] = {}
"""Every agent's class by its name, as soon as its module has been imported."""

_MOST_REPLAYED = 500
"""Most steps of a run that another instance plays again, and a twentieth of them."""

ConfigT = TypeVar("ConfigT", bound=AgentConfig)


class Agent(Run, Generic[ConfigT]):
    """One run of a reward-free agent on one environment.

    Args:
        env, env_kwargs, seed, run_dir: as of :class:`rover.Rover`.
        preset: one of :attr:`presets`; None: the first.
        overrides: single settings, the fields of :attr:`config_class`; nested ones as mappings.

    Attributes:
        name: the agent's name, of its class.
        label: how pages and tables show it, of its class.
        learns: whether it updates its policy, which a run can be too short for; of its class.
        config_class: the class of its settings.
        presets: settings that differ from the defaults, by preset.
        env: the environment.
        config: the resolved settings.
        seed: the run's seed.
        spaces: its observations and actions, as they are stored.
        buffer: all transitions so far.
        world: what is learned of the environment from them.

    Raises:
        ConfigurationError: unknown or contradictory settings.
        UnsupportedSpaceError: an observation or action space that cannot be handled.
    """

    activity = "pretrain"
    _explores = False  # whether it sees more states than random actions do, if any
    name: ClassVar[str]
    label: ClassVar[str]
    learns: ClassVar[bool] = True
    config_class: ClassVar[type[AgentConfig]]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__:
            AGENTS[cls.name] = cls

    def __init__(
        self,
        env: GivenEnv,
        preset: str | None = None,
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        seed: int = 0,
        run_dir: str | Path | None = None,
        **overrides: Any,
    ) -> None:
        environment = Environment.of(env, env_kwargs)
        self.env = environment.env
        self.spaces = Spaces.of(self.env)
        # Settings are resolved before anything is allocated: what contradicts them costs nothing.
        self.preset = choose("preset", preset or next(iter(self.presets)), self.presets)
        self.seed = whole_number("seed", seed, least=0)
        self.config: ConfigT = self._configure(overrides)
        # As the policy and config.json name them.
        self._origin: dict[str, Any] = {
            "agent": self.name,
            "preset": self.preset,
            "seed": self.seed,
            "env_id": environment.env_id,
            "env_kwargs": dict(environment.env_kwargs),
            "versions": versions_of(self.env),
        }
        super().__init__(
            run_dir=run_dir,
            checkpoint_every=self.config.checkpoint_every,
            threads=self.config.threads,
        )
        self._copies = copies = _copies_of(environment, self.config)
        several = copies is not None
        self.buffer = Buffer.of(self.spaces, skill_dim=self._skill_dim(), interleaved=several)
        self.world = World(self.buffer)
        about: Any = {"seed": self.seed, "spaces": self.spaces, "copies": copies}
        self._collector = Collector(self.env, self.buffer, **about)
        # On generators of its own: measuring more or less often must not change what is learned.
        self.measures: Measures
        problem = finite_dynamics(self.env)
        run = self._measured = (environment, self.buffer, self.config)
        if problem is None or problem.dynamics.n_states > MAX_EVALUATED_STATES:
            self.measures = RolloutMeasures(*run, seed=self.seed)
            _warn_of_hidden(self.env)
        else:
            objective = self._objective(problem)
            self.measures = ExactMeasures(*run, problem, objective=objective, seed=self.seed)
        self._is_checked = False  # the instance that policies are measured in
        self._final: FinalPolicy | None = None
        self._planned_at: int | None = None  # step of the policy, where it is not the latest
        self._best: tuple[float, FinalPolicy] | None = None  # of those measured, with its spread
        # The skill (k,) that is followed now, of agents that have any.
        self._skill: NDArray[np.float32] | None = None
        # Networks are made with gradients on, whatever mode of torch the caller is in.
        with learning_mode():
            self._policy = self._build()

    @abstractmethod
    def _build(self) -> Policy:
        """Build the agent's parts; returns the policy of an agent that has seen nothing."""

    @abstractmethod
    def _act(self, observation: int) -> int:
        """The action on the observation with this index in the buffer."""

    def _objective(self, problem: FiniteMDP) -> Objective:
        """J of policies in a finite problem, by default Σ_x d(x)²."""
        return Objective()

    def _observe(self, row: int, *, done: bool) -> None:
        """Take note of the transition in `row` of the buffer, `done` if it ended its episode."""

    @abstractmethod
    def _update(self) -> Mapping[str, Any] | None:
        """Learn when due, set a new policy where there is one, and return figures to record."""

    def _agent_state(self) -> Mapping[str, Any]:
        """Everything that the next step depends on, right after a new policy.

        Neither the buffer nor generators that are attributes: these are kept of any run.
        """
        return {}

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`_agent_state` returned; the buffer is restored already."""

    def _skill_dim(self) -> int:
        """Width of the skills that transitions follow."""
        return 0

    @classmethod
    def resolve(cls, config: ConfigT, env: gym.Env[Any, Any]) -> ConfigT:
        """Fill in what depends on the environment: the discount, unless it is set."""
        if config.discount is not None:
            return config
        return config.model_copy(update={"discount": discount_of(env)})

    def _configure(self, overrides: Mapping[str, Any]) -> ConfigT:
        settings = merge_settings(self.presets[self.preset], overrides)
        config: Any = validate_settings(self.config_class, settings)
        return self.resolve(config, self.env)

    @property
    def policy(self) -> Policy:
        """The current policy, which has the details of its training."""
        policy, steps = self._policy, self._planned_at
        if self._final is not None:
            policy, steps = self._final.policy, None
        trained = {
            "steps": self.num_timesteps if steps is None else steps,
            "discount": self.config.discount,
        }
        # On the policy itself, so that a file of it says where it comes from without its run.
        policy.details = self._origin | trained | self.spaces.details
        return policy

    def learn(
        self,
        total_timesteps: int,
        *,
        progress_bar: bool = False,
        log: Sequence[Log] = (),
        callback: Callback | None = None,
    ) -> Self:
        """Pretrain for `total_timesteps` further environment steps.

        Args:
            total_timesteps: how many steps, > 0.
            progress_bar, log, callback: as of :meth:`finish`.

        Raises:
            NonFiniteError, SingularSolveError: the numerics broke down; the message says where.
            StorageError: the run folder cannot be written.
        """
        steps = whole_number("total_timesteps", total_timesteps)
        self.total_timesteps = self.num_timesteps + steps
        return self.finish(progress_bar=progress_bar, log=log, callback=callback)

    @classmethod
    def resume(cls, run_dir: str | Path, *, env: GivenEnv | None = None, **objects: Any) -> Self:
        """The agent of a run folder, as the run's end or its latest checkpoint left it.

        Call :meth:`finish` to end in the same bits as a run that was never interrupted.

        Args:
            run_dir: the run folder.
            env: the environment, where it cannot be made again from its id.
            objects: settings that were objects of your own, such as ROVER's kernel.

        Raises:
            ArtefactError: no run there, a damaged one, or one of another agent.
            ConfigurationError: `env` or an object is missing, or differs from the run's.
            ReplayMismatchError: the environment is not deterministic given its seed.
        """
        stored = read_run_config(run_dir, kind="pretrain")
        if stored.agent != cls.name:
            raise ArtefactError(
                f"{run_dir} holds a run of {stored.agent!r}, which {cls.label} cannot continue"
            )
        env_kwargs = None
        if env is None:
            env = known_id(stored.env_id, run_dir)
            env_kwargs = stored.env_kwargs
        # Stored settings are resolved, so that defaults of a later version change no run.
        with fitting(f"{Path(run_dir) / 'config.json'} does not fit this version of rover"):
            settings = cls.config_class.model_validate(stored.settings).model_dump()
        agent = cls(
            env, env_kwargs=env_kwargs, seed=stored.seed, run_dir=run_dir, **{**settings, **objects}
        )
        # All settings were given one by one, so the name of the preset has to be told: a later
        # version may have no preset of that name.
        agent.total_timesteps = stored.total_timesteps
        agent.preset = agent._origin["preset"] = stored.preset
        own_id, own_kwargs = agent._origin["env_id"], agent._origin["env_kwargs"]
        # An environment made here has lost the module of its id, which the stored one names.
        if own_id == (stored.env_id or "").rpartition(":")[2]:
            agent._origin["env_id"] = own_id = stored.env_id
        if (own_id, own_kwargs) != (stored.env_id, stored.env_kwargs):
            raise ConfigurationError(
                f"the environment given, {own_id} {own_kwargs}, is not the one of "
                f"{run_dir}, {stored.env_id} {stored.env_kwargs}"
            )
        if agent.config.model_dump() != settings:
            raise ConfigurationError(f"the objects given do not have the settings of {run_dir}")
        warn_of_versions(stored.versions, agent.env)
        agent.restore()
        return agent

    def _make_again(self, n_steps: int) -> None:
        super()._make_again(n_steps)
        self._conclude()  # the end that the run had, whose policy was returned
        own, stored = self.buffer, Buffer.load(Path(str(self.run_dir)) / BUFFER_FILE)
        pairs = (own.actions, stored.actions), (own.successors, stored.successors)
        if not all(np.array_equal(made, before[:n_steps]) for made, before in pairs):
            raise ReplayMismatchError(
                f"the steps of {self.run_dir} behind its checkpoint came out differently: the "
                "environment, a library or the machine is another one"
            )

    def describe(self, total_timesteps: int) -> RunConfig:
        """Contents of config.json for a run of `total_timesteps` environment steps."""
        return RunConfig(
            version=__version__,
            kind="pretrain",
            **self._origin,
            total_timesteps=total_timesteps,
            settings=self.config.model_dump(mode="json"),
        )

    def _begin(self) -> None:
        self._collector.start_episode()

    def _step(self, *, is_last: bool) -> Mapping[str, Any] | None:
        # An extended run continues with its own policy, not with the replacement.
        self._final, row = None, self.num_timesteps
        self._collector.choose(lambda observation: (self._act(observation), self._skill))
        with self.stopwatch("collect"):
            done = self._collector.step()
        self.num_timesteps += 1
        self._observe(row, done=done)
        figures = self._update()
        if figures is None:
            return None
        self._check_table()
        with self.stopwatch("evaluate"):
            record = self.measures.measure(
                self.policy,
                figures,
                step=self.num_timesteps,
                episode=self._collector.n_episodes - 1,
            )
        self._note_measured(record)
        return record

    def _check_table(self) -> None:
        """Measure by roll-outs from now on where steps contradict the known dynamics."""
        measures = self.measures
        if isinstance(measures, ExactMeasures) and (step := measures.refutation()):
            warn(
                f"the environment's table of dynamics contradicts its own steps ({step} has "
                "probability 0): figures are not exact, but measured by roll-outs",
                stacklevel=5,
            )
            self.measures = RolloutMeasures(*self._measured, seed=self.seed)

    def _note_measured(self, record: Mapping[str, Any]) -> None:
        """Take note of what was measured of the policy, in a metrics line."""

    def _conclude(self) -> None:
        if self.learns and not self.measures.latest:
            warn(
                f"{self.num_timesteps} steps were too few for a policy update, so the policy is "
                "still uniform; run more steps",
                stacklevel=4,
            )
        self._check_table()
        for message in self._collector.kinds().values():
            warn(message, stacklevel=4)
        with self.stopwatch("evaluate"):
            self._final = self._last_plan()
            best, step = None if self._best is None else self._best[1], self.num_timesteps
            self._final = self.measures.choose(self.policy, best, step) or self._final
            other, most = self.measures.rollout_env, min(_MOST_REPLAYED, self.num_timesteps // 20)
            if self.config.measure_share == 0.0:
                most = 0
            elif not self._is_checked:
                is_own, self._is_checked = other is self.env, True
                reason = UNSEEDED if is_own else f"{UNSEEDED}; or {DRAWN_WHEN_MADE}"
                about: Any = {"seed": self.seed, "most": most, "spaces": self.spaces}
                for message in not_repeated(self.buffer, other, reason, **about):
                    warn(message, stacklevel=5)
            is_behind = self.measures.measure_data(self._collector, n_replayed=most)
        if self._explores and is_behind:
            warn(
                "the run saw fewer states than uniformly random actions do in as many steps: what "
                "observations do not show decides where actions lead, such as a heading; show it, "
                "or the last few observations and actions",
                stacklevel=4,
            )

    def _last_plan(self) -> FinalPolicy | None:
        """A policy that is planned at the end of the run; None: the latest one is the last."""
        return None

    def _figures(self) -> dict[str, Any]:
        chosen = self._final
        return {
            "steps": self.num_timesteps,
            "episodes": self._collector.n_episodes,
            **self.measures.summary(),
            "policy_step": self.measures.latest.get("step") if chosen is None else chosen.step,
        }

    def _state(self) -> dict[str, Any]:
        return {
            "buffer": self.buffer.state(),
            "collector": self._collector.state(),
            "measures": self.measures.state(),
            "agent": dict(self._agent_state()),
        }

    def _load_state(self, state: Mapping[str, Any]) -> None:
        # In this order: the others look up rows of the buffer, and the table of dynamics is judged
        # only where the collector's replay shows that the environment is still the run's.
        self.buffer.load_state(state["buffer"])
        self._load_agent_state(state["agent"])
        self._collector.load_state(state["collector"])
        self._check_table()
        self.measures.load_state(state["measures"])

    def _save_results(self, folder: Path) -> None:
        # The final policy, which may differ from the latest one in the checkpoints.
        self.policy.save(folder / POLICY_FILE)
        self.buffer.save(folder / BUFFER_FILE)
        arrays = self.measures.record(self.policy)
        if arrays:
            write_tensors(folder / EVALUATION_FILE, arrays, kind="evaluation")


def _copies_of(environment: Environment, config: AgentConfig) -> Copies | None:
    """The copies that collect at once; None: the environment alone."""
    n, in_processes, make = config.num_envs, config.env_processes, environment.make
    if n == 1 and in_processes:
        raise ConfigurationError("env_processes=True is of several copies: set num_envs, too")
    if n > 1 and make is None:
        raise ConfigurationError(
            f"num_envs={n} needs copies of the environment, and an instance has none: give its id, "
            "or a function that makes it, such as Rover(make, num_envs=4)"
        )
    return None if n == 1 or make is None else Copies(make, n, in_processes=in_processes)


def _warn_of_hidden(env: gym.Env[Any, Any]) -> None:
    """Say what keeps the exact figures of known dynamics away."""
    problem, reason = finite_dynamics(env), None
    if problem is not None:
        reason = f"more than {MAX_EVALUATED_STATES} states are too many for exact figures"
    elif finite_dynamics(env.unwrapped) is not None:
        reason = (
            f"a wrapper of {env} may change an environment whose dynamics are known; leave it out, "
            "or state in its class that nothing changes, finite_mdp = property(lambda self: "
            "rover.envs.finite_dynamics(self.env))"
        )
    if reason is not None:
        warn(f"coverage of states and J/J* are not reported: {reason}", stacklevel=4)
