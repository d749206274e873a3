"""Active pre-training (Liu and Abbeel, 2021): entropy of particles in a learned space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Protocol

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from rover.baselines.icm import IntrinsicCuriosity
from rover.baselines.knn import knn_distances, particle_reward
from rover.baselines.merging import merge_transitions, next_observation_counts
from rover.baselines.observation import ObservationSpec, center_on, make_observation_encoder
from rover.baselines.running import RunningMoments
from rover.baselines.skills import NoSkills
from rover.baselines.training import GradientSteps, finite
from rover.features import RepresentationTrainer
from rover.storage import check_tensors, copied_tensors, restore_tensors
from rover.types import Batch

_NAME = "the APT reward"


class APTConfig(BaseModel):
    """Settings of :class:`APT`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "fast": {
            "feature_dim": 64,
            "hidden": 128,
            "learning_rate": 1e-3,
            "forward_trains_features": False,
        },
    }

    features: Literal["icm", "contrastive"] = Field(
        "icm", description="inverse and forward dynamics, or InfoNCE on next observations"
    )
    feature_dim: int = Field(512, ge=1, description="width of the features")
    hidden: int = Field(
        1024, ge=1, description="hidden units of the dynamics models, or of the contrastive encoder"
    )
    forward_weight: float = Field(0.5, ge=0, le=1, description="β, weight of the forward loss")
    forward_trains_features: bool = Field(
        True, description="whether the forward loss trains the features as well (icm only)"
    )
    temperature: float = Field(0.05, gt=0, description="InfoNCE temperature (contrastive only)")
    learning_rate: float = Field(1e-4, gt=0, description="step size of Adam (contrastive: AdamW)")
    k: int = Field(12, ge=1, description="nearest neighbours that are averaged")
    normalize: bool = Field(True, description="measure distances in units of their running mean")


class _Features(Protocol):
    """What APT measures distances in."""

    def encode(self, observations: Tensor) -> Tensor:
        """Features (m, z) of raw observations, with gradient."""
        ...

    def update(self, batch: Batch) -> dict[str, float]:
        """One gradient step."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Everything that updates change, copied."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned."""
        ...


