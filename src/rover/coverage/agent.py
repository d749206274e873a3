"""`Rover`: reward-free pretraining by occupancy coverage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import gymnasium as gym

from rover.coverage.config import RoverConfig, make_config
from rover.coverage.encoding import make_encoder_spec, resolve
from rover.coverage.rover import RoverMethod
from rover.data import ReplayBuffer
from rover.errors import ArtefactError
from rover.policies.coverage import CoveragePolicy
from rover.training.pretrainer import Pretrainer
from rover.training.run_folder import RunConfig
from rover.training.timing import Stopwatch


class Rover(Pretrainer[RoverConfig]):
    """Reward-free pretraining by occupancy coverage.

    Args:
        env: a Gymnasium environment, or the id of one. Actions must be Discrete; observations
            Discrete, a vector Box or a uint8 image Box. Its reward is never looked at.
        env_kwargs: keyword arguments of an environment given by its id.
        preset: ``"default"``, the best settings known, or ``"paper"``, the paper's to the letter.
        seed: everything random follows from it; one seed gives the same bits on one CPU.
        run_dir: folder for the run's files, which must not hold a run yet; None leaves no files.
        overrides: single settings, the fields of :class:`~rover.coverage.config.RoverConfig`.

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
        super().__init__(
            env, preset, env_kwargs=env_kwargs, seed=seed, run_dir=run_dir, overrides=overrides
        )

    @property
    def method(self) -> str:
        """Name of the method."""
        return RoverMethod.name

    @property
    def policy(self) -> CoveragePolicy:
        """The policy planned from the initial states: what is evaluated and handed over."""
        policy = super().policy
        assert isinstance(policy, CoveragePolicy)
        return policy

    def _configure(self, preset: str, overrides: Mapping[str, Any]) -> RoverConfig:
        suggested = getattr(self.env.unwrapped, "suggested_discount", None)
        return resolve(make_config(preset, **overrides), self.env.observation_space, suggested)

    def _make_method(self, buffer: ReplayBuffer, stopwatch: Stopwatch) -> RoverMethod:
        return RoverMethod(
            self.config,
            make_encoder_spec(self.config, self.env.observation_space),
            buffer,
            seed=self.seed,
            stopwatch=stopwatch,
        )

    @classmethod
    def _from_stored(cls, stored: RunConfig, env: gym.Env[Any, Any], run_dir: str | Path) -> Self:
        if stored.method != RoverMethod.name:
            raise ArtefactError(
                f"{run_dir} holds a run of {stored.method!r}, which Rover cannot continue"
            )
        settings = RoverConfig.model_validate(stored.settings).model_dump()
        return cls(env, seed=stored.seed, run_dir=run_dir, **settings)
