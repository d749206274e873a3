"""MEPOL: maximum state entropy by on-policy policy search (Mutti, Pratissoli & Restelli, 2021).

The closest relative of ROVER: it, too, learns one policy whose states are spread out, but it climbs
the gradient of a nearest-neighbour estimate instead of planning, and it needs a batch of whole
trajectories of its own for every update. It needs to know how far apart states are; on grid worlds
it is given the (x, y) of each state, which is privileged: ROVER sees observations only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from rover.baselines.coordinates import StateCoordinates, make_coordinates
from rover.baselines.mepol_search import EntropySearch, find_neighbourhoods
from rover.coverage.config import validate_settings
from rover.coverage.encoding import is_image, observation_dtype
from rover.data import ReplayBuffer, StepOutcome
from rover.errors import ConfigurationError
from rover.features import (
    EncoderSpec,
    default_encoder_spec,
    input_statistics,
    make_encoder,
)
from rover.features.encoders import as_tensor
from rover.operators import Linear
from rover.policies.coverage import CoveragePolicy
from rover.storage import generator_state, restore_generator
from rover.training.measuring import horizon_of
from rover.training.timing import Stopwatch


class MepolConfig(BaseModel):
    """Settings of MEPOL; the defaults are preset ``fast``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n_trajectories: int = Field(20, ge=1, description="trajectories of a batch")
    horizon: int | None = Field(
        None, ge=1, description="longest trajectory; None: the environment's time limit"
    )
    n_neighbors: int = Field(4, ge=1, description="k of the entropy estimate")
    min_distance: float = Field(
        1e-6, gt=0, description="distance to the k-th neighbour that smaller ones are raised to"
    )
    kl_threshold: float = Field(0.5, gt=0, description="δ of the trust region in nats")
    learning_rate: float = Field(3e-4, gt=0, description="Adam step size")
    max_search_steps: int = Field(30, ge=1, description="gradient steps on one batch")
    max_backtracks: int = Field(5, ge=0, description="steps taken back before a search ends")
    hidden_sizes: tuple[int, ...] = Field(
        (64, 64), min_length=1, description="hidden layers of the policy; the last one of images"
    )
    discount: float | None = Field(
        None, gt=0, lt=1, description="γ that the policy is measured by; None: the environment's"
    )
    evaluation_episodes: int = Field(20, ge=1, description="episodes of each coverage figure")
    checkpoint_every: int = Field(500, ge=1, description="environment steps between checkpoints")
    threads: int = Field(1, ge=1, description="torch threads; part of what fixes the bits")


PAPER_MEPOL: Mapping[str, Any] = {
    "n_neighbors": 50,
    "kl_threshold": 15.0,
    "learning_rate": 1e-5,
    "hidden_sizes": (300, 300),
}
"""The publication's settings for its (continuous) grid world; batches are of 20
trajectories there too, of 1,200 steps each."""


def make_mepol_config(preset: str = "fast", **overrides: Any) -> MepolConfig:
    """The configuration of preset ``fast`` or ``paper`` with single settings changed.

    Raises:
        ConfigurationError: unknown preset or setting, or a value out of range.
    """
    if preset not in ("fast", "paper"):
        raise ConfigurationError(f"unknown preset {preset!r}; choose 'fast' or 'paper'")
    return validate_settings(
        MepolConfig, {**(PAPER_MEPOL if preset == "paper" else {}), **overrides}
    )


@dataclass
class _Batch:
    """The steps of whole trajectories and of one in progress, in observation indices."""

    observations: list[int] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    successors: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)  # of whole trajectories
    begun: int = 0  # steps of the one in progress

    def append(self, outcome: StepOutcome, horizon: int) -> None:
        self.observations.append(outcome.observation)
        self.actions.append(outcome.action)
        self.successors.append(outcome.successor)
        self.begun += 1
        if outcome.done or self.begun == horizon:
            self.lengths.append(self.begun)
            self.begun = 0

    def padded(self) -> tuple[Tensor, Tensor]:
        """Step number (E, T) of each trajectory, 0 beyond its end, and what is valid (E, T)."""
        lengths = torch.tensor(self.lengths)
        within = torch.arange(int(lengths.max()))
        valid = within < lengths[:, None]
        begins = lengths.cumsum(0) - lengths
        return torch.where(valid, begins[:, None] + within, 0), valid


