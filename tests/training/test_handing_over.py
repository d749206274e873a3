"""What is measured of a policy, how many steps that takes, and what is handed over."""

import json
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import FlattenObservation
from same_files import assert_same
from small_envs import ENVIRONMENTS, Place, Small, make_grid

from rover import Rover, load_policy, make_agent
from rover.baselines import agent_class
from rover.coverage.improve import Improvement
from rover.envs import GridWorld
from rover.errors import RoverWarning
from rover.operators.kernels import cholesky_factor
from rover.policies import PlannedPolicy
from rover.storage import read_lines

QUICK: dict[str, Any] = {"seed": 0, "policy_every": 50, "checkpoint_every": 50}


class Counted(gym.Wrapper[Any, Any, Any, Any]):
    """Counts the steps of all episodes."""

    n_steps = 0

    def step(self, action: Any) -> Any:
        Counted.n_steps += 1
        return self.env.step(action)


class Stuck(Rover):
    """ROVER, whose plans end in the first action from step 200 on."""

    name = "stuck"

    def _improve(self) -> tuple[PlannedPolicy, Improvement]:
        policy, plan = super()._improve()
        if self.num_timesteps >= 200:
            policy.weights.data = torch.zeros_like(policy.weights)
            policy.weights.data[:, 0] = 500.0
        return policy, plan


@pytest.mark.parametrize("share", [0.2, 3.0, 0.0])
def test_measuring_takes_its_share_of_the_steps(share):
    Counted.n_steps = 0
    env = Counted(gym.make("MountainCar-v0", max_episode_steps=50))
    how = {**QUICK, "evaluation_episodes": 3, "measure_share": share}
    summary = make_agent("random", env, **how).learn(600).summary()
    # Runs of random actions, and steps that are played again.
    assert summary["reference_steps"] == (3 * 600 + 30 if share else 0)
    assert Counted.n_steps == 600 + summary["measured_steps"] + summary["reference_steps"]
    assert summary["measured_steps"] <= share * 600
    assert (summary["cells"] is None) == (share < 3.0)
    assert summary["worse_than_random"] is (False if share == 3.0 else None)
    if share < 3.0:
        assert "measure_share" in summary["left_out"]


def test_a_policy_worse_than_random_is_said_to_be(tmp_path, capsys):
    settings = {"first_policy": 0, "seed_steps": 50, "mirror_steps": 20, "measure_share": 100}
    agent = Stuck(ENVIRONMENTS["numbers"](), "paper", run_dir=tmp_path / "run", **QUICK, **settings)
    with pytest.warns(RoverWarning, match="covers less than uniformly random .* all the same"):
        agent.learn(300)
    assert agent.summary()["worse_than_random"] is True


class Line(Place):
    """Nine numbered places in a row, of which random actions seldom see the last ones."""

    limit = 20

    def move(self, action: Any) -> None:
        self.x = int(np.clip(self.x + (-1, 1)[int(action) % 2], 0, 8))


def line() -> Line:
    return Line(gym.spaces.Discrete(9), lambda x, y: x)


def run_stuck(folder: Path | None, n_steps: int = 300, **watched: Any) -> Stuck:
    options = {**QUICK, "policy_every": 100, "measure_share": 100, "run_dir": folder}
    options["evaluation_episodes"] = 8
    return Stuck(line, **options).learn(n_steps, **watched)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    with pytest.warns(RoverWarning, match=r"the policy of step 300 covers less .*the policy of"):
        return folder, run_stuck(folder)


def test_the_best_of_those_measured_is_handed_over(whole):
    folder, agent = whole
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["worse_than_random"] is False
    assert summary["policy_step"] < 200
    rows = agent.buffer.observations.rows
    expected = agent.policy.probs(rows)
    np.testing.assert_array_equal(load_policy(folder / "policy.safetensors").probs(rows), expected)
    again = Stuck.resume(folder, env=line)  # of a run that was complete
    np.testing.assert_array_equal(again.policy.probs(rows), expected)


