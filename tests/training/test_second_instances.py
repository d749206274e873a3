"""The instance that judges has what was set after making, and a simulator of its own."""

import copy
import gc
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils import EzPickle

import rover
from rover.data import RunningEpisode
from rover.envs import make_env
from rover.errors import ConfigurationError, ReplayMismatchError, RoverWarning
from rover.training.environments import _set_after_making, evaluation_copy, repeats_itself


class Corridor(gym.Env[Any, Any]):
    """A point on a line of floats; a task, which is set after making, says which end pays."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.task, self.step_size = 1, 0.125
        self.episodes: list[int] = []

    def set_task(self, task: int, step_size: float = 0.125) -> None:
        self.task, self.step_size = task, step_size

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.n_steps = 0.0, 0
        self.episodes.append(0)
        return np.array([self.place]), {}

    def step(self, action: Any) -> Any:
        self.place += self.step_size * (2 * int(action) - 1)
        self.n_steps += 1
        is_end = abs(self.place) >= 1.0 - 1e-9
        place = float(np.clip(self.place, -1.0, 1.0))
        reward = float(is_end and (place > 0) == (self.task == 1))
        return np.array([place]), reward, is_end, self.n_steps == 40, {}


class Uncopied(Corridor):
    """It cannot be copied, as environments that hold a window or a thread."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot pickle 'Window' object")


class Remade(Corridor, EzPickle):
    """It is pickled, and copied, by the arguments of its making."""

    def __init__(self) -> None:
        Corridor.__init__(self)
        EzPickle.__init__(self)
        self.own_file = f"/temporary/{id(self)}"


class Graphics:
    """Graphics of which each instance, when it is freed, takes all others with it."""

    lost = False

    def __del__(self) -> None:
        Graphics.lost = True


class Drawn(Corridor):
    """The corridor as it is drawn: black once graphics are lost."""

    observation_space = spaces.Box(0, 255, (4, 17, 3), np.uint8)
    render_mode = "rgb_array"

    def __init__(self) -> None:
        super().__init__()
        self.graphics = Graphics()

    def _seen(self) -> Any:
        picture = np.zeros((4, 17, 3), np.uint8)
        if not Graphics.lost:
            picture[:, 8 + round(8 * np.clip(self.place, -1.0, 1.0))] = 255
        return picture

    def reset(self, **options: Any) -> Any:
        _, info = super().reset(**options)
        return self._seen(), info

    def step(self, action: Any) -> Any:
        _, *rest = super().step(action)
        return self._seen(), *rest


class Remote(Corridor):
    """Its copies hold the same client, which drives one simulator."""

    def __init__(self) -> None:
        super().__init__()
        self.client = {"place": 0.0}

    def __deepcopy__(self, memo: Any) -> Any:
        other = type(self)()
        other.client = self.client
        return other

    @property
    def place(self) -> float:
        return self.client["place"]

    @place.setter
    def place(self, place: float) -> None:
        self.client["place"] = place


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    for name, kind in (("Corridor-v0", Corridor), ("Uncopied-v0", Uncopied)):
        spec = gym.envs.registration.EnvSpec(name, kind)
        monkeypatch.setitem(gym.registry, name, spec)


@pytest.mark.parametrize("learn", ["finetune", "adapt"])
@pytest.mark.parametrize("task", [0, 1])
def test_what_was_set_after_making_is_judged(task, learn):
    env = gym.make("Corridor-v0")
    env.unwrapped.set_task(task)
    agent = rover.Rover("Corridor-v0", seed=0).learn(300)
    if learn == "finetune":
        run = rover.finetune(agent.policy, env, total_timesteps=600, seed=0)
    else:
        run = rover.adapt(agent, env, total_timesteps=300, seed=0)
    actor = run.policy
    assert actor is not None
    episode = RunningEpisode(env, seed=5)
    observation, earned, is_over = episode.observation, 0.0, False
    while not is_over:
        action = int(actor.probs(observation[None])[0].argmax())
        observation, reward, terminated, truncated = episode.step(action)
        earned, is_over = earned + float(reward), terminated or truncated
    assert run.summary["policy_return"] == earned


def unlike_its_id(env: gym.Env[Any, Any]) -> list[str]:
    return _set_after_making(env, make_env("Uncopied-v0"), make_env("Uncopied-v0"))