class MepolMethod:
    """MEPOL as the pretraining loop sees it.

    The policy acts as it is, without seed steps or ε-greedy actions, since the importance weights
    hold for its own actions only; it begins uniform. A trajectory is an episode, cut after
    `horizon` steps where episodes are longer.

    Args:
        config: settings, with the horizon filled in.
        spec: encoder of the policy network, whose logits are a linear map of its features.
        coordinates: where states lie.
        buffer: the replay buffer, which the loop fills.
        seed: seed of everything random in the method.
        stopwatch: measures the phases.

    Attributes:
        policy: the policy after the latest search.
    """

    name = "mepol"

    def __init__(
        self,
        config: MepolConfig,
        spec: EncoderSpec,
        coordinates: StateCoordinates,
        buffer: ReplayBuffer,
        *,
        seed: int,
        stopwatch: Stopwatch,
    ) -> None:
        assert config.horizon is not None
        self.config = config
        self._horizon = config.horizon
        self._coordinates = coordinates
        self._buffer = buffer
        self._stopwatch = stopwatch
        action_seed, point_seed = np.random.SeedSequence([seed, 0]).spawn(2)
        self._rng = np.random.default_rng(action_seed)
        self._point_rng = np.random.default_rng(point_seed)
        encoder = make_encoder(spec, torch.Generator().manual_seed(seed))
        head = torch.zeros(encoder.feature_dim, buffer.n_actions, dtype=torch.float64)
        self._network = CoveragePolicy(encoder, Linear(), None, head)
        self._search = EntropySearch(
            dict(self._network.named_parameters()),
            learning_rate=config.learning_rate,
            kl_threshold=config.kl_threshold,
            max_steps=config.max_search_steps,
            max_backtracks=config.max_backtracks,
        )
        self._n_updates = 0
        self._batch = _Batch()
        self._cumulative: dict[int, NDArray[np.float64]] = {}
        self.policy = self._package()

    def act(self, observation: int) -> int:
        """The action to take on the observation with this index in the buffer."""
        cumulative = self._cumulative.get(observation)
        if cumulative is None:
            row = self._buffer.observations.rows[observation : observation + 1]
            cumulative = self._network.probs(row)[0].cumsum()
            self._cumulative[observation] = cumulative
        drawn = self._rng.random() * cumulative[-1]  # the sum may miss 1 by a rounding error
        return int(cumulative.searchsorted(drawn, side="right"))

    def observe(self, outcome: StepOutcome) -> None:
        """Learn of the transition that the last action led to."""
        self._batch.append(outcome, self._horizon)

    def update(self) -> dict[str, Any] | None:
        """Search for a better policy once a batch is complete; metrics if there was a search.

        Afterwards the batch is empty.

        Raises:
            ConfigurationError: a batch has no more states than the neighbours asked for.
            NonFiniteError: the search broke down.
        """
        batch, config = self._batch, self.config
        if len(batch.lengths) < config.n_trajectories:
            return None
        with self._stopwatch("estimate"):
            points = self._coordinates.sample_points(np.array(batch.successors), self._point_rng)
            neighbourhoods = find_neighbourhoods(
                points, n_neighbors=config.n_neighbors, min_distance=config.min_distance
            )
        with self._stopwatch("improve"):
            # Only while the policy is uniform does another input leave it as it is.
            if self._n_updates == 0 and "center" in dict(self._network.encoder.named_buffers()):
                self._network.encoder.set_centering(
                    *input_statistics(self._buffer.observations.rows)
                )
            steps, valid = batch.padded()
            distinct, index = np.unique(np.array(batch.observations), return_inverse=True)
            observations = as_tensor(self._buffer.observations.rows[distinct])  # (m, *shape)
            rows, actions = torch.from_numpy(index)[steps], torch.tensor(batch.actions)[steps]

            def action_log_probs() -> Tensor:
                return torch.log_softmax(self._network(observations), dim=1)[rows, actions]

            outcome = self._search.maximize(action_log_probs, valid, neighbourhoods)
        self._n_updates += 1
        self._batch = _Batch()
        self._cumulative = {}
        self.policy = self._package()
        return {
            "state_entropy_before": outcome.entropy_before,
            "state_entropy": outcome.entropy,
            "kl": outcome.kl,
            "search_steps": outcome.n_steps,
            "backtracks": outcome.n_backtracks,
            "batch_steps": len(batch.actions),
        }

    def _package(self) -> CoveragePolicy:
        """A copy of the policy that no search reaches."""
        network = self._network
        return CoveragePolicy(
            network.encoder.frozen(), Linear(), None, network.weights.detach().clone()
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next step depends on, right after a policy update."""
        tensors = {f"search.{name}": tensor for name, tensor in self._search.state().items()}
        for name, tensor in self._network.named_buffers():
            tensors[f"network.{name}"] = tensor.clone()
        return tensors, {
            "n_updates": self._n_updates,
            "rng": generator_state(self._rng),
            "point_rng": generator_state(self._point_rng),
        }

    def load_state(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self._search.load_state(
            {k.removeprefix("search."): v for k, v in tensors.items() if k.startswith("search.")}
        )
        for name, buffer in self._network.named_buffers():
            buffer.copy_(tensors[f"network.{name}"])
        self._n_updates = int(state["n_updates"])
        self._rng = restore_generator(state["rng"])
        self._point_rng = restore_generator(state["point_rng"])
        self._batch = _Batch()
        self._cumulative = {}
        self.policy = self._package()


def make_mepol_method(
    config: MepolConfig,
    env: gym.Env[Any, Any],
    buffer: ReplayBuffer,
    *,
    seed: int,
    stopwatch: Stopwatch,
    coordinates: StateCoordinates | None = None,
) -> MepolMethod:
    """MEPOL for an environment; the horizon is filled in.

    Args:
        config: settings.
        env: the environment.
        buffer: its replay buffer.
        seed: seed of everything random in the method.
        stopwatch: measures the phases.
        coordinates: where states lie; None: :func:`~rover.baselines.coordinates.make_coordinates`.

    Raises:
        ConfigurationError: no metric for this environment's states, observations of a dtype that
            encoders do not take, or batches with fewer states than neighbours.
    """
    horizon = horizon_of(env) if config.horizon is None else config.horizon
    largest = config.n_trajectories * horizon
    if config.n_neighbors >= largest:
        raise ConfigurationError(
            f"a batch of {config.n_trajectories} trajectories of at most {horizon} steps has too "
            f"few states for n_neighbors={config.n_neighbors}: raise n_trajectories or lower "
            "n_neighbors"
        )
    return MepolMethod(
        config.model_copy(update={"horizon": horizon}),
        _policy_encoder_spec(config, env.observation_space),
        make_coordinates(env, buffer) if coordinates is None else coordinates,
        buffer,
        seed=seed,
        stopwatch=stopwatch,
    )


def _policy_encoder_spec(config: MepolConfig, space: spaces.Space[Any]) -> EncoderSpec:
    """ReLU layers from an observation to the last hidden layer of the policy network."""
    spec = default_encoder_spec(
        tuple(space.shape or ()),
        observation_dtype=observation_dtype(space),
        n_states=int(space.n) if isinstance(space, spaces.Discrete) else None,
    )
    layers: dict[str, Any] = {} if is_image(space) else {"hidden_sizes": config.hidden_sizes[:-1]}
    return spec.model_copy(
        update={
            **layers,
            "feature_dim": config.hidden_sizes[-1],
            "bias": True,
            "output_relu": True,
            "normalization": "none",
        }
    )
