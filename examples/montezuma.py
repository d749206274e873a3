"""Montezuma's Revenge from its picture: distinct places of the agent, and speed.

    python examples/montezuma.py rover 10000 --seed 200

The picture is 84×84 in shades of grey, an action of 18 is held for four frames, and nothing is
random. A place is the room and the position on the screen, read from the machine's memory, which
agents do not see. Needs the extra ``arenas``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import gymnasium as gym

import rover
from rover.errors import RoverWarning

_ROOM, _X, _Y = 3, 42, 43  # addresses in the machine's memory (Bellemare et al. 2016)


class Places(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Notes where the agent has been."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self.seen: set[tuple[int, ...]] = set()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step of the environment."""
        found = self.env.step(action)
        memory = self.unwrapped.ale.getRAM()  # type: ignore[attr-defined]
        self.seen.add(tuple(int(memory[address]) for address in (_ROOM, _X, _Y)))
        return found


def montezuma() -> Places:
    """The environment, seen as a picture in grey."""
    env = gym.make("ale_py:ALE/MontezumaRevenge-v5", frameskip=1, repeat_action_probability=0.0)
    return Places(
        gym.wrappers.AtariPreprocessing(env, noop_max=0, frame_skip=4, grayscale_newaxis=True)
    )


def main() -> None:
    """Pretrain, and print what was seen every tenth of the way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agent", choices=["rover", "random", "rnd", "apt"])
    parser.add_argument("steps", type=int)
    parser.add_argument("--seed", type=int, default=200)
    options = parser.parse_args()
    warnings.simplefilter("ignore", RoverWarning)
    env = montezuma()
    agent = rover.make_agent(options.agent, env, seed=options.seed, evaluation_episodes=1)
    began = time.process_time()

    def tell(_: Any) -> None:
        print(
            f"{options.agent}, seed {options.seed}, step {agent.num_timesteps}: "
            f"{len(env.seen)} places, {len(agent.buffer.observations)} pictures, "
            f"{time.process_time() - began:.0f} s of CPU",
            flush=True,
        )

    agent.learn(options.steps, callback=tell)
    tell(None)


if __name__ == "__main__":
    main()
