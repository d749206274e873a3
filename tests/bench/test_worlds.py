"""Worlds of the benchmarks."""

import numpy as np
import pytest

from benchmarks.worlds.small import deep_sea


@pytest.mark.parametrize("noise", [False, True])
def test_the_treasure_of_the_deep_sea_is_at_the_end_of_one_way(noise):
    size = 6
    dynamics = deep_sea(size, noise).finite_mdp.dynamics
    treasure = size * (size + 1) // 2
    assert dynamics.n_states == treasure + 2
    assert dynamics.steps_to_states().max() == size
    reach = np.zeros((size + 1, dynamics.n_states))  # best probability of the treasure
    reach[-1, treasure] = 1.0
    for step in reversed(range(size)):
        reach[step] = np.max([matrix @ reach[step + 1] for matrix in dynamics.transition], axis=0)
    best = (1.0 - 1.0 / size) ** size if noise else 1.0
    assert reach[0, 0] == pytest.approx(best)


@pytest.mark.parametrize(
    ("name", "n_cells"), [("Maze-50", 1151), ("Decoys8-100", 9461), ("Ladders", 996)]
)
def test_worlds_of_topogym_are_those_published(name, n_cells):
    pytest.importorskip("topogym")
    from benchmarks.worlds.topogym import make

    for view, shape in (("vector", (18,)), ("egocentric", (7, 7))):
        env = make(name, 4000, view)
        assert env.reset(seed=0)[0].shape == shape
        assert env.n_cells == n_cells


def test_the_names_of_topogym_are_those_of_its_roster():
    benchmarks = pytest.importorskip("topogym.benchmarks")
    from benchmarks.worlds.topogym import SMALL, WORLDS

    assert len(set(WORLDS)) == 63
    assert {*SMALL} <= {*WORLDS}
    families = benchmarks.families("gridworld2d-v1")
    found = {name: benchmarks.declared_family(name.partition("-")[0]) for name in WORLDS}
    assert set(found.values()) == set(families)
    for name, family in found.items():
        assert int(name.partition("-")[2] or 0) in families[family]["sizes"]
