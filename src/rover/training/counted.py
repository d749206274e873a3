"""J of policies on the counted transitions of a run whose observations repeat.

Nothing is rolled out: where every pair was tried often enough, the counts are the dynamics. A pair
that was never tried may lead anywhere, so that J has bounds, which meet where no such pair matters.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.sparse import csr_array, eye_array, hstack, vstack

from rover.data import Buffer
from rover.envs import FiniteDynamics
from rover.evaluation import policy_occupancy
from rover.policies.policy import Policy
from rover.world.counts import Counts


class CountedObjective:
    """Bounds of J under the relative frequencies of a buffer's transitions.

    Args:
        buffer: transitions between observations that are states.
        discount: γ in [0, 1).
    """

    def __init__(self, buffer: Buffer, *, discount: float) -> None:
        rows, self._discount = Counts(buffer).rows(), discount
        self._observations, self._n_actions = buffer.observations.rows, buffer.n_actions
        size = len(rows.start)
        # Two states more, which are not left: where an untried pair leads, and an episode's end.
        beyond = csr_array(np.stack([rows.sink, rows.end], axis=1))
        moves, stays = csr_array(hstack([rows.onward, beyond])), eye_array(2, size + 2, k=size)
        self._dynamics = FiniteDynamics(
            transition=tuple(
                csr_array(vstack([moves[action :: self._n_actions], stays]))
                for action in range(self._n_actions)
            ),
            start=np.append(rows.start, [0.0, 0.0]),
            terminal=np.arange(size + 2) == size + 1,
        )

    @cached_property
    def uniform(self) -> tuple[float, float]:
        """Bounds of J of uniformly random actions."""
        return self.bounds(None)

    def bounds(self, policy: Policy | None) -> tuple[float, float]:
        """Least and greatest J of a policy; None: of uniformly random actions.

        With occupancies d of known states and the probability s of having taken an untried pair,
        Σ d² ≤ J ≤ Σ d² + 2 s max d + s²: what follows may be spread thinly, or be one state.
        """
        n = len(self._observations)
        tables = np.full((1, n, self._n_actions), 1.0 / self._n_actions)
        if policy is not None:
            tables = policy.tables(self._observations)
        unused = np.full((len(tables), 2, self._n_actions), 1.0 / self._n_actions)
        occupancy = policy_occupancy(
            self._dynamics, np.concatenate([tables, unused], axis=1), discount=self._discount
        )
        lost, known = float(occupancy[n]), np.delete(occupancy, n)
        least = float(known @ known)
        return least, least + 2.0 * lost * float(known.max()) + lost**2
