"""What is learned of an environment from the transitions of a buffer.

Exploration, coverage and plans for rewards ask one object whether states repeat, and share what
takes long to make of all transitions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from rover.data import Buffer
from rover.planning.model_selection import ModelSelection

PartT = TypeVar("PartT")


class World:
    """The transitions of a buffer, and parts of the model that is made of them.

    Args:
        buffer: the transitions.

    Attributes:
        buffer: the transitions.
        selection: decides whether its states repeat.
    """

    def __init__(self, buffer: Buffer) -> None:
        self.buffer, self.selection = buffer, ModelSelection(buffer)
        self._parts: dict[Hashable, Any] = {}
        self._made_of = (0, 0, 0)

    @property
    def is_exact(self) -> bool:
        """True if every observation stands for itself alone."""
        return self.selection.is_exact

    def part(self, name: Hashable, make: Callable[[], PartT]) -> PartT:
        """A part that follows from all transitions, made once and kept until there are more.

        Args:
            name: of the part, and of what else it follows from.
            make: the part, which nobody changes.
        """
        buffer = self.buffer
        made_of = len(buffer), len(buffer.observations), len(buffer.episode_starts)
        if made_of != self._made_of:
            self._parts, self._made_of = {}, made_of
        if name not in self._parts:
            self._parts[name] = make()
        part: PartT = self._parts[name]
        return part
