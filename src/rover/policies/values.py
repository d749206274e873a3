"""Policies that act on a table of action values, as planning returns them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor, nn

from rover.errors import ConfigurationError, require_finite
from rover.features import Encoder
from rover.operators.values import TIE
from rover.policies.coverage import _stored_encoder
from rover.policies.policy import Policy
from rover.world.net import between

# Share of uniform actions at an unseen observation: a wall may be beside it, and not beside the
# nearest landmark.
_UNSEEN = 0.1

_OF_TASKS = "action_values", "sink_values", "goals", "remaining", "values"
_TABLES = "landmarks", "projection", "displacements", "contact_probability", *_OF_TASKS


_Near = tuple[Tensor, Tensor]
"""Landmarks near n points: rows (n, k) of their table, and weights (n, k), sum 1."""


class ValuePolicy(Policy):
    """Acts on action values that are known at landmarks and interpolated between them.

    Where states repeat they are a table Q(x, a). Where they do not, an action leads from x to
    x + Δ_a(x), and Q(x, a) = q_a(x) + c_a(x) V(x + Δ_a(x)) with q, c and Δ interpolated from the
    landmarks near x and V from those near its end: V is discontinuous, so q and V are interpolated,
    and not Q. Uniform actions are mixed in by the contact probability of the best action: otherwise
    the policy would push against an unpredicted wall for ever.

    Several tasks are its components: one table of action values each, on the same landmarks. Its
    logits are Q / temperature; with temperature 0 the best actions share the probability. At an
    observation far from all data it takes every action alike; or, where observations have a metric,
    it acts as at the nearest landmark, and by uniform actions now and then.

    Args:
        tables: float64 by name, on p landmarks: ``landmarks`` (p, z) as points; ``projection``
            (d, z), from features of observations to points; ``action_values`` (K, p, A), Q or q;
            ``sink_values`` (K,), the value of an observation far from all data;
            ``goals`` (K,) int64, the landmark that each task is to arrive at, −1 for a task that is
            none. Where `action_values` are q also ``displacements`` (p, A, z) Δ, ``remaining``
            (K, p, A) c, ``values`` (K, p) V, and ``contact_probability`` (p, A), the share of the
            transitions near by that contradict Δ.
        observation_shape: of one observation.
        neighbours: landmarks that a point is interpolated from; 1: the nearest stands for it.
        reach: distance to the nearest landmark beyond which an observation is unseen; inf for
            never.
        has_metric: whether near points are alike, so that the nearest landmark stands for an
            unseen observation.
        temperature: ≥ 0, in units of the values.
        encoder: makes the features; None: observations as they are, flattened.
        details: anything JSON-able that should travel with the policy; ``tasks`` names the tasks.
    """

    file_type = "values"
    encoder: Encoder | None
    landmarks: Tensor
    projection: Tensor
    table: nn.Parameter
    sink_values: Tensor
    goals: Tensor
    displacements: Tensor | None
    remaining: Tensor | None
    values: Tensor | None
    contact_probability: Tensor | None

    def __init__(
        self,
        tables: Mapping[str, Tensor],
        *,
        observation_shape: tuple[int, ...],
        neighbours: int,
        reach: float,
        temperature: float,
        has_metric: bool = False,
        encoder: Encoder | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        n_tasks, _, n_actions = tables["action_values"].shape
        super().__init__(n_actions, observation_shape, n_components=n_tasks, details=details)
        if not 0.0 <= temperature < math.inf:
            raise ConfigurationError(f"temperature must be at least 0, not {temperature!r}")
        self.encoder = encoder
        self.neighbours = neighbours
        self.reach = reach
        self.has_metric = has_metric
        self.temperature = temperature
        self.table = nn.Parameter(tables["action_values"].contiguous(), requires_grad=False)
        for name in _TABLES:
            tensor = tables.get(name)
            if name != "action_values":
                self.register_buffer(name, None if tensor is None else tensor.contiguous())
        self._tree = KDTree(self.landmarks.cpu().numpy())
        contacts = self.contact_probability
        self._has_contacts = contacts is not None and bool(contacts.any())

    def component_logits(self, observations: Tensor, component: int) -> Tensor:
        """Logits (n, A) float64 of the actions under one task, for observations (n, *shape)."""
        self._check_component(component)
        return self._logits(self.regressors(observations), [component])[0]

    def tables(self, observations: NDArray[Any] | Tensor) -> NDArray[np.float64]:
        """Action probabilities (K, n, A) under every task."""
        batch = self._checked(observations)
        with torch.no_grad():
            logits = self._logits(self.regressors(batch), range(self.n_components))
        return torch.softmax(logits, dim=2).numpy()

    def logits_from_regressors(self, regressors: Tensor) -> Tensor:
        """Logits (n, A) float64 of `regressors` (n, z), under the task of a policy for one."""
        return self._logits(regressors, [0])[0]

    def _logits(self, points: Tensor, components: Sequence[int]) -> Tensor:
        near = self._near(points)
        q = self._action_values(points, near, components)
        best = q.amax(dim=2, keepdim=True)
        if self.temperature > 0.0:
            logits = (q - best) / self.temperature
        else:
            # At temperature 0 equal actions share the probability: rounding to multiples of the tie
            # makes them exactly equal, and the next best too unlikely to be drawn.
            logits = ((q - best) / (TIE * best.abs().clamp(min=1e-290))).round()
        if self.contact_probability is not None and self._has_contacts:
            return self._with_uniform(logits, _read(near, self.contact_probability))
        if self.has_metric and bool((unseen := self._is_far(points)).any()):
            return self._with_uniform(logits, _UNSEEN * unseen[:, None])
        return logits

    def _with_uniform(self, logits: Tensor, share: Tensor) -> Tensor:
        """Logits (c, n, A) with the share of uniform actions, (n, A), at the best action."""
        best = logits.argmax(dim=2, keepdim=True)
        share = share.clamp(0.0, 1.0).expand_as(logits).gather(2, best)
        probs = (1.0 - share) * torch.softmax(logits, dim=2) + share / self.n_actions
        return probs.clamp(min=1e-300).log()

    def regressors(self, observations: Tensor) -> Tensor:
        """The points (n, z) float64 of raw observations (n, *shape)."""
        if self.encoder is None:
            features = observations.reshape(len(observations), -1).double()
        else:
            features = self.encoder(observations).double()
        points = features @ self.projection
        require_finite(points, "the points of the observations", "look at the observations")
        return points

    def _action_values(self, points: Tensor, near: _Near, components: Sequence[int]) -> Tensor:
        """Q (c, n, A) at points (n, z), with the landmarks near them, under several tasks."""
        # The table holds what is earned before the action ends; the value of its end is added.
        q = torch.stack([_read(near, self.table[k]) for k in components])
        if self.displacements is not None:
            assert self.remaining is not None
            assert self.values is not None
            # Q(x, a) = q_a(x) + c_a(x) V(x + Δ_a(x)): V alone is interpolated where the action
            # ends, since it is discontinuous, and so is Q.
            change = _read(near, self.displacements).view(len(points), self.n_actions, -1)
            rows, weights = self._near((points.detach()[:, None] + change).flatten(0, 1))
            for number, k in enumerate(components):
                reached = (weights * self.values[k][rows]).sum(dim=1).view(len(points), -1)
                q[number] += _read(near, self.remaining[k]) * reached
        if self.has_metric or self.reach == math.inf:
            return q
        # Without a metric neighbours do not predict an unseen state: it has the sink's value.
        nothing = self.sink_values[list(components)][:, None, None]
        return torch.where(self._is_far(points)[:, None], nothing, q)

    def _near(self, points: Tensor) -> _Near:
        """The landmarks near points (n, z)."""
        tree, where = self._tree, points.detach().cpu().numpy()
        if self.neighbours == 1:  # the nearest landmark stands for the point
            rows = np.asarray(tree.query(where, k=[1])[1])
            weights = np.ones(rows.shape)
        else:
            rows, weights = between(tree, where, self.neighbours)
        return torch.from_numpy(rows).to(points.device), torch.from_numpy(weights).to(points.device)

    def _is_far(self, points: Tensor) -> Tensor:
        """Mask (n,) of the points (n, z) that are far from all data."""
        distance = self._tree.query(points.detach().cpu().numpy())[0]
        return torch.from_numpy(np.asarray(distance > self.reach)).to(points.device)

    def action_values(
        self, observations: NDArray[Any] | Tensor, component: int = 0
    ) -> NDArray[np.float64]:
        """Q(x, a) (n, A) of a batch of observations, as of :meth:`probs`, under one task."""
        self._check_component(component)
        batch = self._checked(self._stored(observations))
        with torch.no_grad():
            points = self.regressors(batch)
            return self._action_values(points, self._near(points), [component])[0].numpy()

    def value(self, observations: NDArray[Any] | Tensor, component: int = 0) -> NDArray[np.float64]:
        """max_a Q(x, a) (n,) of a batch of observations, as of :meth:`probs`, under one task."""
        return np.asarray(self.action_values(observations, component).max(axis=1))

    def single(self, component: int) -> ValuePolicy:
        """The policy of one task alone."""
        self._check_component(component)
        return self._changed(component)

    def trainable(self) -> ValuePolicy:
        """A copy that can learn: its table requires gradients, and its values are logits, divided
        by the policy's temperature; where that is 0 by the one with which the best actions are e⁴
        times as likely as the next best, in the median landmark.

        Raises:
            ConfigurationError: several tasks, or values that are the same for all actions.
        """
        if self.n_components > 1:
            raise ConfigurationError(
                f"the policy is for {self.n_components} tasks, and only one can be learned: take "
                "policy.single(component)"
            )
        temperature = self.temperature
        if temperature == 0.0:
            with torch.no_grad():
                q = self._action_values(self.landmarks, self._near(self.landmarks), [0])[0]
            # The gap to the next best that is not tied, in the median landmark; e^(gap / T) = e⁴.
            best = q.amax(dim=1, keepdim=True)
            behind = best - q
            tied = behind <= TIE * best.abs()
            gaps = behind.masked_fill(tied, torch.inf).amin(dim=1)
            gaps = gaps[torch.isfinite(gaps)]
            if len(gaps) == 0:
                raise ConfigurationError(
                    "all actions are worth the same everywhere: there is no policy to go on from"
                )
            temperature = float(gaps.median()) / 4.0
        copy = self._changed(0, factor=1.0 / temperature)
        # Values over the temperature are logits of softmax(Q / T): the copy needs none of its own.
        copy.temperature = 1.0
        copy.table.requires_grad_(True)
        return copy

    def scaled(self, factor: float) -> ValuePolicy:
        """A copy of a policy for one task whose values are `factor` times as large."""
        return self._changed(0, factor=factor)

    def _changed(self, component: int, *, factor: float = 1.0) -> ValuePolicy:
        """A copy for one task."""
        tables = self._tables()
        for name in tables.keys() & set(_OF_TASKS):
            tables[name] = tables[name][component : component + 1]
            if name.endswith("values"):
                tables[name] = tables[name] * factor
        return ValuePolicy(
            tables,
            observation_shape=self.observation_shape,
            neighbours=self.neighbours,
            reach=self.reach,
            has_metric=self.has_metric,
            temperature=self.temperature,
            encoder=self.encoder,
            details=self.details | {"tasks": [self.tasks[component]]},
        )

    def _tables(self) -> dict[str, Tensor]:
        """The tables of the constructor, by name."""
        tables = {name: getattr(self, name) for name in _TABLES}
        tables["action_values"] = self.table.detach()
        return {name: table for name, table in tables.items() if table is not None}

    def content(self) -> dict[str, Any]:
        """Content of the policy's file, beside its details."""
        encoder = self.encoder
        return {
            "observation_shape": list(self.observation_shape),
            "encoder": None if encoder is None else encoder.config.model_dump(mode="json"),
            "encoder_weights": {} if encoder is None else encoder.state_dict(),
            "neighbours": self.neighbours,
            "reach": self.reach if self.reach < float("inf") else None,
            "has_metric": self.has_metric,
            "temperature": self.temperature,
            "tables": self._tables(),
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any], **own_parts: Any) -> Self:
        """Read what :meth:`content` returned; its encoder is never the user's own."""
        shape, encoder = content["observation_shape"], None
        if content["encoder"] is not None:
            encoder = _stored_encoder(content)
            shape = encoder.config.observation_shape
        return cls(
            content["tables"],
            observation_shape=tuple(int(length) for length in shape),
            neighbours=max(1, int(content["neighbours"])),
            reach=math.inf if content["reach"] is None else float(content["reach"]),
            has_metric=bool(content["has_metric"]),
            temperature=float(content["temperature"]),
            encoder=encoder,
        ).requires_grad_(False)


def _read(near: _Near, table: Tensor) -> Tensor:
    """Rows (n, …) of a table of landmarks (p, …) at n points, flattened."""
    rows, weights = near
    return torch.bmm(weights[:, None], table[rows].flatten(2))[:, 0]
