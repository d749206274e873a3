"""Random network distillation (Burda, Edwards, Storkey and Klimov, 2018)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from rover.baselines.merging import check_batch, next_observation_counts
from rover.baselines.observation import (
    ObservationSpec,
    center_on,
    flat_observations,
    make_observation_encoder,
)
from rover.baselines.running import RunningMoments
from rover.baselines.skills import NoSkills
from rover.baselines.training import GradientSteps, finite
from rover.storage import copied_tensors, restore_tensors
from rover.types import Batch

_NAME = "the RND reward"
_OBSERVATION_CLIP = 5.0
_STD_FLOOR = 1e-8


class RNDConfig(BaseModel):
    """Settings of :class:`RND`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "fast": {"hidden_sizes": (64,), "feature_dim": 32, "learning_rate": 1e-3},
    }

    hidden_sizes: tuple[int, ...] = Field(
        (512, 512), description="hidden layers of target and predictor (not for images)"
    )
    feature_dim: int = Field(512, ge=1, description="width of what is predicted")
    learning_rate: float = Field(1e-4, gt=0, description="Adam step size of the predictor")


class RND(NoSkills):
    """Reward for observations whose random features cannot be predicted yet.

        r(x, a, x') = e(x') / σ_e,   e(x) = (1/d) ‖f̂_θ(x̄) − f(x̄)‖²

    f is a random network that never changes, f̂ is trained on the same e over the observations
    that were reached. σ_e is the running standard deviation of e over all batches (the paper
    divides by that of the discounted return, which a reward that knows no learner does not see).
    x̄ = clip((x − μ) / σ, −5, 5) with running moments per element, as in the paper; images are
    related to the median image instead, which keeps the background at exactly zero.

    Args:
        config: settings.
        spec: the observations.
        generator: source of the initial weights.
    """

    def __init__(
        self, config: RNDConfig, spec: ObservationSpec, *, generator: torch.Generator
    ) -> None:
        self._spec = spec
        size = spec.size
        # Vectors are normalised before they enter the networks, so these see plain vectors.
        seen = spec if spec.is_image else ObservationSpec(shape=(size,), dtype="float32")
        self._target, self._predictor = (
            make_observation_encoder(
                seen,
                hidden_sizes=config.hidden_sizes,
                feature_dim=config.feature_dim,
                generator=generator,
            )
            for _ in range(2)
        )
        self._target.requires_grad_(False)
        self._steps = GradientSteps(
            _NAME, {"predictor": self._predictor}, learning_rate=config.learning_rate
        )
        self._observation_moments = RunningMoments(0 if spec.is_image else size)
        self._error_moments = RunningMoments(1)

    def reward(self, batch: Batch) -> Tensor:
        """Normalised prediction error of each observation that was reached, (n,) ≥ 0.

        Before the first update nothing is normalised.
        """
        check_batch(batch)
        with torch.no_grad():
            errors = self._errors(self._inputs(batch.observations))  # (m,)
        std = self._error_moments.variance[0].sqrt()
        scale = std if float(std) > _STD_FLOOR else torch.ones_like(std)
        return finite((errors / scale).index_select(0, batch.next_index), name=_NAME)

    def update(self, batch: Batch) -> dict[str, float]:
        """Train the predictor on the observations that were reached; moments first.

        Raises:
            NonFiniteError: the loss is not finite.
        """
        counts = next_observation_counts(batch)  # (m,)
        if self._spec.is_image:
            if int(self._steps.n_updates) == 0:
                center_on(self._spec, batch.observations, self._target, self._predictor)
        else:
            flat = flat_observations(self._spec, batch.observations)
            self._observation_moments.update(flat, counts)
        errors = self._errors(self._inputs(batch.observations))
        loss = (counts * errors).sum() / len(batch)
        value = self._steps.step(loss)
        self._error_moments.update(errors.detach()[:, None], counts)
        return {"rnd_loss": value, "rnd_error_std": float(self._error_moments.variance.sqrt())}

    def state(self) -> dict[str, Tensor]:
        """Networks, optimiser and moments."""
        return copied_tensors(self._tensors())

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            ArtefactError: the state does not fit; nothing has been changed then.
        """
        restore_tensors(self._tensors(), state, owner=_NAME)

    def _inputs(self, observations: Tensor) -> Tensor:
        if self._spec.is_image:
            return observations
        flat = flat_observations(self._spec, observations)
        moments = self._observation_moments
        if float(moments.count) == 0.0:
            return flat
        # An element that never changed has variance zero: any change of it is clipped.
        std = moments.variance.sqrt().clamp(min=_STD_FLOOR).to(torch.float32)
        normalized = (flat - moments.mean.to(torch.float32)) / std
        return normalized.clamp(-_OBSERVATION_CLIP, _OBSERVATION_CLIP)

    def _errors(self, inputs: Tensor) -> Tensor:
        gaps: Tensor = self._predictor(inputs) - self._target(inputs)  # (m, d)
        return gaps.square().mean(dim=1)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = self._steps.tensors()
        tensors.update((f"target.{k}", t) for k, t in self._target.state_dict().items())
        tensors.update(self._observation_moments.tensors("observation"))
        tensors.update(self._error_moments.tensors("error"))
        return tensors
