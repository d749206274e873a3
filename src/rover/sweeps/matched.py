"""Whose merit is coverage, the data's or the policy's: runs at equal coverage of their buffers."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path
from scipy.special import softmax

from rover.data import Buffer
from rover.envs import FiniteMDP
from rover.evaluation import optimal_occupancy, policy_occupancy
from rover.operators import growing_steps, merge_transitions, mirror_descend, sparse_operator
from rover.plots import RunFiles

_PERCENTAGES = (50, 90, 100)
_RIDGE = 1e-6


def matched_figures(files: RunFiles, buffer: Buffer, problem: FiniteMDP) -> dict[str, float]:
    """The agent's policy and ROVER's plan on its data, when so many of all states were seen.

    Args:
        files: of the run.
        buffer: all its transitions.
        problem: what it ran on, with one start and no end.

    Returns:
        For 50, 90 and 100 percent: steps_to, the step at which the buffer first holds so many
        states, infinite for never; own_ratio, J/J* of the agent's policy at the next update;
        planned_ratio, that of ROVER's plan on the transitions until then; detour, the mean over
        these states of the shortest way from the start in the transitions over the shortest there
        is.
    """
    dynamics, states = problem.dynamics, problem.states_of(buffer.observations.rows)
    start, discount = int(dynamics.start.argmax()), float(files.settings["discount"])
    optimum = optimal_occupancy(dynamics, discount=discount).objective
    inputs, successors = states[buffer.inputs], states[buffer.successors]
    firsts = np.sort(np.unique(np.append(start, successors), return_index=True)[1])
    updates, ratios = files.series("optimality_ratio")
    ways = _distances(sum(dynamics.transition[1:], start=dynamics.transition[0]), start)
    figures: dict[str, float] = {}
    for percent in _PERCENTAGES:
        needed = math.ceil(percent / 100 * dynamics.n_states)
        steps = int(firsts[needed - 1]) if len(firsts) >= needed else 0
        figures[f"steps_to_{percent}"] = steps or math.inf
        if not steps:
            continue
        for own in ratios[updates >= steps][:1].tolist():
            figures[f"own_ratio_{percent}"] = own
        rows = slice(steps)
        counts = merge_transitions(
            inputs[rows], buffer.actions[rows], successors[rows], buffer.terminated[rows]
        )
        operator = sparse_operator(
            counts, np.array([start]), np.ones(1), n_actions=buffer.n_actions, ridge=_RIDGE
        )
        descent = mirror_descend(
            operator,
            operator.start,
            discount=discount,
            sink_norm=1.0,
            n_steps=150,
            step_rule=growing_steps(10.0),
            tolerance=1e-5,
        )
        logits = np.zeros((dynamics.n_states, buffer.n_actions))
        logits[operator.states] = -discount * operator.coefficients(descent.dual).numpy()
        occupancy = policy_occupancy(dynamics, softmax(logits, axis=1), discount=discount)
        figures[f"planned_ratio_{percent}"] = float(occupancy @ occupancy) / optimum
        found = csr_array((counts.counts, (counts.inputs, counts.successors)), ways.shape * 2)
        known = np.setdiff1d(counts.successors, [start])
        figures[f"detour_{percent}"] = float(np.mean(_distances(found, start)[known] / ways[known]))
    return figures


def _distances(graph: csr_array, start: int) -> NDArray[np.float64]:
    """Steps from `start` to every state."""
    steps: NDArray[np.float64] = shortest_path(graph, unweighted=True, indices=start)
    return steps
