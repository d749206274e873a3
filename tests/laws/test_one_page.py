"""`examples/rover_in_one_page.py` computes what the library computes."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from rover.envs import finite_dynamics
from rover.envs.layouts import make_layout
from rover.evaluation import optimal_occupancy
from rover.operators import Objective, SparseOperator, mirror_descend
from rover.transitions import TransitionCounts
from rover.world.counts import Rows

ROOT = Path(__file__).parents[2]
PAGE = SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "rover_in_one_page.py")))


def counts_after(n_steps: int) -> NDArray[np.float64]:
    """n(x, a, y) of a walk, every state of which has been arrived in."""
    steps = iter(PAGE.explore(seed=100))
    memory = next(step for number, step in enumerate(steps, 1) if number == n_steps)
    counts: NDArray[np.float64] = memory.counts
    return counts


def library_operator(counts: NDArray[np.float64]) -> SparseOperator:
    inputs, actions, successors = counts.nonzero()
    merged = TransitionCounts(
        inputs=inputs,
        actions=actions,
        successors=successors,
        terminated=np.zeros(len(inputs), np.bool_),
        counts=counts[inputs, actions, successors],
    )
    start = np.eye(len(counts))[0]
    return Rows.of_counts(merged, start, n_actions=4, ridge=PAGE.RIDGE).operator()


SETTINGS = {"discount": PAGE.DISCOUNT, "objective": Objective(sink_norm=PAGE.SINK_NORM)}


@pytest.mark.parametrize("n_steps", [40, 300, 568])
def test_the_objectives_and_the_policy_are_those_of_the_library(n_steps):
    counts = counts_after(n_steps)
    policy, objectives = PAGE.improve(PAGE.estimate(counts), n_tries=40)
    operator = library_operator(counts)
    expected = mirror_descend(
        operator, operator.start, n_steps=len(objectives) - 1, step_size=10.0, **SETTINGS
    )
    assert objectives == pytest.approx(expected.objectives, rel=1e-8)
    assert policy == pytest.approx(expected.policy_probs.numpy(), abs=1e-8)


def test_the_world_and_its_optimum_are_those_of_the_library():
    env = gymnasium.make("rover/MultiRooms-v0")
    problem = finite_dynamics(env)
    cells = make_layout(PAGE.MAP).cells
    assert [tuple(cell) for cell in cells.tolist()] == PAGE.CELLS
    transition = np.stack([move.toarray() for move in problem.dynamics.transition], axis=1)
    assert np.array_equal(PAGE.dynamics(), transition)
    least = PAGE.improve(PAGE.dynamics(), n_tries=3000)[1][-1]
    optimum = optimal_occupancy(problem.dynamics, discount=PAGE.DISCOUNT)
    assert least == pytest.approx(optimum.objective, rel=1e-5)


def test_the_plan_heads_for_the_nearest_untried_action():
    counts = counts_after(200)
    untried = (counts.sum(axis=2) == 0).any(axis=1)
    moves = counts.any(axis=1)  # (S, S)
    steps = np.where(untried, 0.0, np.inf)
    for _ in counts:
        steps = np.minimum(steps, 1.0 + np.where(moves, steps, np.inf).min(axis=1))
    values = PAGE.plan_exploration(counts).max(axis=1)
    assert values == pytest.approx(PAGE.DISCOUNT**steps, abs=1e-4)


def test_it_ends_with_a_policy_near_the_optimum(capsys):
    PAGE.main()
    last = capsys.readouterr().out.splitlines()[-1]
    assert 1.0 <= float(last.split()[4]) < 1.005
