"""`Rover`: the agent in the manner of Stable-Baselines3."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
import pydantic
from gymnasium import spaces

from rover.agents.config import RoverConfig, make_config
from rover.agents.encoding import make_encoder_spec, resolve
from rover.agents.policy import CoveragePolicy
from rover.agents.pretraining import Callback, Pretraining, library_version
from rover.agents.progress import Monitor
from rover.agents.rover import RoverMethod
from rover.agents.run_folder import RunConfig, read_run_config
from rover.agents.timing import Stopwatch
from rover.artefacts.json_files import describe_problems
from rover.collection import ReplayBuffer, check_spaces
from rover.envs import make_env
from rover.errors import ArtefactError, ConfigurationError

METHOD = "rover"
"""What config.json calls this method."""


class Rover:
    """Reward-free pretraining by occupancy coverage.

    Args:
        env: a Gymnasium environment, or the id of one. Actions must be Discrete; observations
            Discrete, a vector Box or a uint8 image Box. Its reward is never looked at.
        env_kwargs: keyword arguments of an environment given by its id.
        preset: ``"default"``, the best settings known, or ``"paper"``, the paper's to the letter.
        seed: everything random follows from it; one seed gives the same bits on one CPU.
        run_dir: folder for the run's files, which must not hold a run yet; None leaves no files.
        overrides: single settings, the fields of :class:`~rover.agents.config.RoverConfig`.

    Raises:
        ConfigurationError: unknown or contradictory settings.
        UnsupportedSpaceError: an observation or action space that cannot be handled.

    Example:
        >>> agent = Rover("rover/MultiRooms-v0", seed=1).learn(1000)
        >>> agent.policy.probs(observations)
    """

    def __init__(
        self,
        env: gym.Env[Any, Any] | str,
        preset: str = "default",
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        seed: int = 0,
        run_dir: str | Path | None = None,
        **overrides: Any,
    ) -> None:
        if env_kwargs and not isinstance(env, str):
            raise ConfigurationError("env_kwargs are of an environment given by its id")
        self.env = make_env(env, env_kwargs) if isinstance(env, str) else env
        # an environment's spec forgets the module that registers it: "module:Name-v0"
        self._module = env.rpartition(":")[0] if isinstance(env, str) else ""
        self.preset = preset
        self.seed = _check_seed(seed)
        self.run_dir = None if run_dir is None else Path(run_dir)
        shape, dtype, n_actions = check_spaces(self.env)
        suggested = getattr(self.env.unwrapped, "suggested_discount", None)
        space: spaces.Space[Any] = self.env.observation_space
        self.config: RoverConfig = resolve(make_config(preset, **overrides), space, suggested)
        assert self.config.discount is not None
        buffer = ReplayBuffer(shape, dtype, n_actions)
        stopwatch = Stopwatch()
        method = RoverMethod(
            self.config,
            make_encoder_spec(self.config, space),
            buffer,
            seed=self.seed,
            stopwatch=stopwatch,
        )
        self._pretraining = Pretraining(
            self.env,
            method,
            buffer,
            stopwatch,
            seed=self.seed,
            discount=self.config.discount,
            evaluation_episodes=self.config.evaluation_episodes,
            checkpoint_every=self.config.checkpoint_every,
            threads=self.config.threads,
            describe=self._describe,
            run_dir=run_dir,
        )

    @property
    def policy(self) -> CoveragePolicy:
        """The policy planned from the initial states: what is evaluated and handed over."""
        policy = self._pretraining.policy
        assert isinstance(policy, CoveragePolicy)
        return policy

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
        if stored.method != METHOD:
            raise ArtefactError(
                f"{run_dir} holds a run of {stored.method!r}, which Rover cannot continue"
            )
        try:
            settings = RoverConfig.model_validate(stored.settings).model_dump()
        except pydantic.ValidationError as error:
            raise ArtefactError(
                f"{Path(run_dir) / 'config.json'} does not fit this version of rover: "
                f"{describe_problems(error)}"
            ) from None
        if env is None:
            if stored.env_id is None:
                raise ConfigurationError(
                    f"the environment of {run_dir} cannot be made from an id; resume it in Python "
                    "with Rover.resume(run_dir, env=...)"
                )
            env = make_env(stored.env_id, stored.env_kwargs)
        agent = cls(env, seed=stored.seed, run_dir=run_dir, **settings)
        agent._module = (stored.env_id or "").rpartition(":")[0]
        agent.preset = stored.preset
        agent._total_timesteps = stored.total_timesteps
        given = agent._describe(stored.total_timesteps)
        if (given.env_id, given.env_kwargs) != (stored.env_id, stored.env_kwargs):
            raise ConfigurationError(
                f"the environment given, {given.env_id} {given.env_kwargs}, is not that of "
                f"{run_dir}, {stored.env_id} {stored.env_kwargs}"
            )
        agent._pretraining.restore()
        return agent

    _total_timesteps: int | None = None

    @property
    def remaining_timesteps(self) -> int:
        """Steps that a resumed run still has to make; 0 for a run that is complete."""
        return max(0, (self._total_timesteps or 0) - self.num_timesteps)

    def _describe(self, total_timesteps: int) -> RunConfig:
        env_id, env_kwargs = _remake(self.env)
        if env_id is not None and self._module:
            env_id = f"{self._module}:{env_id}"
        return RunConfig(
            version=library_version(),
            method=METHOD,
            preset=self.preset,
            seed=self.seed,
            env_id=env_id,
            env_kwargs=env_kwargs,
            total_timesteps=total_timesteps,
            settings=self.config.model_dump(mode="json"),
        )


def _remake(env: gym.Env[Any, Any]) -> tuple[str | None, dict[str, Any]]:
    """Id and keywords that make the environment again; (None, {}) if nothing does."""
    spec = env.spec
    registered = None if spec is None else gym.registry.get(spec.id)
    if spec is None or spec.additional_wrappers or registered is None:
        return None, {}
    kwargs = dict(spec.kwargs)
    if spec.max_episode_steps != registered.max_episode_steps:
        # −1 is gym.make's word for no limit.
        kwargs["max_episode_steps"] = spec.max_episode_steps or -1
    try:
        return spec.id, json.loads(json.dumps(kwargs, allow_nan=False, sort_keys=True))
    except (TypeError, ValueError):
        return None, {}


def _check_seed(seed: int) -> int:
    try:
        number = operator.index(seed)
    except TypeError:
        raise ConfigurationError(f"seed must be a whole number, not {seed!r}") from None
    if not 0 <= number < 2**63:
        raise ConfigurationError(f"seed must lie in 0..2^63 − 1, not {number}")
    return number
