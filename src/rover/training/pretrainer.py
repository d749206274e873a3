"""What every agent has in common, in the manner of Stable-Baselines3: learn, policy, resume."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

import gymnasium as gym
from pydantic import BaseModel, ValidationError

from rover.data import ReplayBuffer, check_spaces
from rover.envs import env_recipe, make_env
from rover.errors import ArtefactError, ConfigurationError
from rover.policies.coverage import Policy
from rover.storage.json_files import describe_problems
from rover.training.pretraining import Callback, Method, Pretraining
from rover.training.progress import Monitor
from rover.training.run_folder import RunConfig, read_run_config
from rover.training.timing import Stopwatch
from rover.version import __version__


class RunSettings(Protocol):
    """The settings that the pretraining loop needs of every method."""

    @property
    def discount(self) -> float | None:
        """γ of the occupancy that policies are measured by."""
        ...

    @property
    def evaluation_episodes(self) -> int:
        """Episodes of each coverage figure."""
        ...

    @property
    def checkpoint_every(self) -> int:
        """Environment steps between checkpoints."""
        ...

    @property
    def threads(self) -> int:
        """Torch threads."""
        ...


SettingsT = TypeVar("SettingsT", bound=BaseModel)


class Pretrainer(ABC, Generic[SettingsT]):
    """One run of a reward-free method on one environment.

    A method's class says how its settings are made and how the method is built; everything else,
    the loop, the run folder, measuring and resuming, is here.

    Attributes:
        env: the environment.
        config: the resolved settings.
        seed: the run's seed.
        run_dir: the run folder, or None.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any] | str,
        preset: str,
        *,
        env_kwargs: Mapping[str, Any] | None,
        seed: int,
        run_dir: str | Path | None,
        overrides: Mapping[str, Any],
    ) -> None:
        if env_kwargs and not isinstance(env, str):
            raise ConfigurationError("env_kwargs are of an environment given by its id")
        self.env = make_env(env, env_kwargs) if isinstance(env, str) else env
        # an environment's spec forgets the module that registers it: "module:Name-v0"
        self._module = env.rpartition(":")[0] if isinstance(env, str) else ""
        self._total_timesteps: int | None = None
        self.preset = preset
        self.seed = _check_seed(seed)
        self.run_dir = None if run_dir is None else Path(run_dir)
        shape, dtype, n_actions = check_spaces(self.env)
        self.config: SettingsT = self._configure(preset, overrides)
        settings = self._run_settings
        assert settings.discount is not None
        buffer = ReplayBuffer(shape, dtype, n_actions)
        stopwatch = Stopwatch()
        self._pretraining = Pretraining(
            self.env,
            self._make_method(buffer, stopwatch),
            buffer,
            stopwatch,
            seed=self.seed,
            discount=settings.discount,
            evaluation_episodes=settings.evaluation_episodes,
            checkpoint_every=settings.checkpoint_every,
            threads=settings.threads,
            describe=self.describe,
            run_dir=run_dir,
        )

    @property
    @abstractmethod
    def method(self) -> str:
        """Name of the method."""

    @abstractmethod
    def _configure(self, preset: str, overrides: Mapping[str, Any]) -> SettingsT:
        """The resolved settings for :attr:`env`."""

    @abstractmethod
    def _make_method(self, buffer: ReplayBuffer, stopwatch: Stopwatch) -> Method:
        """The method of this run, from :attr:`config`, :attr:`env` and :attr:`seed`."""

    @classmethod
    @abstractmethod
    def _from_stored(cls, stored: RunConfig, env: gym.Env[Any, Any], run_dir: str | Path) -> Self:
        """The agent that a config.json describes.

        Raises:
            ArtefactError: the run is of another method.
            pydantic.ValidationError: its settings do not fit this version.
        """

    @property
    def _run_settings(self) -> RunSettings:
        settings: RunSettings = self.config  # type: ignore[assignment] # fields of every model
        return settings

    @property
    def evaluation_episodes(self) -> int:
        """Episodes of each coverage figure."""
        return self._run_settings.evaluation_episodes

    @property
    def policy(self) -> Policy:
        """The method's current policy: what is evaluated and handed over."""
        return self._pretraining.policy

    @property
    def buffer(self) -> ReplayBuffer:
        """All transitions so far."""
        return self._pretraining.buffer

    @property
    def num_timesteps(self) -> int:
        """Environment steps made so far."""
        return self._pretraining.num_timesteps

    def summary(self) -> dict[str, Any]:
        """Coverage, objective, optimality ratio and times: the contents of summary.json."""
        return self._pretraining.summary()

    def learn(
        self,
        total_timesteps: int,
        *,
        progress_bar: bool = False,
        callback: Callback | None = None,
        tensorboard: bool = False,
    ) -> Self:
        """Pretrain for `total_timesteps` further environment steps.

        Args:
            total_timesteps: how many steps, > 0.
            progress_bar: draw a progress bar with coverage and optimality ratio.
            callback: called with each metrics line; returning False stops the run.
            tensorboard: write scalars to the run folder for TensorBoard.

        Raises:
            NonFiniteError, SingularSolveError: the numerics broke down; the message says where.
            StorageError: the run folder cannot be written.
        """
        if not (total_timesteps > 0 and float(total_timesteps).is_integer()):
            raise ConfigurationError(
                f"total_timesteps must be a positive whole number, not {total_timesteps}"
            )
        if tensorboard and self.run_dir is None:
            raise ConfigurationError("tensorboard=True needs a run_dir to write to")
        directory = self.run_dir / "tensorboard" if tensorboard and self.run_dir else None
        self._pretraining.run(
            self.num_timesteps + int(total_timesteps),
            monitor=Monitor(progress_bar=progress_bar, tensorboard_dir=directory),
            callback=callback,
        )
        return self

    @classmethod
    def resume(cls, run_dir: str | Path, *, env: gym.Env[Any, Any] | None = None) -> Self:
        """The agent of a run folder, as its latest checkpoint left it.

        Call :meth:`learn` with :attr:`remaining_timesteps` to end in the same bits as a run that
        was never interrupted.

        Args:
            run_dir: the run folder.
            env: the environment, where it cannot be made again from its id.

        Raises:
            ArtefactError: no run there, a damaged one, or one of another method.
            ConfigurationError: `env` is missing, or is not the environment of the run.
            ReplayMismatchError: the environment is not deterministic given its seed.
        """
        stored = read_run_config(run_dir)
        if env is None:
            if stored.env_id is None:
                raise ConfigurationError(
                    f"the environment of {run_dir} cannot be made from an id; resume it in Python "
                    f"with {cls.__name__}.resume(run_dir, env=...)"
                )
            env = make_env(stored.env_id, stored.env_kwargs)
        try:
            agent = cls._from_stored(stored, env, run_dir)
        except ValidationError as error:
            raise ArtefactError(
                f"{Path(run_dir) / 'config.json'} does not fit this version of rover: "
                f"{describe_problems(error)}"
            ) from None
        agent._module = (stored.env_id or "").rpartition(":")[0]
        agent.preset = stored.preset
        agent._total_timesteps = stored.total_timesteps
        given = agent.describe(stored.total_timesteps)
        if (given.env_id, given.env_kwargs) != (stored.env_id, stored.env_kwargs):
            raise ConfigurationError(
                f"the environment given, {given.env_id} {given.env_kwargs}, is not that of "
                f"{run_dir}, {stored.env_id} {stored.env_kwargs}"
            )
        agent._pretraining.restore()
        return agent

    @property
    def remaining_timesteps(self) -> int:
        """Steps that a resumed run still has to make; 0 for a run that is complete."""
        return max(0, (self._total_timesteps or 0) - self.num_timesteps)

    def describe(self, total_timesteps: int) -> RunConfig:
        """What config.json says of a run of `total_timesteps` environment steps."""
        env_id, env_kwargs = env_recipe(self.env) or (None, {})
        if env_id is not None and self._module:
            env_id = f"{self._module}:{env_id}"
        return RunConfig(
            version=__version__,
            method=self.method,
            preset=self.preset,
            seed=self.seed,
            env_id=env_id,
            env_kwargs=env_kwargs,
            total_timesteps=total_timesteps,
            settings=self.config.model_dump(mode="json"),
        )


def _check_seed(seed: int) -> int:
    try:
        number = operator.index(seed)
    except TypeError:
        raise ConfigurationError(f"seed must be a whole number, not {seed!r}") from None
    if not 0 <= number < 2**63:
        raise ConfigurationError(f"seed must lie in 0..2^63 − 1, not {number}")
    return number
