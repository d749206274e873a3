"""Propositions of the paper, checked on numbers.

    python experiments/propositions.py --out docs/results/paper

Operators are explicit matrices here, in the paper's own symbols; no code of :mod:`rover.operators`
is used, so that the page is a second opinion on it.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats
from scipy.linalg import block_diag

from rover.storage import replace_file
from rover_bench.measure import describe_provenance, provenance
from rover_bench.report import Report, markdown_table
from rover_bench.study import Study

_Matrix = NDArray[Any]

_TOLERANCE: Final = 1e-8
_GAMMA, _RIDGE, _EPSILON = 0.9, 1e-2, 0.3
_N_STATES, _N_ACTIONS, _N_DATA = 6, 3, 25
_EXPONENTS: Final = (0.25, 0.5, 0.75, 1.5)
# 1 − γ of the fits.
_HORIZONS: Final = np.logspace(-12, -10, 9)

# The page without its numbers: what is claimed, and how it is checked.
_STUDY: Final = Study.make(
    tomllib.loads((Path(__file__).parent / "shared" / "propositions.toml").read_text("utf-8")),
)
_CLAIMS: Final = {name: texts["title"] for name, texts in _STUDY.axes["claim"].items()}


@dataclass(frozen=True)
class _Model:
    """A transition model T = Φᵀ G Ψ and a policy operator P, as matrices; μ₀ = Φᵀ α₀.

    Attributes:
        phi, psi, weights: Φ (n, z), Ψ (n, zA) and G (n, n).
        policy: P (zA, z).
        start: α₀ (n,).
    """

    phi: _Matrix
    psi: _Matrix
    weights: _Matrix
    policy: _Matrix
    start: _Matrix

    @property
    def transition(self) -> _Matrix:
        return self.phi.T @ self.weights @ self.psi

    @property
    def coupling(self) -> _Matrix:
        """M = Ψ P Φᵀ."""
        return self.psi @ self.policy @ self.phi.T

    @property
    def resolvent(self) -> _Matrix:
        return np.linalg.inv(np.eye(len(self.policy.T)) - _GAMMA * self.transition @ self.policy)

    @property
    def embedding(self) -> _Matrix:
        """μ(π)."""
        return (1 - _GAMMA) * self.resolvent @ self.phi.T @ self.start

    @property
    def primal(self) -> _Matrix:
        """2γ(1 − γ)² T*R*Rμ₀, which the gradient with respect to P has Rμ₀ beside."""
        unit = self.embedding / (1 - _GAMMA)
        return 2 * _GAMMA * (1 - _GAMMA) ** 2 * self.transition.T @ self.resolvent.T @ unit

    def dual(self, coupling: _Matrix) -> _Matrix:
        """Ψᵀc of Theorem 1, with this M."""
        weights, eye = self.weights, np.eye(len(self.weights))
        right = np.linalg.solve(eye - _GAMMA * weights @ coupling, self.start)
        left = np.linalg.solve(eye - _GAMMA * coupling.T @ weights, self.phi @ self.phi.T @ right)
        return 2 * _GAMMA * (1 - _GAMMA) ** 2 * self.psi.T @ weights @ left

    def objective(self, policy: _Matrix) -> complex:
        """J with another P; analytic, so that a complex step is its derivative."""
        mu = replace(self, policy=policy).embedding
        return complex(mu @ mu)


def _draw(rng: np.random.Generator) -> tuple[_Model, _Model, _Matrix, _Matrix]:
    """A random model, the same with the sink, φ̄ of the sink, and the functional 1.

    All live in the space with the sink; states are zero in its coordinate, the last.
    """
    z, n, n_actions = _N_STATES, _N_DATA, _N_ACTIONS
    features = np.eye(z, z + 1) + np.append(rng.random((z, z)), np.zeros((z, 1)), axis=1)
    features /= features.sum(axis=1, keepdims=True)
    sink = np.append(np.zeros(z), _EPSILON)
    one = np.tile(np.append(np.ones(z), 1 / _EPSILON), n_actions)  # ψ is ordered by action
    states, actions, successors = (rng.integers(k, size=n) for k in (z, n_actions, z))
    every = np.vstack([features, sink])
    acted = np.hstack([every * p[:, None] for p in rng.dirichlet(np.ones(n_actions), z + 1).T])
    psi = np.einsum("na,nz->naz", np.eye(n_actions)[actions], features[states]).reshape(n, -1)
    weights = np.linalg.inv(psi @ psi.T + _RIDGE * np.eye(n))
    policy, start = np.linalg.solve(every, acted).T, np.eye(n + 1)[0]
    plain = _Model(features[successors], psi, weights, policy, start[:n])
    phi = np.vstack([plain.phi - sink, sink])
    wide = block_diag(weights, np.eye(1))
    start[n] = 1.0
    return plain, _Model(phi, np.vstack([psi, one]), wide, policy, start), sink, one


def _check_claims(seed: int) -> dict[str, float]:
    """The relative error of every claim on one random problem."""
    rng = np.random.default_rng(seed)
    plain, augmented, sink, one = _draw(rng)
    errors: dict[str, float] = {}

    def note(name: str, computed: _Matrix | complex, claimed: _Matrix | complex) -> None:
        error = np.abs(np.asarray(computed) - claimed).max()
        errors[name] = float(error / max(np.abs(np.asarray(claimed)).max(), 1e-300))

    kernel = rng.dirichlet(np.ones(_N_STATES), _N_STATES)  # x → y under some policy
    occupancy, term = np.zeros(_N_STATES), (1 - _GAMMA) * rng.dirichlet(np.ones(_N_STATES))
    start = term / (1 - _GAMMA)
    while term.sum() > 1e-17:
        occupancy, term = occupancy + term, _GAMMA * term @ kernel
    square, gap = occupancy @ occupancy, occupancy - 1 / _N_STATES
    note("tabular", gap @ gap, square - 1 / _N_STATES)
    solved = np.linalg.solve(np.eye(_N_STATES) - _GAMMA * kernel.T, start)
    note("resolvent", occupancy, (1 - _GAMMA) * solved)
    for name, model in (("primal", plain), ("augmented", augmented)):
        direction = rng.normal(size=model.policy.shape)
        step = model.objective(model.policy + 1e-30j * direction).imag / 1e-30
        gradient = model.primal if model is plain else model.dual(model.coupling)
        note(name, gradient @ direction @ model.embedding / (1 - _GAMMA), step)
    # The paper prints M transposed in Theorem 2: both are tried, and one must not hold. A complex
    # step, as above, is a derivative without the cancellation of differences.
    note("dual", plain.dual(plain.coupling), plain.primal)
    note("printed", plain.dual(plain.coupling.T), plain.primal)
    transition = np.outer(sink, one) + (plain.phi - sink).T @ plain.weights @ plain.psi
    new = rng.dirichlet(np.ones(len(one)))  # a pair that is not in the data
    new[_N_STATES :: _N_STATES + 1] = 0.0
    new /= new.sum()
    alpha = plain.weights @ plain.psi @ new
    note("prediction", transition @ new, plain.phi.T @ alpha + (1 - alpha.sum()) * sink)
    note("sandwich", augmented.transition, transition)
    note("block", augmented.coupling, block_diag(plain.coupling, np.eye(1)))
    note("absorbing", transition @ augmented.policy @ sink, sink)
    mu = augmented.embedding
    mass = mu @ sink / _EPSILON**2
    note("decomposition", mu @ mu, mu[:-1] @ mu[:-1] + _EPSILON**2 * mass**2)
    note("mass", mass, 1 - mu[:-1].sum())
    return errors


def _riesz_energies(exponent: float, rest: float) -> tuple[float, float]:
    """The Riesz energy of the ballistic and of the diffusive policy on the half line, exactly.

    Both start at 0; the walk is reflected there. The occupancies are (1 − γ)γ^x, and A for x = 0
    and 2Aλ^x for x > 0, with A = (1 − λ) / (1 + λ). The kernel is |x − y|^−s, and 1 for x = y,
    where the paper's is infinite.

    Args:
        exponent: s in (0, 2), not 1.
        rest: 1 − γ > 0.
    """
    gamma = 1 - rest
    root = np.sqrt(rest * (1 + gamma))
    walk = (1 - root) / gamma
    scale = rest / root
    ballistic = rest / (2 - rest) * (1 + 2 * _polylogarithm(exponent, -np.log1p(-rest)))
    decay = np.log1p(-rest) - np.log1p(-root)  # −log λ, without cancellation
    pairs = 2 * scale**2 + 4 * scale**2 * walk**2 / -np.expm1(-2 * decay)
    diffusive = pairs - scale**2 + 2 * pairs * _polylogarithm(exponent, decay)
    return float(ballistic), float(diffusive)


def _polylogarithm(exponent: float, decay: float) -> float:
    """Σ_k k^−s e^−ck: the first terms, and the integral over the others by the midpoint rule."""
    k, a = np.arange(1, 10_001), 2 - exponent
    x = decay * (k[-1] + 0.5)
    upper = special.gamma(a) * special.gammaincc(a, x) - x ** (a - 1) * np.exp(-x)
    return float((k**-exponent * np.exp(-decay * k)).sum() + decay ** (1 - a) * upper / (a - 1))


def _fit_exponents(exponent: float) -> list[tuple[float, float]]:
    """Exponents of 1 − γ in both energies: least squares, and half of the 95% interval."""
    energies = np.array([_riesz_energies(exponent, rest) for rest in _HORIZONS])
    fits = [stats.linregress(np.log(_HORIZONS), np.log(column)) for column in energies.T]
    width = float(stats.t.ppf(0.975, len(_HORIZONS) - 2))
    return [(float(fit.slope), float(width * fit.stderr)) for fit in fits]


def check_propositions(out: Path, *, seeds: Sequence[int], command: str = "") -> Report:
    """Check every claim on random problems, one for each seed, and write a page and a CSV file."""
    errors = [_check_claims(seed) for seed in seeds]
    worst = {name: max(found[name] for found in errors) for name in _CLAIMS}
    lines = [
        [_CLAIMS[name], f"{error:.1e}", "holds" if error < _TOLERANCE else "**does not hold**"]
        for name, error in worst.items()
    ]
    rows: list[list[object]] = [[_CLAIMS[name], 0, error, None] for name, error in worst.items()]
    energies = []
    for s in _EXPONENTS:
        for policy, claimed, (slope, width) in zip(
            ("ballistic", "diffusive"), (s, s / 2), _fit_exponents(s), strict=True
        ):
            holds = "holds" if abs(slope - claimed) < 0.01 else "**does not hold**"
            energies.append([policy, f"{s:g}", f"{claimed:g}", f"{slope:.4f} ± {width:.4f}", holds])
            rows.append([f"energy, {policy}, s = {s:g}", claimed, slope, width])
    heads = ["claim", "claimed", "measured", "half of the 95% interval"]
    text = pd.DataFrame(rows, columns=heads, dtype=object).to_csv(index=False, lineterminator="\n")
    introduction = _STUDY.introduction.format(
        n_problems=len(seeds),
        n_states=_N_STATES,
        n_actions=_N_ACTIONS,
        n_data=_N_DATA,
        gamma=_GAMMA,
        ridge=_RIDGE,
        epsilon=_EPSILON,
        claims=markdown_table(["claim", "error", ""], lines),
        n_horizons=len(_HORIZONS),
        least=_HORIZONS[0],
        greatest=_HORIZONS[-1],
        energies=markdown_table(["policy", "s", "claimed", "fitted", ""], energies, left=1),
    )
    study = _STUDY.model_copy(update={"introduction": introduction})
    facts = tuple(describe_provenance([provenance(jobs=1)]))
    report = Report(study, facts=facts, command=command)
    files = (out / "propositions.md", out / "propositions.csv")
    for path, content in zip(files, (report.page(), text), strict=True):
        replace_file(path, content.encode())
    return replace(report, files=files)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Propositions of the paper, on numbers.")
    # Random problems of one size: a claim about matrices holds of all of them or of none.
    parser.add_argument("--seeds", nargs="+", type=int, default=range(100, 200))
    parser.add_argument("--out", type=Path, default=Path("results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    command = f"python experiments/propositions.py --out {options.out}"
    print(*check_propositions(options.out, seeds=options.seeds, command=command).files, sep="\n")


if __name__ == "__main__":
    main()
