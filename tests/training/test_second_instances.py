"""An id or a factory makes a second instance to evaluate in; an instance is evaluated in itself.

Neither knows less than the first one, nor disturbs it.
"""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from small_envs import Small

import rover
from rover.data import RunningEpisode
from rover.envs import Environment
from rover.errors import ConfigurationError, ReplayMismatchError, RoverWarning


class Corridor(Small):
    """A point on a line of floats; a task, which is set after making, says which end pays."""

    observation_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (1,), np.float64)
    action_space = spaces.Discrete(2)
    place = 0.0

    def __init__(self, task: int = 1) -> None:
        self.task = task

    def begin(self) -> None:
        self.place = 0.0

    def move(self, action: Any) -> Any:
        self.place += 0.125 * (2 * int(action) - 1)
        is_end = abs(self.place) >= 1.0 - 1e-9
        return float(is_end and (self.place > 0) == (self.task == 1)), is_end

    def look(self) -> Any:
        return np.array([self.place]).clip(-1.0, 1.0)


class Unseeded(Corridor):
    def step(self, action: Any) -> Any:
        self.place += 0.01 * np.random.default_rng().normal()
        return super().step(action)


def with_task(task: int) -> Corridor:
    env = Corridor()
    env.task = task
    return env


def explored(env: Any, n_steps: int = 200, **settings: Any) -> Any:
    return rover.make_agent("random", env, seed=0, **settings).learn(n_steps)


@pytest.fixture(scope="module")
def agent() -> Any:
    return rover.Rover(Corridor, seed=0).learn(200)


def learned(learn: str, agent: Any, env: Any) -> Any:
    how: dict[str, Any] = {"total_timesteps": 400, "seed": 0, "evaluate_every": 80}
    if learn == "adapt":
        return rover.adapt(agent, env, **how)
    learner = {"hidden_sizes": (16,), "batch_size": 16}
    return rover.finetune(agent.policy, env, learner=learner, **how)


@pytest.mark.parametrize("learn", ["finetune", "adapt"])
@pytest.mark.parametrize("given", ["factory", "instance"])
def test_what_was_set_after_making_is_evaluated(given, learn, agent):
    env = (lambda: with_task(0)) if given == "factory" else with_task(0)
    run = learned(learn, agent, env)
    episode = RunningEpisode(with_task(0), seed=5)
    observation, earned, is_over = episode.observation, 0.0, False
    while not is_over:
        action = int(run.policy.probs(observation[None])[0].argmax())
        observation, reward, terminated, truncated = episode.step(action)
        earned, is_over = earned + float(reward), terminated or truncated
    assert run.summary["policy_return"] == earned


@pytest.mark.parametrize("learn", ["finetune", "adapt"])
def test_a_task_learns_the_same_in_an_instance_as_beside_another_one(learn, agent):
    assert learned(learn, agent, Corridor()).curve == learned(learn, agent, Corridor).curve


def test_an_instance_is_evaluated_in_itself_at_the_end_and_learned_in_further():
    agent = explored(Corridor(), 90, measure_share=100)
    assert agent.summary()["cells"] > 0.0
    assert agent.summary()["uniform_observations"] > 0
    whole = explored(Corridor(), 180, measure_share=0.0)
    agent.learn(90)
    for name, column in agent.buffer.state().items():
        np.testing.assert_array_equal(column, whole.buffer.state()[name])
    rows = agent.buffer.observations.rows
    moved = np.abs(rows[agent.buffer.successors] - rows[agent.buffer.inputs]).max(axis=1)
    assert set(moved.tolist()) <= {0.0, 0.125}


def test_an_instance_that_its_seed_does_not_repeat_is_evaluated_and_not_learned_in_further():
    words = r"does not repeat step 1 of episode 0: .*np_random"
    with pytest.warns(RoverWarning, match=words):
        agent = explored(Unseeded(), 90, measure_share=100)
    assert agent.summary()["cells"] > 0.0
    with pytest.raises(ReplayMismatchError, match="else give an id, or a function that makes"):
        agent.learn(10)
    with pytest.warns(RoverWarning, match=words):
        agent = explored(Unseeded, 90, measure_share=100)
    assert agent.learn(10).num_timesteps == 100


def test_what_makes_no_second_instance():
    env = Corridor()
    assert Environment.of(lambda: env).another() is None
    for make, words in ((3, "'3' is no single environment"), (dict, "is no single environment")):
        with pytest.raises(ConfigurationError, match=words):
            rover.Rover(make, seed=0)
    with pytest.raises(ConfigurationError, match="env_kwargs are of an environment given by its"):
        rover.Rover(Corridor, env_kwargs={"task": 0})


def test_a_run_of_a_factory_goes_on_with_the_factory_alone(tmp_path):
    agent = explored(lambda: with_task(0), 90, run_dir=tmp_path / "run", policy_every=30)
    with pytest.raises(ConfigurationError, match=r"cannot be made from an id.* env=\.\.\."):
        rover.resume_agent(tmp_path / "run")
    again = rover.resume_agent(tmp_path / "run", env=lambda: with_task(0)).learn(30)
    assert again.buffer.actions[:90].tolist() == agent.buffer.actions.tolist()
    goal = rover.solve(tmp_path / "run", goal=lambda rows: rows[:, 0] > 0.9, env=Corridor)
    assert goal.probs(np.array([[0.5]]))[0].argmax() == 1
