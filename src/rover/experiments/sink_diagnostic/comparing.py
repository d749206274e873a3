"""Which settings are compared, and running them side by side."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from rover.experiments.sink_diagnostic.report import Comparison
from rover.experiments.sink_diagnostic.rounds import DiagnosticSettings, Rounds, run_rounds

SWEEP_NORMS = (0.0, 0.01, 0.05, 0.1, 0.2, 1.0, 10.0)

Setting = tuple[str, DiagnosticSettings, float]
"""A label, settings and a sink norm."""


def settings_to_compare(
    settings: DiagnosticSettings, sink_norm: float, *, sweep: bool
) -> list[Setting]:
    """Without and with the sink; with `sweep` also other norms, and the same at other settings."""
    if not sweep:
        return [("as above", settings, 0.0), ("as above", settings, sink_norm)]
    learned = replace(settings, features="learned")
    half = max(1, settings.n_episodes // 2)
    others = [
        (f"{half} episodes per round", replace(settings, n_episodes=half)),
        ("no uniform actions", replace(settings, exploration_epsilon=0.0)),
        ("50 mirror-descent steps", replace(settings, mirror_steps=50)),
    ]
    return [
        *(("as above", settings, norm) for norm in sorted({*SWEEP_NORMS, sink_norm})),
        *((label, other, norm) for label, other in others for norm in (0.0, sink_norm, 1.0)),
        *(("learned features, linear kernel", learned, norm) for norm in (0.0, sink_norm)),
    ]


def compare(
    wanted: Sequence[Setting],
    *,
    seeds: Sequence[int],
    jobs: int,
    report: Callable[[str], None],
) -> list[Comparison]:
    """Run every setting for every seed.

    Args:
        wanted: the settings.
        seeds: of each.
        jobs: processes side by side, ≥ 1.
        report: receives one line when all seeds of a setting are done.
    """
    every = list(itertools.product(wanted, seeds))
    context = multiprocessing.get_context("spawn")
    comparisons: list[Comparison] = []
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        done = pool.map(_rounds_of, every)  # in the order of `every`
        for label, settings, norm in wanted:
            rounds = tuple(itertools.islice(done, len(seeds)))
            comparison = Comparison(label, settings, norm, tuple(seeds), rounds)
            comparisons.append(comparison)
            report(
                f"[{len(comparisons)}/{len(wanted)}] {label}, ε = {norm:g}: "
                f"{comparison.mean_states_seen:.1f} states seen per round, "
                f"{comparison.mean_retained:.0%} again"
            )
    return comparisons


def _rounds_of(task: tuple[Setting, int]) -> Rounds:
    (_, settings, norm), seed = task
    return run_rounds(settings, sink_norm=norm, seed=seed)