def test_a_spec_makes_no_copy_of_what_was_set():
    env = gym.make("Uncopied-v0")
    assert unlike_its_id(env) == []
    assert evaluation_copy(env).unwrapped is not env.unwrapped
    env.reset(seed=0)  # what an episode changes is not what was set
    env.step(1)
    assert unlike_its_id(env) == []
    env.unwrapped.set_task(0, step_size=0.25)
    assert unlike_its_id(env) == ["task=0", "step_size=0.25"]
    with pytest.raises(
        ConfigurationError, match=r"task=0, step_size=0.25 of it was set .*evaluation_env"
    ):
        rover.finetune(rover.Rover("Corridor-v0", seed=0).learn(60).policy, env, total_timesteps=60)
    other = gym.make("Uncopied-v0")
    with pytest.warns(RoverWarning, match="does not repeat the first episode .*evaluation_env="):
        agent = rover.Rover(env, seed=0, evaluation_env=other, measure_share=100).learn(200)
    assert "does not repeat" in agent.summary()["left_out"]
    other.unwrapped.set_task(0, step_size=0.25)
    agent = rover.Rover(env, seed=0, evaluation_env=other, measure_share=100).learn(200)
    assert agent.summary()["cells"] > 0.0


def test_a_copy_that_is_made_anew_is_no_copy_of_what_was_set():
    env = Remade()
    assert evaluation_copy(env).unwrapped is not env
    env.reset(seed=0)
    env.step(1)
    evaluation_copy(env)
    env.set_task(0)
    with pytest.raises(ConfigurationError, match=r"a copy lacks task=0, .* evaluation_env="):
        evaluation_copy(env)
    plain = Corridor()
    plain.set_task(0)
    assert evaluation_copy(plain).task == 0


def test_copies_of_what_draws_are_freed_with_it_and_black_pictures_are_warned_of():
    Graphics.lost = False
    env = Drawn()
    agent = rover.Rover(env, seed=0, measure_share=100).learn(100)
    assert not Graphics.lost
    Drawn()  # another instance, which is freed at once
    assert Graphics.lost
    with pytest.warns(RoverWarning, match=r"of a single colour.* gc\.collect"):
        agent.learn(200)
    Graphics.lost = False
    del agent, env
    gc.collect()
    assert Graphics.lost


def test_copies_that_drive_one_simulator_are_not_evaluated_in():
    with pytest.raises(ConfigurationError, match="drive one simulator"):
        evaluation_copy(Remote())
    with pytest.warns(RoverWarning, match="copies of it drive one simulator"):
        agent = rover.Rover(Remote(), seed=0, measure_share=100)
    buffer = agent.learn(300).buffer
    places = buffer.observations.rows[:, 0]
    moved = np.abs(places[buffer.successors] - places[buffer.inputs])
    np.testing.assert_allclose(moved, 0.125)
    with pytest.raises(ConfigurationError, match="drive one simulator"):
        rover.finetune(agent.policy, Remote(), total_timesteps=60)


def test_a_run_says_what_its_id_does_not_hold_and_is_resumed_in_its_own_world_alone(tmp_path):
    env = gym.make("Corridor-v0")
    env.unwrapped.set_task(0, step_size=0.25)
    with pytest.warns(
        RoverWarning, match=r"task=0, step_size=0.25 was set after Corridor-v0 was made"
    ):
        rover.Rover(env, seed=0, run_dir=tmp_path / "run").learn(200)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rover.finetune(None, env, total_timesteps=60, run_dir=tmp_path / "task")
    assert any("task=0, step_size=0.25 was set after" in str(one.message) for one in caught)
    with pytest.raises(ReplayMismatchError, match=r"resume_agent\(run_dir, env=\.\.\.\)"):
        rover.Rover.resume(tmp_path / "run")
    with warnings.catch_warnings(action="error"):
        assert rover.Rover.resume(tmp_path / "run", env=env).num_timesteps == 200
    with pytest.warns(RoverWarning, match="its id makes it does not repeat the first episode"):
        rover.solve(tmp_path / "run", goal=lambda rows: rows[:, 0] > 0.9)


def test_an_environment_that_its_seed_does_not_repeat_is_held_against_nothing():
    class Unseeded(Corridor):
        def step(self, action: Any) -> Any:
            self.place += 0.01 * np.random.default_rng().normal()
            return super().step(action)

    agent = rover.Rover(Unseeded(), seed=0, measure_share=100).learn(100)
    assert repeats_itself(copy.deepcopy(agent.env), agent.buffer, seed=0)
