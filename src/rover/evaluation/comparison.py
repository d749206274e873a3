"""A policy beside the uniform and the optimal one on a finite problem.

Exact under the known dynamics, but for two sampled figures: the coverage of a set of episodes and
the steps until every state was seen.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rover.envs import FiniteMDP
from rover.evaluation.finite import (
    TARGET_COVERAGE,
    FiniteEvaluator,
    sample_steps_to_full_coverage,
)
from rover.evaluation.optimum import FloatArray


def mean_interval(values: NDArray[Any]) -> dict[str, float]:
    """The ``mean`` of independent `values` (n,), n ≥ 2: ``low`` to ``high``, 95% by Student's t."""
    mean = float(np.mean(values))
    # Student's t and not the normal: a handful of repeats does not tell its own spread.
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5
    half = float(stats.t.ppf(0.975, len(values) - 1)) * error
    return {"mean": mean, "low": mean - half, "high": mean + half}


def _quartiles(steps: NDArray[np.int64]) -> dict[str, float | int | None]:
    """``lower``, ``median`` and ``upper`` of `steps` (n,), and ``n_given_up``, which are −1 there.

    What was given up counts as longer than everything else, so the quartiles are those of the
    uncensored times wherever they can be known, and None elsewhere.
    """
    # Censored, not dropped: leaving out what was given up would flatter slow policies.
    ordered = np.where(steps < 0, np.inf, steps)
    values = np.quantile(ordered, [0.25, 0.5, 0.75], method="inverted_cdf")
    lower, median, upper = (float(v) if np.isfinite(v) else None for v in values)
    n_given_up = int(np.count_nonzero(steps < 0))
    return {"lower": lower, "median": median, "upper": upper, "n_given_up": n_given_up}


def compare_finite(
    problem: FiniteMDP,
    policy_probs: FloatArray,
    *,
    discount: float,
    horizon: int,
    n_episodes: int,
    n_repeats: int,
    max_steps: int,
    with_optimum: bool,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Measure a policy beside the uniform and the optimal one.

    Args:
        problem: the finite problem.
        policy_probs: (S, A), or (K, S, A) for a mixture, of which each episode draws one uniformly;
            rows sum to 1.
        discount: γ of the exact occupancy, in [0, 1).
        horizon: episodes are truncated after so many steps.
        n_episodes: episodes of one coverage figure.
        n_repeats: independent repeats of each sampled figure, ≥ 2.
        max_steps: steps after which waiting for full coverage is given up.
        with_optimum: whether to solve for J*, a quadratic program over all state-action pairs.
        rng: source of randomness; each policy draws from a stream of its own.

    Returns:
        ``n_states``, and the figures of ``policy``, of ``uniform`` random actions and of the
        ``optimal`` policy, whose objective is J* (None if not asked for): ``coverage``, the share
        of the states that a set of episodes visits together, in [0, 1], as of
        :func:`mean_interval`; ``p_coverage_95``, the share of the repeats in which it is at least
        95%; ``steps_to_full_coverage``, environment steps of resampling until every state was
        seen, as of :func:`_quartiles`; and :meth:`FiniteEvaluator.exact_figures`.

    Raises:
        SingularSolveError: the solver for J* did not reach its tolerance.
    """
    evaluator = FiniteEvaluator(problem, discount=discount, horizon=horizon, n_episodes=n_episodes)

    def measure(probs: FloatArray, stream: np.random.Generator) -> dict[str, Any]:
        exact = evaluator.exact_figures(probs, with_optimum=with_optimum)
        shares, _ = evaluator.coverage(probs, n_repeats, stream)
        steps = sample_steps_to_full_coverage(
            problem.dynamics,
            probs,
            horizon=horizon,
            max_steps=max_steps,
            n_repeats=n_repeats,
            rng=stream,
        )
        return {
            "coverage": mean_interval(shares),
            "p_coverage_95": float((shares >= TARGET_COVERAGE).mean()),
            "steps_to_full_coverage": _quartiles(steps),
            **exact,
        }

    # A stream for each policy: leaving the optimum out must not change the others' figures.
    streams = rng.spawn(3)
    return {
        "n_states": evaluator.n_states,
        "policy": measure(policy_probs, streams[0]),
        "uniform": measure(evaluator.uniform_policy, streams[1]),
        "optimal": measure(evaluator.optimum.policy_probs, streams[2]) if with_optimum else None,
    }
