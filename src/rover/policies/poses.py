"""Policies for worlds that hide the position, with a memory of the episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.arrays import FloatArray
from rover.policies.policy import Policy, Probs, StatePolicy
from rover.policies.values import ValuePolicy
from rover.poses.explorer import flat_view, shown
from rover.poses.planner import Planner
from rover.poses.tracker import Tracker


class PosePolicy(Policy):
    """Policy on poses, which it infers from what an episode has shown until :meth:`reset`.

    Call this when an episode begins; roll-outs of this package do. Where the pose is in doubt it
    goes to what tells. `probs`, which have no memory, are uniform.

    Args:
        inner: the policy on poses (n, 3), or (n, 4) with what acts change.
        tracker: the map that poses are of; it is copied.
        observation_shape: shape of one observation.

    Attributes:
        window: height and width of the views.
    """

    file_type = "poses"

    def __init__(self, inner: Policy, tracker: Tracker, observation_shape: tuple[int, ...]) -> None:
        super().__init__(inner.n_actions, observation_shape, n_components=inner.n_components)
        self.inner, self._map, self.window = inner, tracker.content(), tracker.laws.shape
        self.reset()

    def component_logits(self, observations: Tensor, component: int = 0) -> Tensor:
        """Logits (n, A) of raw observations (n, *shape), without a memory: all alike."""
        return torch.zeros(len(self._checked(observations)), self.n_actions)

    def reset(self) -> None:
        """Forget the episode: the next observation begins another one."""
        self._planner: Planner | None = None
        self._last: tuple[NDArray[np.uint8], int] | None = None

    def choose(
        self, observation: NDArray[Any], rng: np.random.Generator, component: int | None = None
    ) -> int:
        """The number of an action for an observation, the next of the episode since `reset`."""
        self._planner = self._planner or Planner(Tracker.from_content(self._map))
        tracker = self._planner.tracker
        view = flat_view(np.asarray(observation), tracker.names, self.window)
        tracker.begin(view)
        if self._last is not None:
            tracker.step(*self._last, view)
        action = self._planner.tell_apart()
        if action is None:
            pose = int(tracker.canonical(np.array([tracker.here]))[0])
            action = self.inner.choose(shown(tracker, pose, tracker.changes), rng, component)
        self._last = view, action
        return action

    def sample_component(self, rng: np.random.Generator) -> Probs:
        """The policy that one episode follows, from its first observation on."""
        shape, component = self.observation_shape, self.draw_component(rng)
        tracker = Tracker.from_content(self._map)
        episode = type(self)(self.inner, tracker, shape)
        # Draws of its own: how many there are depends on the episode.
        draws = np.random.default_rng(rng.integers(2**63))

        def probs(observations: NDArray[Any]) -> FloatArray:
            (observation,) = self._checked(observations).numpy()
            return np.eye(self.n_actions)[[episode.choose(observation, draws, component)]]

        return probs

    def content(self) -> dict[str, Any]:
        """Content of the policy's file, beside its details."""
        return {
            "observation_shape": list(self.observation_shape),
            "inner": {"type": self.inner.file_type, **self.inner.content()},
            "map": self._map,
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any], **own_parts: Any) -> Self:
        """Read what :meth:`content` returned."""
        tracker = Tracker.from_content(content["map"])
        kinds: dict[str, type[Policy]] = {"states": StatePolicy, "values": ValuePolicy}
        inner = kinds[content["inner"]["type"]].from_content(content["inner"], **own_parts)
        return cls(inner, tracker, tuple(map(int, content["observation_shape"])))
