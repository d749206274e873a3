"""Learning a task by interacting, with the model that pretraining left."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from transfer_cases import Stopped, stop_at

import rover
from rover.envs import make_env
from rover.errors import ConfigurationError
from rover.finetuning import resume_task
from rover.storage import is_complete

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*too few for a policy update"),
]

MAP = "S....\n.#.#.\n....."
KEYWORDS: dict[str, Any] = {"layout": MAP, "horizon": 40}
QUICK = {"evaluate_every": 20, "checkpoint_every": 15}


def grid(**keywords: Any) -> gym.Env[Any, Any]:
    return make_env("rover/Grid-v0", KEYWORDS | keywords)


def walked(env: gym.Env[Any, Any], steps: int, run_dir: Path | None = None) -> Any:
    return rover.make_agent("random", env, seed=0, run_dir=run_dir).learn(steps)


@pytest.mark.parametrize("observation", ["state", "onehot", "pixels"])
def test_the_best_return_as_soon_as_the_goal_was_met(observation):
    agent = walked(grid(observation=observation), 400)
    task = grid(observation=observation, goal=(4, 2))
    learned = rover.adapt(agent, task, total_timesteps=80, **QUICK)
    summary = learned.summary
    assert summary["policy_return"] == summary["best_possible_return"] == -5.0
    # 13 states, each left for the nearest one that was not visited: no way back is longer than 4
    assert summary["steps_to_first_success"] <= 30
    assert learned.policy.details["tasks"] == ["task"]


def test_what_pretraining_did_not_try_is_tried():
    """From a buffer of five steps the rest of the map is found by the task's own steps."""
    agent = walked(grid(), 5)
    learned = rover.adapt(agent, grid(goal=(4, 2)), total_timesteps=400, **QUICK)
    assert learned.summary["policy_return"] == -5.0


@pytest.mark.filterwarnings("ignore:no reward was seen")
def test_a_source_that_is_gone_is_given(tmp_path):
    agent, stop = walked(grid(), 100), {"callback": stop_at(20), "total_timesteps": 60, **QUICK}
    with pytest.raises(Stopped):
        rover.adapt(agent, grid(goal=(4, 2)), run_dir=tmp_path / "run", **stop)
    with pytest.raises(ConfigurationError, match=r"resume_task\(run_dir, start=\.\.\.\)"):
        resume_task(tmp_path / "run")
    resume_task(tmp_path / "run", start=agent.buffer)
    assert is_complete(tmp_path / "run")


def test_what_cannot_be_adapted():
    agent, task = walked(grid(), 50), grid(goal=(4, 2))
    other = grid(goal=(4, 2), observation="onehot")
    for source, env, settings, words in (
        (agent, other, {}, "with the observations of pretraining"),
        (agent.policy, task, {}, "does not show where"),
        (agent, task, {"learner": {"batch_size": 3}}, "learner"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            rover.adapt(source, env, **settings)