class APT(NoSkills):
    """Reward for reaching observations that lie far from the others of their batch.

        r(x, a, x') = log(1 + d̄(x') / μ),   d̄ = (1/k) Σ_j ‖φ(x') − φ(x'_j)‖

    over the k nearest of the batch's reached observations. μ is the running mean of d̄ over all
    batches (Liu and Abbeel divide by it as well), 1 before the first update or where `normalize`
    is off. φ is trained by inverse and forward dynamics (:class:`IntrinsicCuriosity`), or by
    contrasting predicted with reached observations, as ROVER's own encoder is.

    Args:
        config: settings.
        spec: the observations.
        n_actions: number of actions.
        generator: source of the initial weights.
    """

    def __init__(
        self,
        config: APTConfig,
        spec: ObservationSpec,
        n_actions: int,
        *,
        generator: torch.Generator,
    ) -> None:
        self._k = config.k
        self._normalize = config.normalize
        self._distance_moments = RunningMoments(1)
        make = _CuriosityFeatures if config.features == "icm" else _ContrastiveFeatures
        self._features: _Features = make(config, spec, n_actions, generator)

    def reward(self, batch: Batch) -> Tensor:
        """Share of each transition in the particle entropy of the batch, (n,) ≥ 0.

        Raises:
            ConfigurationError: the batch has no more than k transitions.
        """
        with torch.no_grad():
            distances = self._distances(batch)  # (m, k)
        scale = 1.0
        if self._normalize and float(self._distance_moments.mean) > 0.0:
            scale = float(self._distance_moments.mean)
        rewards = particle_reward(distances, scale=scale)  # (m,)
        return finite(rewards.index_select(0, batch.next_index), name=_NAME)

    def update(self, batch: Batch) -> dict[str, float]:
        """One gradient step of the features, and the running mean of the distances.

        Raises:
            NonFiniteError: the loss is not finite.
        """
        metrics = self._features.update(batch)
        if self._normalize:
            with torch.no_grad():
                distances = self._distances(batch).mean(dim=1, keepdim=True)
            self._distance_moments.update(distances, next_observation_counts(batch))
            metrics["apt_distance"] = float(self._distance_moments.mean)
        return metrics

    def state(self) -> dict[str, Tensor]:
        """Networks, optimiser and the mean distance."""
        features = {f"features.{name}": t for name, t in self._features.state().items()}
        return {**features, **copied_tensors(self._distance_moments.tensors("distance"))}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            ArtefactError: the state does not fit; nothing has been changed then.
        """
        check_tensors(self.state(), state, owner=_NAME)
        prefix = "features."
        self._features.load_state(
            {k.removeprefix(prefix): t for k, t in state.items() if k.startswith(prefix)}
        )
        moments = self._distance_moments.tensors("distance")
        restore_tensors(moments, {name: state[name] for name in moments}, owner=_NAME)

    def _distances(self, batch: Batch) -> Tensor:
        counts = next_observation_counts(batch)
        return knn_distances(self._features.encode(batch.observations), counts, k=self._k)


class _CuriosityFeatures:
    """Features of inverse and forward dynamics."""

    def __init__(
        self, config: APTConfig, spec: ObservationSpec, n_actions: int, generator: torch.Generator
    ) -> None:
        self._spec = spec
        self._n_actions = n_actions
        self._forward_weight = config.forward_weight
        self._model = IntrinsicCuriosity(
            spec,
            n_actions,
            feature_dim=config.feature_dim,
            hidden_sizes=(),
            model_hidden=config.hidden,
            forward_trains_features=config.forward_trains_features,
            generator=generator,
        )
        self._steps = GradientSteps(_NAME, {"icm": self._model}, learning_rate=config.learning_rate)

    def encode(self, observations: Tensor) -> Tensor:
        features: Tensor = self._model(observations)
        return features

    def update(self, batch: Batch) -> dict[str, float]:
        merged = merge_transitions(batch, n_actions=self._n_actions)
        if int(self._steps.n_updates) == 0:
            center_on(self._spec, batch.observations, self._model.encoder)
        inverse, forward = self._model.losses(self._model(batch.observations), merged)
        weight = self._forward_weight
        self._steps.step((1.0 - weight) * inverse + weight * forward)
        return {"icm_inverse_loss": inverse.item(), "icm_forward_loss": forward.item()}

    def state(self) -> dict[str, Tensor]:
        return copied_tensors(self._steps.tensors())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        restore_tensors(self._steps.tensors(), state, owner=_NAME)


class _ContrastiveFeatures:
    """Features of ROVER's own encoder, L2-normalised and trained by InfoNCE."""

    def __init__(
        self, config: APTConfig, spec: ObservationSpec, n_actions: int, generator: torch.Generator
    ) -> None:
        self._spec = spec
        self._n_actions = n_actions
        encoder = make_observation_encoder(
            spec,
            hidden_sizes=(config.hidden,),
            feature_dim=config.feature_dim,
            generator=generator,
            normalization="l2",
        )
        self._trainer = RepresentationTrainer(
            encoder,
            n_actions=n_actions,
            temperature=config.temperature,
            learning_rate=config.learning_rate,
            generator=generator,
        )

    def encode(self, observations: Tensor) -> Tensor:
        features: Tensor = self._trainer.encoder(observations)
        return features

    def update(self, batch: Batch) -> dict[str, float]:
        merged = merge_transitions(batch, n_actions=self._n_actions)
        if self._trainer.n_updates == 0:
            center_on(self._spec, batch.observations, self._trainer.encoder)
        metrics = self._trainer.update(
            batch.observations, merged.index, merged.actions, merged.next_index, merged.counts
        )
        return {"contrastive_loss": metrics.loss}

    def state(self) -> dict[str, Tensor]:
        return self._trainer.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._trainer.load_state(state)
