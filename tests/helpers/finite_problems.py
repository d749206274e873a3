"""Small finite problems with known dynamics."""

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, diags_array, vstack

from rover.envs import FiniteDynamics
from rover.operators import SparseOperator


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


def known_operator(
    transition: Iterable[ArrayLike], start: ArrayLike, terminal: ArrayLike = 0.0
) -> SparseOperator:
    """The operator of matrices P_a(y | x), one per action, with a mask (S,) of terminal states."""
    matrices, start = [csr_array(matrix) for matrix in transition], np.asarray(start, np.float64)
    n_states, n_actions = len(start), len(matrices)
    end = np.repeat(np.broadcast_to(np.asarray(terminal, np.float64), n_states), n_actions)
    by_state = np.arange(n_actions * n_states).reshape(n_actions, n_states).T.ravel()
    onward = csr_array(diags_array(1.0 - end) @ vstack(matrices, format="csr")[by_state])
    onward.eliminate_zeros()
    return SparseOperator(onward, torch.from_numpy(start), end)