@pytest.mark.filterwarnings("ignore")
def test_a_resumed_run_hands_over_the_same(whole, tmp_path):
    folder, agent = whole
    run_stuck(tmp_path, callback=lambda record: record["step"] < 200)
    again = Stuck.resume(tmp_path, env=line).finish()
    rows = agent.buffer.observations.rows
    np.testing.assert_array_equal(again.policy.probs(rows), agent.policy.probs(rows))
    assert_same(tmp_path, folder, "summary.json", "metrics.jsonl")
    assert any("cells" in line for line in read_lines(tmp_path / "metrics.jsonl"))


@pytest.mark.filterwarnings("ignore")
def test_a_longer_run_goes_on_with_its_plans_and_not_with_what_was_handed_over(whole):
    longer, at_once = run_stuck(None, 250).learn(50), whole[1]
    np.testing.assert_array_equal(longer.buffer.inputs, at_once.buffer.inputs)
    clocks = {"wall_seconds": 0, "seconds": 0}
    assert longer.summary() | clocks == at_once.summary() | clocks


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_known_dynamics_choose_by_their_objective_and_the_paper_keeps_its_policy(preset, tmp_path):
    options: dict[str, Any] = {} if preset == "default" else {"first_policy": 0, "seed_steps": 50}
    end = "is returned instead" if preset == "default" else "is returned all the same"
    with pytest.warns(RoverWarning, match=f"covers less than uniformly random .*{end}"):
        agent = Stuck(
            "rover/MultiRooms-v0",
            preset,
            run_dir=tmp_path,
            **{**QUICK, **options, "mirror_steps": 20},
        ).learn(300)
    summary, evaluator = agent.summary(), agent.measures.evaluator
    tables = agent.policy.tables(evaluator.problem.observations)
    exact = evaluator.exact_figures(tables)
    assert {name: summary[name] for name in exact} == exact
    last = evaluator.exact_figures(agent._policy.tables(evaluator.problem.observations))
    assert (exact["objective"] < last["objective"]) is (preset == "default")
    # Nothing that was measured covers as much as random actions, which is said.
    assert summary["worse_than_random"] is (exact["objective"] > evaluator.uniform["objective"])
    assert (summary["policy_step"] == 300) is (preset == "paper")
    again = Stuck.resume(tmp_path)
    rows = agent.buffer.observations.rows
    np.testing.assert_array_equal(again.policy.probs(rows), agent.policy.probs(rows))
    assert {**again.summary(), "wall_seconds": 0} == {**summary, "wall_seconds": 0}


def test_observations_that_hide_the_layout_are_said_to_be_aliased():
    class Layouts(Place):
        """Actions are permuted anew in each episode, which nothing shows."""

        def begin(self) -> None:
            super().begin()
            self.order = self.np_random.permutation(4)

        def move(self, action: Any) -> Any:
            return super().move(self.order[int(action)])

    hidden = Layouts(gym.spaces.Discrete(25), lambda x, y: 5 * y + x)
    with pytest.warns(RoverWarning, match="observations look aliased"):
        summary = make_agent("random", hidden, **QUICK).learn(1000).summary()
    assert summary["aliased_observations"] is True
    summary = make_agent("random", ENVIRONMENTS["numbers"](), **QUICK).learn(1000).summary()
    assert summary["aliased_observations"] is False


def test_nothing_to_cover_is_warned_of():
    same = Place(gym.spaces.Discrete(25), lambda x, y: 3)
    with pytest.warns(RoverWarning, match="all 51 observations so far are the same"):
        make_agent("random", same, **QUICK).learn(60)


MOUNTAIN: dict[str, Any] = {
    "seed": 0,
    "policy_every": 50,
    "evaluation_episodes": 3,
    "checkpoint_every": 1000,
    "measure_share": 1000,
}


