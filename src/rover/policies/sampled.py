"""Policies that plan at every step: sampled sequences of controls in a dynamics model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.policies.policy import Policy, Probs
from rover.world.gated import GatedModel
from rover.world.sampled import Controls, SampledPlan, Sampling


class SampledPolicy(Policy):
    """Plans at every step to arrive at a goal soon and to stay there.

    A sequence of controls is worth the discounted sum of −δ − (1 − p) 1[δ > 1] over its predicted
    points, with the distance δ to the goal in units of its radius, and the chance p that features
    of the goal move, 0 if they move without contact: a hand that is far from a box goes to it. The
    first control of the best sequence is taken, and the next decision begins with what is left of
    the best ones (``rover.world.sampled``). Actions are in the environment's own space; `probs`,
    which has no memory, is certain of the nearest action of pretraining's. Goals are components.

    Args:
        model: of the environment.
        targets, factors: (K, d) float32 of K goals, reached where ‖(x − target) factors‖ ≤ 1;
            factors are 0 for features that do not count.
        controls: in units of the model, with pretraining's choices.
        units: (k,) float64 factors from controls to actions.
        sampling: settings of the search.
        observation_shape: (d,).
        details: anything JSON-able that should travel with the policy; ``tasks`` names the goals.
    """

    file_type = "sampled"

    def __init__(
        self,
        model: GatedModel,
        targets: Tensor,
        factors: Tensor,
        controls: Controls,
        units: Tensor,
        *,
        sampling: Sampling,
        observation_shape: tuple[int, ...],
        details: Mapping[str, Any] | None = None,
    ) -> None:
        n_goals, n_actions = len(targets), len(controls.choices)
        super().__init__(n_actions, observation_shape, n_components=n_goals, details=details)
        self.model, self.targets, self.factors = model, targets, factors
        self.controls, self.units = controls, units
        self.sampling = sampling
        self._plan: SampledPlan | None = None
        self._followed = -1

    def distances(self, observations: NDArray[Any], component: int = 0) -> NDArray[np.float64]:
        """Distances (n,) of observations (n, d) to a goal, in units of its radius: reached at 1."""
        self._check_component(component)
        rows = self._checked(observations).to(torch.float32)
        return self._distances(rows, component).double().numpy()

    def _distances(self, points: Tensor, component: int) -> Tensor:
        away = (points - self.targets[component]) * self.factors[component]
        distances: Tensor = torch.linalg.vector_norm(away, dim=1)
        return distances

    def _begin(self, component: int, rng: np.random.Generator) -> SampledPlan:
        """The search of an episode."""
        names_still = bool((self.factors[component][self.model.still] > 0.0).any())

        def reward(points: Tensor, chance: Tensor) -> Tensor:
            distance = self._distances(points, component)
            return -distance - (1.0 - names_still * chance) * (distance > 1.0).float()

        return SampledPlan(self.model, reward, self.controls, self.sampling, rng)

    def reset(self) -> None:
        """Begin an episode: forget the plan of the last one."""
        self._plan = None

    def _as_action(self, control: Tensor) -> int | NDArray[Any]:
        actions = self.action_set
        if actions is None or not self.controls.is_continuous:
            return self._as_taken(int(self.controls.nearest(control)))
        action = (control.double() * self.units).numpy().reshape(actions.shape[1:])
        return np.asarray(action.astype(actions.dtype))

    def act(
        self, observation: Any, rng: np.random.Generator, component: int | None = None
    ) -> int | NDArray[Any]:
        """One action for one observation, the next of the episode since `reset`, whose goal is
        drawn when it begins if none is given."""
        ((row,), _) = self._batch(observation)
        if self._plan is None or component not in (None, self._followed):
            self._followed = self.draw_component(rng) if component is None else component
            self._check_component(self._followed)
            self._plan = self._begin(self._followed, _child(rng))
        return self._as_action(self._plan.act(row))

    def _begin_episode(self, rng: np.random.Generator, deterministic: bool) -> SampledPlan:
        # Deterministic: its actions follow from its observations alone.
        component = self.draw_component(rng) if self.n_components > 1 else 0
        return self._begin(component, np.random.default_rng(0) if deterministic else _child(rng))

    def _next_action(self, followed: Any, observation: NDArray[Any], *_: Any) -> Any:
        return self._as_action(followed.act(observation))

    def component_logits(self, observations: Tensor, component: int) -> Tensor:
        """Logits (n, A) of the actions that plans without a past begin with."""
        plans = [self._begin(component, np.random.default_rng(0)) for _ in observations]
        controls = [plan.act(row) for plan, row in zip(plans, observations.numpy(), strict=True)]
        chosen = self.controls.nearest(torch.stack(controls))
        return torch.eye(self.n_actions, dtype=torch.float64)[chosen].clamp(min=1e-300).log()

    def sample_component(self, rng: np.random.Generator) -> Probs:
        """The policy that one episode follows, in actions that pretraining chose among."""
        plan = self._begin_episode(rng, False)

        def probs(observations: NDArray[Any]) -> NDArray[np.float64]:
            (row,) = self._checked(observations).numpy()
            return np.eye(self.n_actions)[[int(self.controls.nearest(plan.act(row)))]]

        return probs

    def single(self, component: int) -> SampledPolicy:
        """The policy of one goal alone."""
        self._check_component(component)
        return SampledPolicy(
            self.model,
            self.targets[component : component + 1],
            self.factors[component : component + 1],
            self.controls,
            self.units,
            sampling=self.sampling,
            observation_shape=self.observation_shape,
            details=self.details | {"tasks": [self.tasks[component]]},
        )

    def content(self) -> dict[str, Any]:
        """Content of the policy's file, beside its details."""
        tables = self.model.tensors() | {"targets": self.targets, "factors": self.factors}
        tables |= {"least": self.controls.low, "most": self.controls.high, "units": self.units}
        tables |= {"choices": self.controls.choices}
        return {
            "observation_shape": list(self.observation_shape),
            "is_continuous": self.controls.is_continuous,
            "sampling": self.sampling._asdict(),
            "tables": {name: table.contiguous() for name, table in tables.items()},
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any], **own_parts: Any) -> Self:
        """Read what :meth:`content` returned."""
        tables, shape = content["tables"], tuple(int(n) for n in content["observation_shape"])
        bounds = tables["least"], tables["most"], tables["choices"]
        return cls(
            GatedModel(**{field.name: tables[field.name] for field in fields(GatedModel)}),
            tables["targets"],
            tables["factors"],
            Controls(*bounds, is_continuous=bool(content["is_continuous"])),
            tables["units"],
            sampling=Sampling(**content["sampling"]),
            observation_shape=shape,
        )


def _child(rng: np.random.Generator) -> np.random.Generator:
    """A generator of an episode's own: its number of draws depends on the episode's length."""
    return np.random.default_rng(rng.integers(2**63))
