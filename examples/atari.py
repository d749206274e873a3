"""Atari from its picture: what data without a reward shows, and what is planned from it.

    python examples/atari.py MontezumaRevenge rover 10000 --seed 200
    python examples/atari.py Pong rover 10000 --seed 200 --frames 4 --play 5

The picture is 84×84 in shades of grey, `--frames` of the latest as its channels; an action is held
for four frames. Nothing is random but, with `--play`, up to thirty idle frames that a game begins
with. Points are counted and not shown to the agent. Afterwards they are put beside the transitions,
`rover.solve` plans for them, and that many games are played. A place in Montezuma's Revenge is the
room and the position on the screen, read from the machine's memory, which agents do not see either.
Needs the extra ``arenas``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import rover
from rover.errors import RoverWarning

_PLACE = {"MontezumaRevenge": (3, 42, 43)}  # addresses in memory (Bellemare et al. 2016)
_IDLE = 30


class Scores(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Notes points, and where the agent has been."""

    def __init__(self, env: gym.Env[Any, Any], place: tuple[int, ...] = ()) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, place=place)
        gym.Wrapper.__init__(self, env)
        self._place = place
        self.points: list[float] = []
        self.places: set[tuple[int, ...]] = set()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step of the game."""
        found = self.env.step(action)
        self.points.append(float(found[1]))
        memory = self.unwrapped.ale.getRAM()  # type: ignore[attr-defined]
        self.places.add(tuple(int(memory[address]) for address in self._place))
        return found


class LastFrames(gym.wrappers.FrameStackObservation):
    """The latest pictures, as the channels of one."""

    def __init__(self, env: gym.Env[Any, Any], stack_size: int) -> None:
        super().__init__(env, stack_size)
        self.observation_space = spaces.Box(0, 255, (84, 84, stack_size), np.uint8)

    def _last(self, observation: Any) -> Any:
        return np.ascontiguousarray(np.moveaxis(observation[..., 0], 0, -1))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """A new game."""
        observation, info = super().reset(seed=seed, options=options)
        return self._last(observation), info

    def step(self, action: Any) -> Any:
        """A step of the game."""
        observation, *others = super().step(action)
        return self._last(observation), *others


def atari(game: str, *, frames: int = 1, idle: int = 0) -> Scores:
    """The game, seen as pictures in grey."""
    env: Any = gym.make(f"ale_py:ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0)
    env = gym.wrappers.AtariPreprocessing(env, noop_max=idle, frame_skip=4, grayscale_newaxis=True)
    return Scores(LastFrames(env, frames) if frames > 1 else env, _PLACE.get(game, ()))


def play(act: Callable[[Any], int], env: Scores, games: int) -> list[float]:
    """Points of each of some games, which begin as they do for whoever else plays."""
    totals = []
    for game in range(games):
        (seen, _), is_over, total = env.reset(seed=game), False, 0.0
        while not is_over:
            seen, points, terminated, truncated, _ = env.step(act(seen))
            total += float(points)
            is_over = terminated or truncated
        totals.append(total)
    return totals


def main() -> None:
    """Pretrain, and print what was seen every tenth of the way; plan for points, and play."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("game")
    parser.add_argument("agent", choices=["rover", "random", "rnd", "apt"])
    parser.add_argument("steps", type=int)
    parser.add_argument("--seed", type=int, default=200)
    parser.add_argument("--frames", type=int, default=1, choices=[1, 3, 4])
    parser.add_argument("--play", type=int, default=0, metavar="GAMES")
    options = parser.parse_args()
    warnings.simplefilter("ignore", RoverWarning)
    idle = _IDLE if options.play else 0
    env = atari(options.game, frames=options.frames, idle=idle)
    agent = rover.make_agent(options.agent, env, seed=options.seed, evaluation_episodes=1)
    began = time.process_time()

    def tell(_: Any) -> None:
        points = np.array(env.points[: len(agent.buffer)])
        won, lost = points.clip(min=0.0).sum(), abs(points.clip(max=0.0).sum())
        places = f"{len(env.places)} places, " if options.game in _PLACE else ""
        print(
            f"{options.game}, {options.agent}, seed {options.seed}, step {agent.num_timesteps}: "
            f"{places}{won:g} points won, {lost:g} lost, "
            f"{len(agent.buffer.observations)} pictures, "
            f"{time.process_time() - began:.0f} s of CPU",
            flush=True,
        )

    agent.learn(options.steps, callback=tell)
    tell(None)
    if options.play:
        points = np.array(env.points[: len(agent.buffer)])
        policy, rng = rover.solve(agent, reward=points, discount=0.97), np.random.default_rng(0)
        fresh = atari(options.game, frames=options.frames, idle=idle)
        scores = play(lambda seen: int(policy.act(seen, rng)), fresh, options.play)
        n_actions = int(fresh.action_space.n)
        chance = play(lambda _: int(rng.integers(n_actions)), fresh, options.play)
        print(f"planned for points: {np.mean(scores):.1f} a game {scores}")
        print(f"random actions: {np.mean(chance):.1f} a game {chance}")


if __name__ == "__main__":
    main()