@pytest.mark.slow
def test_mean_coverage_and_its_probability_are_measured_beside_the_uniform_and_the_optimal_policy(
    finished,
):
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["mean_coverage"] > summary["uniform_coverage"]
    assert summary["optimal_coverage"] >= summary["uniform_coverage"]
    for name in ("p_coverage_95", "uniform_p_coverage_95", "optimal_p_coverage_95"):
        assert summary[name] * 100 == pytest.approx(round(summary[name] * 100))  # of 100 repeats
    assert summary["cells"] is None
    lines = read_lines(finished / "metrics.jsonl")
    points = [line["step"] for line in lines if "mean_coverage" in line]
    assert points == [25, 50, 75, 125, 200]  # each at least 1.5 times the one before
    again = Rover.resume(finished, env=make_grid())
    assert again.summary()["mean_coverage"] == summary["mean_coverage"]


@pytest.mark.slow
def test_cells_are_in_the_lines_and_in_the_summary_where_states_are_unknown(tmp_path):
    agent = make_agent("random", "MountainCar-v0", run_dir=tmp_path / "car", **MOUNTAIN).learn(1200)
    summary, lines = agent.summary(), read_lines(tmp_path / "car/metrics.jsonl")
    assert {"cells", "uniform_cells"} <= {*lines[0]}
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


def test_hidden_dynamics_are_warned_of():
    env = FlattenObservation(GridWorld("S...\n....\n...."))
    with pytest.warns(RoverWarning, match="not reported: a wrapper of <FlattenObservation"):
        make_agent("random", env, policy_every=50)
    # Nothing of it is known; warnings are errors in these tests.
    make_agent("random", FlattenObservation(gym.make("CartPole-v1")), policy_every=50)


class Turns(Small):
    """A square of 9×9 cells in which a heading, which is not shown, decides where a step leads."""

    observation_space, action_space = gym.spaces.MultiDiscrete([9, 9]), gym.spaces.Discrete(3)
    limit = 200

    def begin(self) -> None:
        self.cell, self.heading = np.array([4, 4]), 0

    def look(self) -> Any:
        return self.cell.copy()

    def move(self, action: int) -> None:
        if action < 2:
            self.heading = (self.heading + 1 + 2 * action) % 4
        else:
            ahead = [(1, 0), (0, 1), (-1, 0), (0, -1)][self.heading]
            self.cell = np.clip(self.cell + ahead, 0, 8)


@pytest.mark.filterwarnings("ignore:observations look aliased")
@pytest.mark.parametrize("n_envs", [1, 2])
def test_what_did_nothing_is_tried_again_where_something_is_hidden(n_envs, tmp_path):
    how = {"seed": 0, "measure_share": 0.0, "num_envs": n_envs}
    with pytest.warns(RoverWarning, match="outcomes depend on earlier actions") as caught:
        whole = Rover(Turns, **how).learn(900)
    assert len(caught) == 1
    assert len(whole.buffer.observations) == 81
    with pytest.warns(RoverWarning, match="outcomes depend"):
        Rover(Turns, run_dir=tmp_path, **how).learn(430)
    again = Rover.resume(tmp_path, env=Turns).learn(470)
    np.testing.assert_array_equal(again.buffer.actions, whole.buffer.actions)


def test_drawn_outcomes_hide_nothing():
    Rover(partial(GridWorld, "S..#..\n......", slip=0.3), seed=0, measure_share=0.0).learn(1000)


@pytest.mark.filterwarnings("ignore:.*outcomes depend")
def test_fewer_states_than_random_actions_see_are_said(monkeypatch):
    monkeypatch.setattr("rover.data.histories._EVIDENCE", math.inf)
    with pytest.warns(RoverWarning, match="fewer states than uniformly random actions"):
        Rover(Turns, seed=0).learn(1500)


class Slow(Counted):
    """Takes two milliseconds for a step."""

    def step(self, action: Any) -> Any:
        time.sleep(0.002)
        return super().step(action)


def test_where_steps_are_slow_all_others_are_three_tenths_of_the_run():
    Counted.n_steps = 0
    summary = Rover(lambda: Slow(gym.make("MountainCar-v0")), **QUICK).learn(300).summary()
    others = summary["measured_steps"] + summary["reference_steps"]
    assert 300 < Counted.n_steps <= 300 + others <= 1.3 * 300
