"""What a run measures of its policies, and warnings of what cannot be measured or reached."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from grid_runs import make_grid
from gymnasium.wrappers import FlattenObservation

from rover import Rover
from rover.baselines import agent_class, make_agent
from rover.envs import GridWorld
from rover.errors import RoverWarning
from rover.operators.kernels import cholesky_factor
from rover.storage import read_lines

MOUNTAIN: dict[str, Any] = {
    "seed": 0,
    "policy_every": 50,
    "evaluation_episodes": 3,
    "checkpoint_every": 1000,
    "measure_share": 1000,
}


def lines_of(folder: Path) -> list[dict[str, Any]]:
    lines = read_lines(folder / "metrics.jsonl")
    return [{name: line[name] for name in line if name != "wall_time"} for line in lines]


@pytest.mark.slow
def test_mean_coverage_and_its_probability_are_measured_beside_the_uniform_and_the_optimal_policy(
    finished,
):
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["mean_coverage"] > summary["uniform_coverage"]
    assert summary["optimal_coverage"] >= summary["uniform_coverage"]
    for name in ("p_coverage_95", "uniform_p_coverage_95", "optimal_p_coverage_95"):
        assert summary[name] * 100 == pytest.approx(round(summary[name] * 100))  # of 100 repeats
    assert summary["cells"] is summary["knn_entropy"] is None
    points = [line["step"] for line in lines_of(finished) if "mean_coverage" in line]
    assert points == [25, 50, 75, 125, 200]  # each at least 1.5 times the one before
    again = Rover.resume(finished, env=make_grid())
    assert again.summary()["mean_coverage"] == summary["mean_coverage"]


@pytest.mark.slow
def test_cells_are_in_the_lines_and_in_the_summary_where_states_are_unknown(tmp_path):
    agent = make_agent("random", "MountainCar-v0", run_dir=tmp_path / "car", **MOUNTAIN).learn(1200)
    summary, lines = agent.summary(), lines_of(tmp_path / "car")
    assert {"cells", "uniform_cells", "knn_entropy", "uniform_knn_entropy"} <= {*lines[0]}
    points = [line["step"] for line in lines if "cells" in line]
    assert points == [50, 100, 150, 250, 400, 600, 900]
    assert 0.3 < summary["cells"] / summary["uniform_cells"] < 3.0  # random actions themselves
    assert summary["cell_radius"] > 0.0
    assert summary["mean_coverage"] is summary["uniform_coverage"] is None
    other = make_agent("random", "MountainCar-v0", **{**MOUNTAIN, "seed": 1}).learn(100).summary()
    assert other["uniform_cells"] == summary["uniform_cells"]  # one net for every run
    assert other["cell_radius"] == summary["cell_radius"]


def test_a_warning_with_other_figures_is_said_once_in_a_run():
    class Anxious(agent_class("random")):  # type: ignore[misc]
        def _update(self) -> dict[str, Any]:
            row = torch.tensor([[1.0, 1.0, 1.0]]).double()
            matrix = row.T @ row
            matrix[1, 1] -= 1e-13 * self.num_timesteps  # indefinite by more and more
            cholesky_factor(matrix, "K")
            return {}

    agent = Anxious(make_grid(), seed=0)
    for _ in range(2):  # and once again when it goes on
        with pytest.warns(RoverWarning, match="set a larger ridge") as caught:
            agent.learn(40)
        assert len(caught) == 1


class Logged(gym.Wrapper[Any, Any, Any, Any]):
    """A user's wrapper that notes every step and changes nothing."""

    def step(self, action: Any) -> Any:
        self.latest = action
        return self.env.step(action)


@pytest.mark.parametrize("wrapper", [FlattenObservation, Logged])
def test_hidden_dynamics_are_warned_of(wrapper):
    env = wrapper(GridWorld("S...\n....\n...."))
    with pytest.warns(RoverWarning, match=f"not reported: a wrapper of <{wrapper.__name__}"):
        make_agent("random", env, policy_every=50)
    # Nothing of it is known; warnings are errors in these tests.
    make_agent("random", FlattenObservation(gym.make("CartPole-v1")), policy_every=50)
