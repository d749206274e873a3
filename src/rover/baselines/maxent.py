"""Maximum-entropy exploration (Hazan, Kakade, Singh and Van Soest, 2019): its reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from rover.baselines.density import (
    KernelDensity,
    KernelShape,
    PrincipalComponents,
    fit_density,
    fit_principal_components,
)
from rover.baselines.merging import check_batch
from rover.baselines.observation import ObservationSpec, flat_observations
from rover.baselines.skills import NoSkills
from rover.baselines.training import finite
from rover.errors import ArtefactError
from rover.storage import check_tensor_names, copied_tensors
from rover.types import Batch

_NAME = "the MAXENT reward"
_STATE_NAMES = ("mean", "components", "variances", "points", "weights")


class MaxEntConfig(BaseModel):
    """Settings of :class:`MaxEnt`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {},
        "fast": {"measure": "mass", "n_components": 512, "refit_every": 1000},
    }

    n_components: int = Field(32, ge=1, description="principal components, at most")
    bandwidth: float = Field(0.1, gt=0, description="of the kernel")
    kernel: KernelShape = Field("epanechnikov", description="shape of the kernel")
    measure: Literal["density", "mass"] = Field(
        "density", description="p̂ per unit of volume, or the share of samples near a point"
    )
    smoothing: float = Field(1e-3, gt=0, description="what is added to p̂")
    refit_every: int = Field(5000, ge=1, description="environment steps between densities")


class MaxEnt(NoSkills):
    """Reward for observations that the mixture of policies so far seldom reaches.

        r(x, a, x') = 1 / (p̂(x') + c)

    p̂ is a kernel density on principal components of rollouts of the policies so far
    (:meth:`refit`). c = 10⁻³ bounds the reward; this is the reward of the published experiments,
    where the analysis has the gradient of the smoothed entropy, −log(p̂ + c) − 1.

    In 32 dimensions a density per unit of volume is of the order of 10³⁷ wherever there is a
    sample, and the reward close to 0 there and 1/c elsewhere. ``measure="mass"`` divides p̂ by
    its kernel's peak, so that p̂ is the frequency of an observation where observations are
    distinct, as in the tabular form of the algorithm. One-hot observations need a component each
    for that: those seldom seen have none among the first few, and fall together.

    Args:
        config: settings.
        spec: the observations.
    """

    def __init__(self, config: MaxEntConfig, spec: ObservationSpec) -> None:
        self._config = config
        self._spec = spec
        self._components: PrincipalComponents | None = None
        self._density: KernelDensity | None = None

    def refit(self, observations: Tensor, counts: NDArray[np.integer[Any]]) -> dict[str, float]:
        """Estimate the density anew.

        Args:
            observations: (m, *shape), distinct raw observations of rollouts.
            counts: (m,), positive, how often each occurred.

        Returns:
            Metrics: the number of components and their share of the variance.

        Raises:
            ConfigurationError: no observations, or counts that do not fit.
            NonFiniteError: NaN or infinity among the observations.
        """
        samples = flat_observations(self._spec, observations).numpy().astype(np.float64)
        components = fit_principal_components(
            samples, counts, n_components=self._config.n_components
        )
        self._density = fit_density(
            components.project(samples),
            counts,
            bandwidth=self._config.bandwidth,
            kernel=self._config.kernel,
        )
        self._components = components
        shares = counts / counts.sum()
        total = float(shares @ np.square(samples - components.mean).sum(axis=1))
        explained = float(components.variances.sum()) / total if total > 0.0 else 1.0
        return {
            "maxent_components": float(len(components.components)),
            "maxent_explained": explained,
        }

    def reward(self, batch: Batch) -> Tensor:
        """Reward of each transition, (n,) in (0, 1/c]; 1/c before the first density."""
        check_batch(batch)
        probability = np.zeros(len(batch.observations))
        if self._density is not None and self._components is not None:
            flat = flat_observations(self._spec, batch.observations).numpy()
            points = self._components.project(flat)
            on_mass = self._config.measure == "mass"
            probability = self._density.mass(points) if on_mass else self._density.density(points)
        reward = torch.from_numpy(1.0 / (probability + self._config.smoothing))  # (m,)
        return finite(reward.index_select(0, batch.next_index), name=_NAME)

    def update(self, batch: Batch) -> dict[str, float]:
        """Nothing to learn from a batch; :meth:`refit` learns from rollouts."""
        return {}

    def state(self) -> dict[str, Tensor]:
        """The density and its components; arrays of no rows before the first :meth:`refit`."""
        if self._components is None or self._density is None:
            size = self._spec.size
            shapes = ((0,), (0, size), (0,), (0, 0), (0,))
            return {
                name: torch.zeros(shape, dtype=torch.float64)
                for name, shape in zip(_STATE_NAMES, shapes, strict=True)
            }
        arrays = (
            self._components.mean,
            self._components.components,
            self._components.variances,
            self._density.points,
            self._density.weights,
        )
        named = zip(_STATE_NAMES, arrays, strict=True)
        return copied_tensors({name: torch.from_numpy(array) for name, array in named})

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state` returned.

        Raises:
            ArtefactError: the state does not fit; nothing has been changed then.
        """
        check_tensor_names(self.state(), state, owner=_NAME)
        mean, components, variances, points, weights = (
            state[name].detach().numpy().copy() for name in _STATE_NAMES
        )
        size, n_components, n_points = self._spec.size, len(components), len(weights)
        empty = n_points == 0
        expected = (
            (0,) if empty else (size,),
            (n_components, size),
            (n_components,),
            (n_points, n_components),
            (n_points,),
        )
        arrays = (mean, components, variances, points, weights)
        if any(a.dtype != np.float64 for a in arrays) or expected != tuple(
            array.shape for array in arrays
        ):
            raise ArtefactError(
                f"the state of {_NAME} has shapes {[array.shape for array in arrays]}, which do "
                f"not fit observations of size {size}, or is not float64: make it for the "
                "observations that it was saved with"
            )
        self._components = None if empty else PrincipalComponents(mean, components, variances)
        self._density = (
            None
            if empty
            else KernelDensity(points, weights, self._config.bandwidth, self._config.kernel)
        )
