"""The paper's own (n+1)×(n+1) form: the oracle that everything faster is compared with.

Theorem "dual form of the gradient" applied to the augmented matrices of Proposition "structure of
the augmented operator", on raw transitions: nothing is merged, and every repeated row is there. One
row for each initial state comes after the n transitions, so that μ0 = Φᵀα0, and one for the sink at
the end. With N = n + q rows before the sink's,

    Φ̃ᵀ = [Φᵀ − φ_sink 1ᵀ, φ_sink],  G̃ = diag((K + λI)⁻¹, I, 1),  M̃_π = diag(M_π, 1),  α̃0 = (α0, 1)
    ũ  = (I − γ G̃ M̃_π)⁻¹ α̃0
    J  = (1−γ)² ũᵀ Φ̃Φ̃ᵀ ũ
    c_π = 2γ(1−γ)² G̃ (I − γ M̃_πᵀ G̃)⁻¹ Φ̃Φ̃ᵀ ũ,        [∇J](x, a) = ⟨ψ(x, a), Ψ̃ᵀ c_π⟩.

Two readings of the print are needed. M_π of the theorem is the transpose of what its formula
needs; M_ij = π(a_i | x'_j) k(x_i, x'_j), as the appendix has it. And ⟨1, ψ⟩ = 1, which few kernels
satisfy, enters only through the residual mass 1 − 1ᵀα, so the block form is the definition here.

An initial state's row has ψ = 0, and so predicts nothing. It serves as the place to which a
terminal next state restarts: there M_π holds the initial weights.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rover.operators.kernels import Kernel, cholesky_factor


@dataclass(frozen=True)
class DenseEvaluation:
    """A policy in the paper's form."""

    weights: Tensor  # (N+1,) ũ; (1−γ) ũ are the coefficients of the occupancy embedding
    sink_mass: float  # m, ⟨μ̄, φ_sink⟩ / ε²
    objective: float  # J = ‖μ̄‖²
    coefficients: Tensor  # (N+1,) c_π of Theorem 1


@dataclass(kw_only=True)
class DenseReference:
    """The paper's form of raw transitions, repetitions included."""

    inputs: Tensor  # (n, z) float64 features of x_i
    actions: Tensor  # (n,) int64 a_i
    successors: Tensor  # (n, z) float64 features of x'_i
    terminated: Tensor  # (n,) bool, whether the episode terminated on arrival in x'_i
    starts: Tensor  # (q, z) float64 features of the initial states
    start_weights: Tensor  # (q,) float64 their weights, sum 1
    kernel: Kernel
    n_actions: int
    ridge: float  # λ > 0
    discount: float
    sink_norm: float  # ε
    states: Tensor = field(init=False)  # (N, z) the rows of Φ: successors, then initial states
    factor: Tensor = field(init=False)  # (n, n) Cholesky factor of K + λI
    similarity: Tensor = field(init=False)  # (n, N) H_ij = k(x_i, x'_j)
    gram: Tensor = field(init=False)  # (N+1, N+1) Φ̃Φ̃ᵀ

    def __post_init__(self) -> None:
        states = torch.cat([self.successors, self.starts])
        assert states.dtype == torch.float64
        same_action = self.actions[:, None] == self.actions[None, :]
        matrix = self.kernel(self.inputs, self.inputs) * same_action
        matrix.diagonal().add_(self.ridge)
        n_rows, sink = len(states), self.sink_norm**2
        gram = states.new_zeros(n_rows + 1, n_rows + 1)
        gram[:n_rows, :n_rows] = self.kernel(states, states) + sink
        gram[n_rows, :n_rows] = gram[:n_rows, n_rows] = -sink
        gram[n_rows, n_rows] = sink
        self.states, self.gram = states, gram
        self.factor = cholesky_factor(matrix, "K + λI of the paper's form")
        self.similarity = self.kernel(self.inputs, states)

    def evaluate(self, policy_probs: Tensor) -> DenseEvaluation:
        """Theorem 1 for a policy (N, A) π(a | x'_j), the initial states last."""
        n, n_rows = self.similarity.shape
        coupling = policy_probs.new_zeros(n_rows + 1, n_rows + 1)  # M̃_π
        coupling[:n, :n_rows] = self.similarity * policy_probs[:, self.actions].T
        ended = torch.nonzero(self.terminated)[:, 0]
        coupling[:n, ended] = 0.0
        coupling[n:n_rows, ended] = self.start_weights[:, None]
        coupling[n_rows, n_rows] = 1.0

        system = self._apply_inverse_gram(coupling).mul_(-self.discount)
        system.diagonal().add_(1.0)
        factors = torch.linalg.lu_factor(system)
        start = torch.cat([self.start_weights.new_zeros(n), self.start_weights])
        start = torch.cat([start, start.sum()[None]])
        weights = torch.linalg.lu_solve(*factors, start[:, None])[:, 0]
        gram_weights = self.gram @ weights
        scale = 1.0 - self.discount
        # (I − γ M̃ᵀG̃) is the transpose of the matrix factored above, because G̃ is symmetric.
        adjoint = torch.linalg.lu_solve(*factors, gram_weights[:, None], adjoint=True)[:, 0]
        return DenseEvaluation(
            weights=weights,
            sink_mass=scale * float(weights[-1] - weights[:-1].sum()),
            objective=scale**2 * float(weights @ gram_weights),
            coefficients=self._apply_inverse_gram(adjoint).mul_(2.0 * self.discount * scale**2),
        )

    def gradient(self, coefficients: Tensor, features: Tensor) -> Tensor:
        """[∇J](x, a) = ⟨ψ(x, a), Ψ̃ᵀ c⟩, (m, A), at `features` (m, z), c = `coefficients` (N+1,).

        The sink's row contributes the same number everywhere, 2γ ε² m for the c of one policy: the
        cost of staying in the sink. Formulas on the anchors leave it out, and a softmax does not
        see it: for accumulated C = Σ_t η_t c_t the policy is
        π(a|x) = softmax_a(−⟨ψ(x, ·), Ψ̃ᵀ C⟩).
        """
        return self._sum_by_action(coefficients, self.kernel(features, self.inputs))

    def mirror_descent_step(
        self, coefficients: Tensor, step_size: float
    ) -> tuple[Tensor, DenseEvaluation]:
        """One step of the paper's policy mirror descent (eq. pmd_simplified) from C (N+1,).

        Returns the next C, and the evaluation of the policy that `coefficients` stood for; zeros
        are the uniform policy.
        """
        logits = self._sum_by_action(coefficients, self.similarity.T).neg_()
        evaluation = self.evaluate(torch.softmax(logits, dim=1))
        return coefficients + step_size * evaluation.coefficients, evaluation

    def _apply_inverse_gram(self, right: Tensor) -> Tensor:
        """G̃ b for b (N+1,) or (N+1, q)."""
        n = len(self.actions)
        columns = right.reshape(len(right), -1)
        solved = torch.cholesky_solve(columns[:n], self.factor)
        return torch.cat([solved, columns[n:]]).reshape(right.shape)

    def _sum_by_action(self, coefficients: Tensor, similarity: Tensor) -> Tensor:
        """Σ_{i: a_i = a} `similarity`[:, i] c_i + c_sink, (m, A), for `similarity` (m, n)."""
        n = len(self.actions)
        by_action = similarity.new_zeros(n, self.n_actions)
        by_action[torch.arange(n, device=similarity.device), self.actions] = coefficients[:n]
        return similarity @ by_action + coefficients[-1]
