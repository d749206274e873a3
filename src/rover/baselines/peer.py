"""The reward-free peers behind the same interface as ROVER."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import gymnasium as gym
from pydantic import BaseModel

from rover.baselines.bonus import BonusMethod, observation_spec
from rover.baselines.mepol import MepolConfig, make_mepol_config, make_mepol_method
from rover.baselines.methods import BONUS_METHODS, METHODS, PEERS, check_method, check_preset
from rover.baselines.peer_config import BONUS_MODELS, BonusConfig, make_bonus_config
from rover.baselines.random import RandomConfig, make_random_config, make_random_method
from rover.baselines.rmax import RmaxConfig, make_rmax_config, make_rmax_method
from rover.coverage.agent import Rover
from rover.coverage.encoding import DEFAULT_DISCOUNT
from rover.data import ReplayBuffer
from rover.errors import ArtefactError
from rover.training.pretrainer import Pretrainer
from rover.training.pretraining import Method
from rover.training.run_folder import RunConfig, read_run_config
from rover.training.timing import Stopwatch

__all__ = ["METHODS", "PEERS", "Peer", "check_method", "make_agent", "resume_agent"]

_MODELS: dict[str, type[BaseModel]] = {
    "random": RandomConfig,
    "rmax": RmaxConfig,
    "mepol": MepolConfig,
    **BONUS_MODELS,
}


class Peer(Pretrainer[BaseModel]):
    """Random, R-max, RND, SMM, APT, MAXENT, CIC or MEPOL on one environment.

    Args:
        env: as for :class:`~rover.Rover`.
        method: one of ``rover.baselines.methods.PEERS``.
        preset: ``"fast"``, small networks for a laptop, or ``"paper"``.
        env_kwargs: keyword arguments of an environment given by its id.
        seed: everything random follows from it.
        run_dir: folder for the run's files; None leaves none.
        overrides: single settings of the method; nested ones as mappings.

    Raises:
        ConfigurationError: unknown method, preset or setting.
        UnsupportedSpaceError: an observation or action space that cannot be handled.

    Example:
        >>> agent = Peer("rover/MultiRooms-v0", "rnd", seed=1).learn(10_000)
    """

    def __init__(
        self,
        env: gym.Env[Any, Any] | str,
        method: str,
        preset: str = "fast",
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        seed: int = 0,
        run_dir: str | Path | None = None,
        **overrides: Any,
    ) -> None:
        self._method = check_method(method, PEERS)
        super().__init__(
            env, preset, env_kwargs=env_kwargs, seed=seed, run_dir=run_dir, overrides=overrides
        )

    @property
    def method(self) -> str:
        """Name of the method."""
        return self._method

    def _configure(self, preset: str, overrides: Mapping[str, Any]) -> BaseModel:
        config: BaseModel
        check_preset(self._method, preset)
        if self._method in BONUS_METHODS:
            config = make_bonus_config(self._method, preset, overrides)
        elif self._method == "mepol":
            config = make_mepol_config(preset, **overrides)
        elif self._method == "rmax":
            config = make_rmax_config(preset, **overrides)
        else:
            config = make_random_config(preset, **overrides)
        return self._with_discount(config)

    def _with_discount(self, config: BaseModel) -> BaseModel:
        if getattr(config, "discount", None) is not None:
            return config
        suggested = getattr(self.env.unwrapped, "suggested_discount", None)
        discount = DEFAULT_DISCOUNT if suggested is None else suggested
        return config.model_copy(update={"discount": discount})

    def _make_method(self, buffer: ReplayBuffer, stopwatch: Stopwatch) -> Method:
        config = self.config
        if isinstance(config, BonusConfig):
            return BonusMethod(
                self._method,
                config,
                observation_spec(self.env),
                buffer,
                seed=self.seed,
                stopwatch=stopwatch,
            )
        if isinstance(config, MepolConfig):
            return make_mepol_method(config, self.env, buffer, seed=self.seed, stopwatch=stopwatch)
        if isinstance(config, RmaxConfig):
            return make_rmax_method(config, self.env, buffer, seed=self.seed, stopwatch=stopwatch)
        assert isinstance(config, RandomConfig)
        return make_random_method(config, self.env, buffer, seed=self.seed)

    @classmethod
    def _from_stored(cls, stored: RunConfig, env: gym.Env[Any, Any], run_dir: str | Path) -> Self:
        if stored.method not in PEERS:
            raise ArtefactError(
                f"{run_dir} holds a run of {stored.method!r}, which is not one of the peers"
            )
        settings = _MODELS[stored.method].model_validate(stored.settings).model_dump()
        return cls(env, stored.method, seed=stored.seed, run_dir=run_dir, **settings)


def make_agent(
    method: str,
    env: gym.Env[Any, Any] | str,
    preset: str | None = None,
    **options: Any,
) -> Rover | Peer:
    """The agent of any method, ROVER included.

    Args:
        method: one of ``rover.baselines.methods.METHODS``.
        env: environment or id.
        preset: of the method; None: ``"default"`` for ROVER, ``"fast"`` for its peers.
        options: as for :class:`~rover.Rover` and :class:`Peer`.

    Raises:
        ConfigurationError: unknown method, preset or setting.
    """
    preset = check_preset(method, preset)
    if method == "rover":
        return Rover(env, preset, **options)
    return Peer(env, method, preset, **options)


def resume_agent(run_dir: str | Path, *, env: gym.Env[Any, Any] | None = None) -> Rover | Peer:
    """The agent of a run folder, whatever its method; see :meth:`Pretrainer.resume`."""
    if read_run_config(run_dir).method == "rover":
        return Rover.resume(run_dir, env=env)
    return Peer.resume(run_dir, env=env)
