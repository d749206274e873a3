"""Step sizes for policy mirror descent.

Three rules in one frozen object: after an accepted step the size is multiplied by `growth`, after a
rejected one by `shrink`, and each iteration may be tried at most 1 + `max_backtracks` times.
"""

from __future__ import annotations

from dataclasses import dataclass

from rover.errors import ConfigurationError

LARGEST_STEP = 1e12
"""Growing stops here: the policy is deterministic to the last bit long before."""


@dataclass(frozen=True)
class StepRule:
    """How the step size η moves.

    Attributes:
        initial: η of the first step, > 0.
        growth: factor after an accepted step, ≥ 1.
        shrink: factor after a rejected step, in (0, 1).
        max_backtracks: rejected tries allowed per iteration; 0 accepts every step.
        restart: whether each iteration starts again from `initial` (the paper's backtracking)
            instead of from the last accepted size.
    """

    initial: float
    growth: float = 1.0
    shrink: float = 0.25
    max_backtracks: int = 0
    restart: bool = False

    def __post_init__(self) -> None:
        if not self.initial > 0.0:
            raise ConfigurationError(f"the step size must be positive, not {self.initial!r}")
        if not self.growth >= 1.0:
            raise ConfigurationError(f"step growth must be at least 1, not {self.growth!r}")
        if not 0.0 < self.shrink < 1.0:
            raise ConfigurationError(f"step shrink must be in (0, 1), not {self.shrink!r}")
        if self.max_backtracks < 0:
            raise ConfigurationError(
                f"max_backtracks must not be negative: {self.max_backtracks!r}"
            )

    def after_accepted(self, step: float) -> float:
        """The size of the next iteration's first try."""
        if self.restart:
            return self.initial
        return min(step * self.growth, LARGEST_STEP)

    def after_rejected(self, step: float) -> float:
        """The size of the next try of the same iteration."""
        return step * self.shrink


def constant_steps(step_size: float) -> StepRule:
    """Every step of the same size, none rejected (paper, algorithm 1)."""
    return StepRule(initial=step_size)


def backtracking_steps(
    step_size: float, *, shrink: float = 0.25, max_backtracks: int = 12
) -> StepRule:
    """Each iteration from `step_size`, shrunk while the objective rises (the authors' code)."""
    return StepRule(step_size, shrink=shrink, max_backtracks=max_backtracks, restart=True)


def growing_steps(
    step_size: float, *, growth: float = 2.0, shrink: float = 0.25, max_backtracks: int = 12
) -> StepRule:
    """Geometrically growing steps, the route to a linear rate (Xiao 2022); rejected on a rise."""
    return StepRule(step_size, growth=growth, shrink=shrink, max_backtracks=max_backtracks)
