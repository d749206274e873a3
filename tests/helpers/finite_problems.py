"""Small finite problems with known dynamics."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from rover.envs import FiniteDynamics


def finite(
    transition: Iterable[ArrayLike | csr_array], start: ArrayLike, *terminal: int
) -> FiniteDynamics:
    """Dynamics of matrices P_a(y | x), one per action, with these terminal states."""
    start = np.asarray(start, np.float64)
    ends = np.isin(np.arange(len(start)), terminal)
    return FiniteDynamics(tuple(csr_array(matrix) for matrix in transition), start, ends)


def random_matrices(
    rng: np.random.Generator, n_states: int, n_actions: int, concentration: float = 1.0
) -> NDArray[np.float64]:
    """(A, S, S) transition matrices."""
    return rng.dirichlet(np.full(n_states, concentration), (n_actions, n_states))
