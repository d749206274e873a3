"""Contrastive intrinsic control (Laskin et al., 2022)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from rover.baselines.knn import knn_distances, particle_reward
from rover.baselines.merging import MergedTransitions, merge_transitions
from rover.baselines.observation import ObservationSpec, center_on, make_observation_encoder
from rover.baselines.running import RunningMoments
from rover.baselines.skills import CubeSkills, skills_of
from rover.baselines.training import GradientSteps, finite, make_linear
from rover.features import info_nce_loss
from rover.storage import copied_tensors, restore_tensors
from rover.types import Batch

_NAME = "the CIC reward"


class CICConfig(BaseModel):
    """Settings of :class:`CIC`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "fast": {"hidden": 128, "learning_rate": 1e-3},
    }

    skill_dim: int = Field(64, ge=1, description="length of a skill, and of embeddings")
    temperature: float = Field(0.5, gt=0, description="T of the contrastive loss")
    hidden: int = Field(1024, ge=1, description="hidden units of every network")
    learning_rate: float = Field(1e-4, gt=0, description="Adam step size")
    k: int = Field(16, ge=1, description="nearest neighbours that are averaged")
    normalize: bool = Field(True, description="measure distances in units of their running mean")


def skill_information(
    skills: Tensor, transitions: Tensor, positive: Tensor, counts: Tensor, *, temperature: float
) -> Tensor:
    """Contrastive lower bound on I(transition; skill) (Laskin et al., 2022, eq. 5).

        F = (1/n) Σ_i [ s_i,pos(i) − log (1/n) Σ_j c_j exp(s_ij) ],  s_ij = cos(q_i, h_j) / T

    Args:
        skills: (n, d), embedded skills q, one of each transition before merging.
        transitions: (p, d), embeddings h of the distinct transitions.
        positive: (n,) int64, row of `transitions` that was made under each skill.
        counts: (p,), positive, c: how many of the n each row of `transitions` stands for.
        temperature: T > 0.

    Returns:
        Scalar in (−∞, log n], in nats.
    """
    n = len(skills)
    loss = info_nce_loss(
        skills,
        transitions,
        positive,
        torch.ones(n),
        counts.to(torch.float32),
        temperature=temperature,
    )
    return math.log(n) - loss


class TransitionEmbedding(nn.Module):
    """Embeddings of skills and of transitions (x, x') in one space.

    h(x, x') = g(e(x), e(x')), with one hidden layer in e (convolutions for images), in g, and in
    the embedding of skills.

    Args:
        spec: the observations.
        skill_dim: length of skills and of embeddings.
        hidden: units of the hidden layers.
        generator: source of the initial weights.
    """

    def __init__(
        self,
        spec: ObservationSpec,
        *,
        skill_dim: int,
        hidden: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.encoder = make_observation_encoder(
            spec, hidden_sizes=(hidden,), feature_dim=skill_dim, generator=generator
        )
        # The first layer of g on e(x) and on e(x'), for each distinct observation once.
        self.first = make_linear(skill_dim, 2 * hidden, generator=generator)
        self.output = make_linear(hidden, skill_dim, generator=generator)
        self.skill = nn.Sequential(
            make_linear(skill_dim, hidden, generator=generator),
            nn.ReLU(),
            make_linear(hidden, skill_dim, generator=generator),
        )

    def forward(self, observations: Tensor, merged: MergedTransitions) -> Tensor:
        """Embed the distinct transitions between raw observations (m, *shape): (p, skill_dim)."""
        source, destination = self.first(self.encoder(observations)).chunk(2, dim=1)
        hidden = source.index_select(0, merged.index)
        hidden = hidden + destination.index_select(0, merged.next_index)
        embedding: Tensor = self.output(F.relu(hidden))
        return embedding


class CIC(CubeSkills):
    """Reward for transitions that lie far from the others of their batch, in the space of skills.

        r(x, a, x') = log(1 + d̄ / μ),   d̄ = (1/k) Σ_j ‖h(x, x') − h(x_j, x'_j)‖

    over the k nearest transitions of the batch (Laskin et al., 2022, eq. 6, in the form of APT).
    μ is the running mean of d̄, 1 before the first update or where `normalize` is off. h is
    trained to tell which transition was made under which skill (:func:`skill_information`).

    Args:
        config: settings.
        spec: the observations.
        generator: source of the initial weights.
    """

    def __init__(
        self, config: CICConfig, spec: ObservationSpec, *, generator: torch.Generator
    ) -> None:
        super().__init__(config.skill_dim)
        self._spec = spec
        self._k = config.k
        self._temperature = config.temperature
        self._normalize = config.normalize
        self._distance_moments = RunningMoments(1)
        self._embedding = TransitionEmbedding(
            spec, skill_dim=config.skill_dim, hidden=config.hidden, generator=generator
        )
        self._steps = GradientSteps(
            _NAME, {"embedding": self._embedding}, learning_rate=config.learning_rate
        )

    def reward(self, batch: Batch) -> Tensor:
        """Share of each transition in the particle entropy of the batch, (n,) ≥ 0.

        Raises:
            ConfigurationError: the batch has no more than k transitions.
        """
        merged = merge_transitions(batch, n_actions=0)
        with torch.no_grad():
            embedded = self._embedding(batch.observations, merged)  # (p, z)
            distances = knn_distances(embedded, merged.counts, k=self._k)
        scale = 1.0
        if self._normalize and float(self._distance_moments.mean) > 0.0:
            scale = float(self._distance_moments.mean)
        rewards = particle_reward(distances, scale=scale)  # (p,)
        return finite(rewards.index_select(0, merged.inverse), name=_NAME)

    def update(self, batch: Batch) -> dict[str, float]:
        """One gradient step of the embedding, and the running mean of the distances.

        Raises:
            ConfigurationError: the batch has no skills, or no more than k transitions.
            NonFiniteError: the loss is not finite.
        """
        merged = merge_transitions(batch, n_actions=0)
        skills = skills_of(batch, self.skill_dim)
        if int(self._steps.n_updates) == 0:
            center_on(self._spec, batch.observations, self._embedding.encoder)
        embedded = self._embedding(batch.observations, merged)
        information = skill_information(
            self._embedding.skill(skills),
            embedded,
            merged.inverse,
            merged.counts,
            temperature=self._temperature,
        )
        metrics = {"cic_information": -self._steps.step(-information)}
        if self._normalize:
            # Embeddings from before the step: one step moves their mean distance little.
            distances = knn_distances(embedded.detach(), merged.counts, k=self._k)
            self._distance_moments.update(distances.mean(dim=1, keepdim=True), merged.counts)
            metrics["cic_distance"] = float(self._distance_moments.mean)
        return metrics

    def state(self) -> dict[str, Tensor]:
        """Networks, optimiser and the mean distance."""
        return copied_tensors(self._tensors())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            ArtefactError: the state does not fit; nothing has been changed then.
        """
        restore_tensors(self._tensors(), state, owner=_NAME)

    def _tensors(self) -> dict[str, Tensor]:
        return {**self._steps.tensors(), **self._distance_moments.tensors("distance")}
