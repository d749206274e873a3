"""Novelty as the reward of any of Stable-Baselines3's algorithms."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from rover.baselines import agent_class, agent_names
from rover.baselines.shared.bonus import BonusAgent
from rover.baselines.shared.rewards import EpisodicReward
from rover.data import Batch
from rover.errors import ConfigurationError, NonFiniteError, RoverWarning, choose
from rover.features import Observations, learning_mode
from rover.integrations.sb3.policies import check_positive
from rover.operators.support import FloatArray
from rover.training.config import merge_settings, validate_settings
from rover.world.model import LANDMARKS
from rover.world.model_selection import MOST_NEW
from rover.world.net import COVERAGE_LAG, DENSITY_WIDTH, GROWTH, Net, time_units

_FEW = 10  # numbers that may be physical quantities, in which distances mean something
_BATCH = 64  # new transitions that an update learns from, and those that are compared
_MEMORY = 10_000  # latest transitions, to draw others for comparison from
_DECIDED = 2000  # tries after which it is said that observations do not repeat


class Novelty(Protocol):
    """A bonus: a function of transitions that learns from them as it is asked."""

    def __call__(
        self,
        observations: NDArray[Any],
        actions: NDArray[Any],
        next_observations: NDArray[Any],
        done: NDArray[np.bool_],
        /,
    ) -> FloatArray:
        """Bonus (n,) of one transition of each of n environments, as it was before this step.

        Args:
            observations: (n, *shape) where the transitions begin.
            actions: (n, ...).
            next_observations: (n, *shape) where they lead, of an episode that ended its last.
            done: (n,) whether the episode ended.
        """
        ...


class CountNovelty:
    """ROVER's novelty where observations repeat: λ / (n + λ) after n tries of (x, a).

    It is the mass that the transition model of exact states leaves to the sink: 1 for a pair that
    was never tried (``rover.coverage.exploration``). Environments of one step are counted in
    their order.

    Args:
        ridge: λ > 0.
    """

    def __init__(self, *, ridge: float = 1.0) -> None:
        check_positive(ridge=ridge)
        self._ridge = ridge
        self._tries: dict[tuple[bytes, int], int] = {}
        self._total = 0

    def __call__(self, *transitions: NDArray[Any]) -> FloatArray:
        """Bonus (n,) in (0, 1]."""
        observations, actions, *_ = transitions
        novelty = np.empty(len(actions))
        for row, (observation, action) in enumerate(zip(observations, actions, strict=True)):
            # Digests, because images as keys would be held as a whole.
            pair = hashlib.blake2b(observation.tobytes(), digest_size=16).digest(), int(action)
            tries = self._tries.get(pair, 0)
            self._tries[pair] = tries + 1
            novelty[row] = self._ridge / (tries + self._ridge)
        # Said once, when the count passes the limit.
        before, self._total = self._total, self._total + len(actions)
        is_due = before < _DECIDED <= self._total
        if is_due and len(self._tries) > MOST_NEW * self._total:
            warnings.warn(
                f"{len(self._tries)} of {self._total} pairs of observation and action were new: "
                "observations hardly repeat, and every step is as novel as any; take "
                "bonus='density' for a few physical quantities, or 'rnd'",
                RoverWarning,
                stacklevel=3,
            )
        return novelty


class DensityNovelty:
    """ROVER's novelty of small vectors: 1 / (1 + ρ(x')), with ρ the density of the visits so far.

    ρ is the number of visits, each weighted by exp(−½ (‖x' − y‖ / w)²), in units of what each
    number changes in 40 steps; noise, which nothing controls, does not count
    (``rover.world.net``). Visits are kept as sums at up to 2,000 cells, whose radius grows
    when there are more. Units come from the first transitions, for which the bonus is 1.

    Args:
        units_after: transitions of all environments together that the units are taken from, ≥ 50.
        width: w > 0, in units.
    """

    def __init__(self, *, units_after: int = 1000, width: float = DENSITY_WIDTH) -> None:
        check_positive(width=width)
        self._units_after, self._width = units_after, width
        self._first: list[tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]] = []
        self._units: FloatArray | None = None
        self._net: Net  # there as soon as there are units
        self._visits: FloatArray = np.zeros(LANDMARKS.most_cells)

    def __call__(self, *transitions: NDArray[Any]) -> FloatArray:
        """Bonus (n,) in (0, 1]."""
        observations, actions, next_observations, done = transitions
        if self._units is None:
            self._first.append((observations.copy(), next_observations.copy(), done.copy()))
            # Until there are units nothing is near anything, and everything is as novel.
            if len(self._first) * len(actions) >= self._units_after:
                self._take_units()
            return np.ones(len(actions))
        # Noise has an infinite unit, and divides to nothing.
        points = next_observations.astype(np.float64) / self._units
        squared = cdist(points, self._net.landmarks, "sqeuclidean")
        density = np.exp(-0.5 * squared / self._width**2) @ self._visits[: len(self._net)]
        self._add(points)
        return np.asarray(1.0 / (1.0 + density))

    def _take_units(self) -> None:
        """Take the units from the transitions so far, each environment's in their order."""
        begins, ends, done = (
            np.stack(column, axis=1).astype(np.float64) for column in zip(*self._first, strict=True)
        )
        done[:, -1] = True  # what follows is another environment's
        size = begins.shape[2]
        begins, ends = begins.reshape(-1, size), ends.reshape(-1, size)
        self._units = time_units(begins, ends, done.ravel() > 0.0, COVERAGE_LAG)
        self._net = Net(np.empty((0, size)), LANDMARKS.radius / 1.5, LANDMARKS.most_cells)
        self._first = []
        self._add(ends / self._units)

    def _add(self, points: FloatArray) -> None:
        """Count a visit of each of the points (n, d)."""
        # The net is bounded, so a bonus takes as long after a million steps as after a thousand.
        owners, visits = self._net.add(points), np.ones(len(points))
        if owners is None:  # too many cells: all visits so far move to coarser ones
            visits = np.concatenate([self._visits[: len(self._net)], visits])
            points = np.concatenate([self._net.landmarks, points])
            self._net = Net.over(points, GROWTH * self._net.radius, largest=LANDMARKS.most_cells)
            self._visits[:] = 0.0
            owners = self._net.add(points)
        assert owners is not None
        self._visits += np.bincount(owners, visits, minlength=LANDMARKS.most_cells)


def _reward_settings(name: str, settings: Mapping[str, Any]) -> Any:
    """Settings of an agent's intrinsic reward; None if there is none that can be a bonus."""
    agent: Any = agent_class(name)
    # No policy of Stable-Baselines3 follows a skill, and a step has environments in many episodes.
    if not issubclass(agent, BonusAgent) or issubclass(agent.reward_class, EpisodicReward):
        return None
    merged = merge_settings(agent.presets["fast"], {"intrinsic": dict(settings)})
    config = validate_settings(agent.config_class, merged).intrinsic
    return None if agent.reward_class.skill_dim(config) else config


class AgentNovelty:
    """The intrinsic reward of one of the agents, such as RND's, learned as transitions are made.

    It is asked about the n new ones of each step, and learns from each once, 64 at a time: as often
    as Burda et al. (2018) do in the mean, in four epochs of a quarter of the data. The first update
    uses the first step's transitions. A reward that compares transitions (APT) also sees, and
    learns from, others drawn from the latest 10,000.

    Args:
        name: one of :meth:`names`.
        observation_space: of the environments.
        n_actions: A.
        seed: of the initial weights and of what is drawn.
        settings: of the reward, where they differ from the agent's preset "fast".

    Raises:
        ConfigurationError: another agent, or settings that it does not have.
    """

    def __init__(
        self,
        name: str,
        observation_space: spaces.Space[Any],
        n_actions: int,
        *,
        seed: int = 0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        config = _reward_settings(name, settings or {})
        if config is None:
            raise ConfigurationError(
                f"{name} has no intrinsic reward that needs neither a skill nor its episode: take "
                f"{', '.join(self.names())}, or novelty by counts or density"
            )
        agent: Any = agent_class(name)
        with learning_mode():
            self._reward = agent.reward_class(
                config,
                Observations.from_space(observation_space),
                n_actions,
                torch.Generator().manual_seed(seed),
            )
        self._rng = np.random.default_rng([seed, 5])
        self._columns: list[NDArray[Any]] = []
        self._n = 0
        self._refit_every = getattr(config, "refit_every", None)

    @staticmethod
    def names() -> tuple[str, ...]:
        """The agents whose intrinsic reward needs neither a skill nor its episode."""
        return tuple(name for name in agent_names() if _reward_settings(name, {}) is not None)

    def __call__(self, *transitions: NDArray[Any]) -> FloatArray:
        """Bonus (n,) before this step's update."""
        observations, actions, next_observations, _ = transitions
        n = len(actions)
        fresh = (observations, actions.astype(np.int64), next_observations)
        if not self._columns:
            self._columns = [np.empty((_MEMORY, *one.shape[1:]), one.dtype) for one in fresh]
        # A ring: the latest transitions overwrite the oldest.
        slots = (self._n + np.arange(n)) % _MEMORY
        for column, new in zip(self._columns, fresh, strict=True):
            column[slots] = new
        before, self._n = self._n, self._n + n
        held = min(self._n, _MEMORY)
        # At the first step too: without any statistics, inputs and errors have no unit.
        learns = before == 0 or before // _BATCH < self._n // _BATCH
        if self._reward.compares:
            drawn = self._rng.integers(held, size=max(0, _BATCH - n))
            slots = np.concatenate([drawn, slots])
        elif learns:  # the latest, each as often as it takes where they are few
            slots = np.arange(self._n - max(_BATCH, n), self._n) % held
        begins, moves, ends = (column[slots] for column in self._columns)
        # A batch of rover's: one table of observations, and where in it transitions begin and end.
        rows = torch.arange(len(moves))
        batch = Batch(
            torch.from_numpy(np.concatenate([begins, ends])),
            rows,
            torch.from_numpy(moves),
            len(moves) + rows,
        )
        if learns:
            with learning_mode():
                rewards, _ = self._reward.update(batch)
        else:
            rewards = self._reward.evaluate(batch)
        every = self._refit_every
        if every is not None and before // every < self._n // every:
            visited, counts = np.unique(self._columns[2][:held], axis=0, return_counts=True)
            refit: Any = self._reward  # MAXENT alone has a density to be fitted anew
            refit.refit(torch.from_numpy(visited), counts)
        bonus: FloatArray = rewards[-n:].numpy().astype(np.float64)
        return bonus


class CoverageBonus(VecEnvWrapper):
    """A vector environment whose reward is `extrinsic` · reward + `scale` · bonus.

        env = CoverageBonus(make_vec_env("rover/MultiRooms-v0", n_envs=8), extrinsic=0.0)
        PPO("MlpPolicy", env).learn(50_000)  # explores, and sees no reward

    The bonus of a transition is what it was before that transition was learned from, and stands in
    its ``info["bonus"]``. ``Monitor`` below this wrapper still records the environment's own
    returns. What the bonus has learned belongs to this object and is not in the model's file.

    Args:
        venv: Stable-Baselines3's vector environment.
        bonus: ``"counts"`` (:class:`CountNovelty`), ``"density"`` (:class:`DensityNovelty`), the
            agent whose intrinsic reward it is (one of :meth:`AgentNovelty.names`, such as
            ``"rnd"``), or a function of yours (:class:`Novelty`). None: counts for Discrete, image
            and one-hot observations that repeat, density for vectors of at most ten floats, else
            RND.
        extrinsic: factor of the environment's own reward; 0.0 switches it off.
        scale: factor of the bonus.
        seed: everything random of the bonus follows from it.
        settings: of the bonus, as the class or the agent's reward has them.

    Raises:
        ConfigurationError: unknown bonus or settings, or spaces that it cannot handle.
    """

    def __init__(
        self,
        venv: VecEnv,
        bonus: str | Novelty | None = None,
        *,
        extrinsic: float = 1.0,
        scale: float = 1.0,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        super().__init__(venv)
        self.extrinsic = float(extrinsic)
        self.scale = float(scale)
        self._novelty: Any = bonus
        if bonus is None or isinstance(bonus, str):
            self._novelty = _make_novelty(bonus, venv, seed, settings)
        elif settings:
            raise ConfigurationError("settings are of a bonus by its name: make yours with them")

    def reset(self) -> Any:
        """First observations (n, *shape)."""
        self._observations = self.venv.reset()
        return self._observations

    def step_async(self, actions: NDArray[Any]) -> None:
        """Send an action to each environment."""
        self._actions = actions
        self.venv.step_async(actions)

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Observations, rewards with the bonus, ends of episodes, and infos with ``bonus``."""
        observations, rewards, done, infos = self.venv.step_wait()
        reached = observations
        if done.any():
            # The environments have been reset: where the episodes ended is in their infos.
            reached = observations.copy()
            for row in np.flatnonzero(done):
                reached[row] = infos[row]["terminal_observation"]
        bonus = np.asarray(self._novelty(self._observations, self._actions, reached, done))
        if bonus.shape != done.shape or not np.isfinite(bonus).all():
            raise NonFiniteError(
                f"the bonus of {len(done)} transitions has shape {bonus.shape} or numbers that are "
                "not finite: look at the observations, or at your function"
            )
        for info, number in zip(infos, bonus.tolist(), strict=True):
            info["bonus"] = number
        # Where the next transitions begin; of an ended episode that is already the new one's start.
        self._observations = observations
        total = self.extrinsic * rewards + self.scale * bonus
        return observations, total.astype(np.float32), done, infos


def _make_novelty(name: str | None, venv: VecEnv, seed: int, settings: Mapping[str, Any]) -> Any:
    """The bonus of that name on the spaces of a vector environment; None: the one that suits."""
    observations, actions = venv.observation_space, venv.action_space
    is_vector = isinstance(observations, spaces.Box) and len(observations.shape) == 1
    is_discrete = isinstance(actions, spaces.Discrete)
    if name is None:
        name = "counts" if is_discrete else "density"
        if is_vector and observations.dtype.kind == "f":
            # One-hot vectors have these bounds, and repeat.
            is_unit = (observations.low == 0).all() and (observations.high == 1).all()
            if not is_unit:
                name = "density" if observations.shape[0] <= _FEW else "rnd"
    others = tuple(agent for agent in agent_names() if agent != "rover")
    choose("bonus", name, ("counts", "density", *others))
    is_known = is_discrete and isinstance(observations, spaces.Discrete | spaces.Box)
    if not (is_vector if name == "density" else is_known):
        raise ConfigurationError(
            f"the bonus {name!r} is not of {observations} and {actions}: take bonus='density' for "
            "vectors and any action, bonus='counts' or 'rnd' for Discrete or Box observations and "
            "Discrete actions; gymnasium.wrappers.FlattenObservation makes a vector of others"
        )
    ours: Mapping[str, type[Any]] = {"counts": CountNovelty, "density": DensityNovelty}
    if name not in ours:
        return AgentNovelty(name, observations, int(actions.n), seed=seed, settings=settings)
    try:
        return ours[name](**settings)
    except TypeError as error:  # a setting that the bonus does not have
        raise ConfigurationError(f"the bonus {name!r}: {error}") from None
