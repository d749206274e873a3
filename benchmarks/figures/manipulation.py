"""Zero-shot manipulation: goals after reward-free steps, beside doing nothing and SAC+HER.

    python -m benchmarks.figures.manipulation FetchReach --steps 2000 --seeds 100 101 102
    python -m benchmarks.figures.manipulation FetchPush --steps 10000 --cover 3 4 5 --seeds 100
    python -m benchmarks.figures.manipulation FetchPush --steps 10000 --agent random --seeds 100
    python -m benchmarks.figures.manipulation FetchPush --steps 10000 --agent sac --seeds 100
    python -m benchmarks.figures.manipulation Pushing --steps 5000 --cover 2 3 --seeds 100

For each seed one run, and goals that the environment draws, 100 by default: success at the end of
an episode, and at any step of it. Data of an agent of ROVER, such as rover, rnd or random, are
solved by `rover.solve`; sac is Stable-Baselines3's SAC with hindsight goals, which learns from the
reward of the goals. Costs are CPU milliseconds of a step of the run and of a decision of the
policy. Settings were chosen on seeds below 100.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import benchmarks.worlds.fetch
import benchmarks.worlds.pushing  # noqa: F401  (registers the environment)
import rover
from benchmarks.common import begin, parser, played, report
from rover import Agent
from rover.wrappers import GoalObservation

FIRST_GOAL = 100_000
"""Seed of the first episode that is measured; settings were chosen on episodes from 50 on."""

Predict = Callable[[NDArray[Any], Any], tuple[Any, Any]]
"""Takes an observation and a state, which is None at the beginning of an episode, and returns an
action and the next state."""


def explored(
    task: str, steps: int, seed: int, name: str, cover: list[int] | None
) -> tuple[Agent[Any], float]:
    """An agent after reward-free steps, and the share of them in which the goal's part moves."""
    env = gym.make(f"arenas/{task}-v0")
    view = GoalObservation.within(env)
    assert view is not None
    options = {} if cover is None else {"cover": tuple(cover)}
    agent = rover.make_agent(name, env, seed=seed, **options)
    agent.learn(steps)
    table, buffer = agent.buffer.observations.rows, agent.buffer
    moves = (table[buffer.successors] - table[buffer.inputs])[:, list(view.achieved)]
    return agent, float((np.linalg.norm(moves, axis=1) > 1e-3).mean())


def is_met(view: GoalObservation, goal: NDArray[Any], seen: NDArray[Any]) -> NDArray[np.bool_]:
    """The goal as a function of observations (n, d)."""
    return np.asarray(
        np.linalg.norm(seen[:, list(view.achieved)] - goal, axis=1) < view.goal_radius
    )


def learnt(task: str, steps: int, seed: int) -> Any:
    """SAC with hindsight goals, in the settings of its authors' example for Fetch."""
    from stable_baselines3 import SAC, HerReplayBuffer

    env = gym.make(f"arenas/{task}-v0")
    view = GoalObservation.within(env)
    assert view is not None
    options = {"n_sampled_goal": 4, "goal_selection_strategy": "future"}
    model = SAC(
        "MultiInputPolicy",
        view.env,
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs=options,
        gamma=0.95,
        learning_rate=1e-3,
        learning_starts=500,
        seed=seed,
    )
    return model.learn(steps)


def measure(
    task: str,
    steps: int,
    seed: int,
    n_goals: int,
    agent_name: str,
    cover: list[int] | None,
    as_functions: bool,
) -> dict[str, Any]:
    """The figures of one seed."""
    env = gym.make(f"arenas/{task}-v0")
    view = GoalObservation.within(env)
    assert view is not None
    seeds = [FIRST_GOAL + 1000 * seed + episode for episode in range(n_goals)]
    starts, wanted = [], []
    for episode in seeds:
        observation, _ = env.reset(seed=episode)
        starts.append(observation[list(view.achieved)])
        wanted.append(view.desired_goal)
    still = np.linalg.norm(np.array(starts) - wanted, axis=1) <= view.goal_radius
    began, moving, solving = time.process_time(), np.nan, 0.0
    if agent_name == "sac":
        model = learnt(task, steps, seed)
        exploring = time.process_time() - began
    else:
        agent, moving = explored(task, steps, seed, agent_name, cover)
        exploring, began = time.process_time() - began, time.process_time()
        goals: list[Any] = (
            [partial(is_met, view, goal) for goal in wanted] if as_functions else wanted
        )
        policy = rover.solve(agent, goals=goals)
        solving = time.process_time() - began

    def followed(episode: int) -> Predict:
        if agent_name != "sac":
            return partial(policy.single(episode).predict, deterministic=True)

        def predict(observation: NDArray[Any], _: Any) -> tuple[Any, Any]:
            achieved, goal = observation[list(view.achieved)], view.desired_goal
            seen = {"observation": observation, "achieved_goal": achieved, "desired_goal": goal}
            return model.predict(seen, deterministic=True)

        return predict

    deciding, flags = 0.0, []

    def timed(predict: Predict, memory: list[Any], observation: NDArray[Any]) -> Any:
        nonlocal deciding
        began = time.process_time()
        action, memory[0] = predict(observation, memory[0])
        deciding += time.process_time() - began
        return action

    for episode, episode_seed in enumerate(seeds):
        steps_of = played(env, partial(timed, followed(episode), [None]), seed=episode_seed)
        flags.append([bool(info["is_success"]) for *_, info in steps_of])
    return {
        "task": task,
        "agent": agent_name,
        "steps": steps,
        "seed": seed,
        "at the end": float(np.mean([each[-1] for each in flags])),
        "ever": float(np.mean([any(each) for each in flags])),
        "by doing nothing": float(still.mean()),
        "goals": n_goals,
        "moves": moving,
        "ms a step": 1e3 * exploring / steps,
        "solved in s": solving,
        "ms a decision": 1e3 * deciding / sum(map(len, flags)),
        "GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def main() -> None:
    """Measure every seed."""
    arguments = parser(__doc__, seeds=[100])
    tasks = "FetchReach, FetchPush, FetchSlide, FetchPickAndPlace or Pushing"
    arguments.add_argument("task", help=tasks)
    arguments.add_argument("--steps", type=int, default=2000)
    arguments.add_argument("--goals", type=int, default=100)
    arguments.add_argument("--agent", default="rover")
    arguments.add_argument("--cover", type=int, nargs="+")
    arguments.add_argument("--as-functions", action="store_true", help="goals as functions")
    asked = arguments.parse_args()
    begin()
    how = asked.goals, asked.agent, asked.cover, asked.as_functions
    report(measure(asked.task, asked.steps, seed, *how) for seed in asked.seeds)


if __name__ == "__main__":
    main()
