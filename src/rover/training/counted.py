"""J of policies on the counted transitions of a run whose observations repeat.

Nothing is rolled out: where every pair was tried often enough, the counts are the dynamics. A pair
that was never tried may lead anywhere, so that J has bounds, which meet where no such pair matters.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from scipy.sparse import coo_array, csr_array

from rover.data import Buffer
from rover.envs import FiniteDynamics
from rover.evaluation import policy_occupancy
from rover.planning.counts import Counts
from rover.policies.policy import Policy


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
        lost, ended = size, size + 1
        pairs = np.arange(len(rows.sink))
        onward = coo_array(rows.onward)
        begins = np.concatenate([onward.coords[0], pairs, pairs])
        to = np.concatenate([onward.coords[1], np.full(len(pairs), lost)])
        to = np.concatenate([to, np.full(len(pairs), ended)])
        share = np.concatenate([onward.data, rows.sink, rows.end])

        def of_action(action: int) -> csr_array:
            mine = (begins % self._n_actions == action) & (share > 0.0)
            stays = np.array([lost, ended])
            return csr_array(
                (
                    np.append(share[mine], [1.0, 1.0]),
                    (
                        np.append(begins[mine] // self._n_actions, stays),
                        np.append(to[mine], stays),
                    ),
                ),
                shape=(size + 2, size + 2),
            )

        self._dynamics = FiniteDynamics(
            transition=tuple(map(of_action, range(self._n_actions))),
            start=np.append(rows.start, [0.0, 0.0]),
            terminal=np.arange(size + 2) == ended,
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
