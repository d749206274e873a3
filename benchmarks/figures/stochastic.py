"""Grids whose outcomes are drawn: ROVER beside R-max, by seeds.

    python -m benchmarks.figures.stochastic lake --seeds 100 101 102
    python -m benchmarks.figures.stochastic windy --seeds 100 101 102
    python -m benchmarks.figures.stochastic sea --seeds 100 101 102

`lake`: J/J* and the share of states seen of FrozenLake 12×12, slippery, on three random maps
(`generate_random_map(12, p=0.8)`, map seeds 100 to 102) after 5,000 steps. `windy`: environment
steps until all 70 states of the windy grid with random wind (Sutton & Barto, example 6.5 and
exercise 6.10) were seen, 2,500 at most. `sea`: episodes to the first treasure of deep seas (Osband
et al. 2020) of N = 10, 20, 30 and 50 rows, where one step to the right in N slips; 200 at most.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.toy_text.frozen_lake import generate_random_map

import rover
from benchmarks.common import begin, parser, report, summarise
from benchmarks.worlds.small import WindyGrid, deep_sea
from rover.baselines import agent_class


def lake(agent: str, seed: int) -> dict[str, float]:
    """J/J* and share of states seen, for each map."""
    figures = {}
    for number in (100, 101, 102):
        layout = generate_random_map(size=12, p=0.8, seed=number)
        env = gym.make("FrozenLake-v1", desc=layout, is_slippery=True, max_episode_steps=200)
        summary = made(agent, env, seed).learn(5000).summary()
        figures[f"map {number} J/J*"] = summary["optimality_ratio"]
        figures[f"map {number} seen"] = summary["states_seen"] / summary["states_total"]
    return figures


def windy(agent: str, seed: int) -> dict[str, float]:
    """Steps until all states were seen; infinity: not within 2,500."""
    env = WindyGrid()
    buffer = made(agent, env, seed).learn(2500).buffer
    _, first = np.unique(buffer.successors, return_index=True)
    is_whole = len(buffer.observations) == env.observation_space.n
    return {"steps": float(first.max() + 1) if is_whole else np.inf}


class Found(Exception):
    """The treasure was reached, in the episode of that number."""


class UntilTreasure(gym.Wrapper[Any, Any, Any, Any]):
    """Counts episodes, and ends the run at the first reward."""

    n_episodes = 0

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self.n_episodes += int(result[2])
        if result[1] > 0.0:
            raise Found(self.n_episodes)
        return result


def sea(agent: str, seed: int) -> dict[str, float]:
    """Episodes to the first treasure, for each size; infinity: not within 200."""
    figures = {}
    for size in (10, 20, 30, 50):
        figures[f"N = {size}"] = np.inf
        try:
            made(agent, UntilTreasure(deep_sea(size=size, noise=True)), seed).learn(200 * size)
        except Found as found:
            figures[f"N = {size}"] = float(found.args[0])
    return figures


def made(agent: str, env: gym.Env[Any, Any], seed: int) -> Any:
    """The agent on an environment, with its default settings."""
    return (rover.Rover if agent == "rover" else agent_class(agent))(env, seed=seed)


def main() -> None:
    """Print the figures of each agent by seed, and their medians."""
    worlds = {"lake": lake, "windy": windy, "sea": sea}
    arguments = parser(__doc__, seeds=[100], agents=["rover", "rmax"])
    arguments.add_argument("world", nargs="?", choices=worlds, default="windy")
    asked = arguments.parse_args()
    begin()

    def figures(agent: str, seed: int) -> dict[str, Any]:
        began = time.process_time()
        found = worlds[asked.world](agent, seed)
        return {"agent": agent, "seed": seed, **found, "CPU s": time.process_time() - began}

    pairs = itertools.product(asked.agents, asked.seeds)
    summarise(report(itertools.starmap(figures, pairs)), "agent")


if __name__ == "__main__":
    main()
