"""The conditional mean embedding of the transitions, with the sink by residual mass.

One kernel ridge regression per action. With ψ(x, a) = φ(x) ⊗ e_a the Gram matrix of the paper's
estimator (eq. cme_estimator) is block-diagonal over actions, and with repeated pairs (x, a) merged
into counts c it reads, for the pairs of action a,

    α_a(x) = (K_a + λ diag(1/c))⁻¹ k_a(x),        P_a[:, j] = S_aᵀ α_a(y_j),

where S_a holds the mean next state of each pair as weights on the anchors. Whatever part of a
column does not reach the anchors, 1 − 1ᵀP_a[:, j], is the paper's sink mass (Proposition
"prediction of the augmented estimator"); written through this residual it needs no normalised
features and holds for every kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rover.errors import SingularSolveError, require_finite
from rover.operators.kernels import Kernel, Linear, cholesky_factor
from rover.operators.support import Support


@dataclass(frozen=True)
class _ActionRegression:
    """Ridge regression of one action: regressors ρ(x) (q,) to weights Sᵀ R F⁻¹ ρ(x) on the anchors,
    with a factored matrix F. In the dual form R = I and ρ(x) = k_a(x) over the action's own pairs;
    in the primal form ρ is an explicit feature vector shared by all actions."""

    rows: slice
    factor: Tensor
    weighted: Tensor | None


# Of an action's pairs, by a name for messages, with the block of P that it fills.
_Regress = Callable[[slice, str, Tensor], _ActionRegression]


@dataclass(frozen=True)
class TransitionModel:
    """Transition operator estimated on a support.

    Attributes:
        support: the pairs and the anchors.
        kernel: the kernel on features.
        anchor_features: (s, z) features of the anchors.
        gram: (s, s) K_ij = k(y_i, y_j).
        transition: (A, s, s); column j of `transition[a]` is where action a leads from anchor j.
        regressions: one per action; None for an action without data (all its mass sinks).
        basis: (u, z) features that regressors compare with, ρ(x) = k(x, basis); None for a linear
            kernel in feature space, where ρ(x) = φ(x).
        basis_rows: for the dual form, (p,) the row of `basis` that each pair's input is; else None.
        whitening: for Nyström anchors, the Cholesky factor L (q, q) of k(basis, basis), because
            their regressions are fitted on L⁻¹ ρ(x); else None.
    """

    support: Support
    kernel: Kernel
    anchor_features: Tensor
    gram: Tensor
    transition: Tensor
    regressions: tuple[_ActionRegression | None, ...]
    basis: Tensor | None = None
    basis_rows: Tensor | None = None
    whitening: Tensor | None = None

    def regressors(self, features: Tensor) -> Tensor:
        """ρ(x) (n, q) for `features` (n, z)."""
        return features if self.basis is None else self.kernel(features, self.basis)

    def coefficients(self, anchor_values: Tensor) -> Tensor:
        """C (q, A) such that ρ(x)ᵀ C[:, a] = Σ_j v_j (B_a ρ(x))_j for `anchor_values` v.

        This is how anything that is linear in the predicted next state extends from the anchors to
        every x: a policy's logits, an action value, the mass that stays on the anchors.

        Args:
            anchor_values: (s,) one number per anchor.
        """
        # From the right: one vector is carried through the factors, and no matrix of all pairs.
        targets = self.support.successor @ anchor_values
        width = self.anchor_features.shape[1] if self.basis is None else len(self.basis)
        # Actions without data keep zeros: no mass returns from them, and all of it sinks.
        result = targets.new_zeros(width, len(self.regressions))
        for action, regression in enumerate(self.regressions):
            if regression is None:
                continue
            right = targets[regression.rows]  # F⁻¹ Rᵀ of one number per pair
            if regression.weighted is not None:
                right = regression.weighted.T @ right
            solved = torch.cholesky_solve(right[:, None], regression.factor)[:, 0]
            if self.basis_rows is None:
                result[:, action] = solved
            else:
                result[self.basis_rows[regression.rows], action] = solved
        if self.whitening is not None:
            result = torch.linalg.solve_triangular(self.whitening.T, result, upper=True)
        return result


def fit_transition_model(
    features: Tensor, support: Support, kernel: Kernel, *, n_actions: int, ridge: float
) -> TransitionModel:
    """Fit one ridge regression per action and tabulate it on the anchors.

    A linear kernel with fewer features than the largest action has pairs is solved in feature
    space, a Nyström support on its anchors, everything else in the dual; the three give the same
    numbers where they apply together.

    Args:
        features: (N, z) float64 features of the table of observations.
        support, kernel, n_actions: the pairs and anchors, the kernel of the features, A.
        ridge: λ > 0, on counts: a pair seen c times is shrunk by c / (c + λ) if it stands alone.

    Raises:
        NonFiniteError, SingularSolveError: from the factorisations.
    """
    require_finite(features, "the features of the observations", "look at the encoder's training")
    anchor_features = features[torch.from_numpy(support.anchors)]
    # The smaller of the two systems: features, or pairs of the action that has most.
    largest_block = int(np.bincount(support.pair_actions).max())
    is_narrow = isinstance(kernel, Linear) and features.shape[1] < largest_block
    if is_narrow or not support.exact:
        nystrom = None if is_narrow else kernel
        form, regress = _primal(features, support, anchor_features, nystrom, ridge)
    else:
        form, regress = _dual(features, support, anchor_features, kernel, ridge)
    # P (A, s, s) on the anchors, in the order of memory that the occupancy works in: [j][a][i].
    n_anchors = len(support.anchors)
    transition = support.start.new_zeros(n_anchors, n_actions, n_anchors).permute(1, 2, 0)
    bounds = np.searchsorted(support.pair_actions, np.arange(n_actions + 1)).tolist()
    regressions = tuple(
        regress(slice(*pairs), f"the ridge regression of action {action}", transition[action])
        if pairs[0] < pairs[1]  # pairs are sorted by action; one without any leads to the sink
        else None
        for action, pairs in enumerate(itertools.pairwise(bounds))
    )
    # After termination the process starts anew, whatever a regression says of that state.
    if support.terminal.any():
        ended = torch.from_numpy(support.terminal)
        transition[:, :, ended] = support.start[None, :, None]
    require_finite(transition, "the estimated transition operator", "try a larger ridge")
    gram = kernel(anchor_features, anchor_features)
    return TransitionModel(support, kernel, anchor_features, gram, transition, regressions, **form)


def _dual(
    features: Tensor, support: Support, anchor_features: Tensor, kernel: Kernel, ridge: float
) -> tuple[dict[str, Tensor], _Regress]:
    """(K_a + λ diag(1/c)) α = k_a(y): r_a × r_a per action."""
    # Inputs repeat under several actions: similarities are of distinct ones, and rows are gathered.
    basis_indices, basis_rows = np.unique(support.pair_inputs, return_inverse=True)
    basis = features[torch.from_numpy(basis_indices)]
    cross, basis_gram = kernel(basis, anchor_features), kernel(basis, basis)
    row_of_pair = torch.from_numpy(basis_rows.reshape(-1))
    # λ is on counts: twice as many tries of a pair halve what it is shrunk by.
    shrinkage = ridge / support.pair_counts

    def regress(rows: slice, name: str, out: Tensor) -> _ActionRegression:
        inputs, successor = row_of_pair[rows], support.successor[rows]
        if rows.stop - rows.start == len(basis):  # every input took this action, in basis order
            matrix, at_anchors = basis_gram.clone(), cross
        else:
            at_anchors = cross.index_select(0, inputs)
            matrix = basis_gram.index_select(0, inputs).index_select(1, inputs)
        # λ/c, since a pair seen c times is one row that stands for c equal ones.
        matrix.diagonal().add_(shrinkage[rows])
        factor = cholesky_factor(matrix, name)
        solved = torch.cholesky_solve(at_anchors, factor)
        torch.mm(solved.T, successor, out=out.T)
        return _ActionRegression(rows, factor, weighted=None)

    return {"basis": basis, "basis_rows": row_of_pair}, regress


def _primal(
    features: Tensor,
    support: Support,
    anchor_features: Tensor,
    nystrom: Kernel | None,
    ridge: float,
) -> tuple[dict[str, Tensor], _Regress]:
    """(Rᵀ diag(c) R + λI) per action: R = Φ, or R = K_nm L⁻ᵀ with K_mm = L Lᵀ for Nyström anchors.

    In the coordinates L⁻¹ k_m(x) the Nyström kernel is a plain inner product. Solving there instead
    of in K_nmᵀ K_nm + λ K_mm, the same system, does not square the condition number of K_mm.
    """
    inputs, form = features[torch.from_numpy(support.pair_inputs)], dict[str, Tensor]()
    regressors, at_anchors = inputs, anchor_features.T
    if nystrom is not None:
        # Each point once, though it may be an anchor both as a terminal and an ordinary state.
        basis = features[torch.from_numpy(np.unique(support.anchors))]
        name = "the Gram matrix of the Nyström anchors in the regression"
        whitening = cholesky_factor(nystrom(basis, basis), name, is_gram=True)

        def whitened(points: Tensor) -> Tensor:
            similar = nystrom(basis, points)
            solved: Tensor = torch.linalg.solve_triangular(whitening, similar, upper=False)
            return solved

        regressors, at_anchors = whitened(inputs).T.contiguous(), whitened(anchor_features)
        form = {"basis": basis, "whitening": whitening}

    def regress(rows: slice, name: str, out: Tensor) -> _ActionRegression:
        weighted = support.pair_counts[rows, None] * regressors[rows]
        matrix = weighted.T @ regressors[rows]
        matrix.diagonal().add_(ridge)
        factor = cholesky_factor(matrix, name)
        # Sᵀ(RF⁻¹), so that the many pairs are summed before the anchors multiply.
        towards = torch.cholesky_solve(weighted.T @ support.successor[rows], factor)  # (q, s)
        torch.mm(at_anchors.T, towards, out=out.T)
        return _ActionRegression(rows, factor, weighted=weighted)

    return form, regress


@dataclass(frozen=True)
class _LuFactor:
    """LU factors of a square matrix M (s, s)."""

    lu: Tensor
    pivots: Tensor

    def solve(self, right: Tensor, *, transposed: bool = False) -> Tensor:
        """M⁻¹ b for b (s,), or M⁻ᵀ b."""
        solution: Tensor = torch.linalg.lu_solve(
            self.lu, self.pivots, right[:, None], adjoint=transposed
        )
        return solution[:, 0]


class DenseOperator:
    """Transition operator in dense matrices.

    Args:
        transition: (A, s, s), columns as in :class:`TransitionModel`.
        gram: (s, s) kernel matrix of the anchors.
    """

    def __init__(self, transition: Tensor, gram: Tensor) -> None:
        self.transition = transition
        self.gram = gram
        self.n_actions, self.n_states, _ = transition.shape
        # (s, A, s), [j, a, i] is P_a[i, j]. In this order both products below run along memory:
        # P_π is a batch of one A-vector times an (A, s) block per state, and every P_aᵀ v one
        # matrix-vector product. A fitted model is stored so already, and nothing is copied.
        self._from_state = transition.permute(2, 0, 1).contiguous()

    def resolvent(self, policy_probs: Tensor, discount: float) -> _LuFactor:
        """LU factors of I − γ P_π for `policy_probs` (s, A)."""
        # −γ P_π = −γ Σ_a P_a diag(π(a|·)) at once: scaling (s, A) costs less than scaling (s, s),
        # and strided rows ten times as much.
        rows = policy_probs.mul(-discount).contiguous()[:, None, :]
        matrix = torch.bmm(rows, self._from_state)[:, 0, :].T
        matrix.diagonal().add_(1.0)
        lu, pivots, info = torch.linalg.lu_factor_ex(matrix)
        if int(info) > 0:
            raise SingularSolveError(
                f"I − γ P_π is singular (pivot {int(info)} of {self.n_states} is zero); "
                "try a smaller discount, a larger ridge, or a sharper kernel"
            )
        # The pivots alone: a number that is not finite reaches the diagonal of the factors.
        if not math.isfinite(float(lu.diagonal().sum())):
            require_finite(matrix, "I − γ P_π", "check the features and the kernel's bandwidth")
            raise SingularSolveError(
                "I − γ P_π overflowed while it was factored; try a larger ridge"
            )
        return _LuFactor(lu, pivots)

    def action_values(self, adjoint: Tensor) -> Tensor:
        """P_aᵀ `adjoint` for every action: (s,) → (s, A)."""
        products = torch.mv(self._from_state.view(-1, self.n_states), adjoint)
        return products.view(self.n_states, self.n_actions)

    def apply_gram(self, weights: Tensor) -> Tensor:
        """K `weights`: (s,) → (s,)."""
        return torch.mv(self.gram, weights)
