"""Episodes: what resets and steps an environment for collecting, measuring and replaying.

Every episode is reset with its own seed, derived from the run's seed and the episode's number.
So an episode is a function of (seed, number, actions), and a run that was killed continues in the
same bits by replaying the actions of its unfinished episode: no environment needs to know how to
save itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, update_wrapper
from types import MethodType, SimpleNamespace
from typing import Any, SupportsFloat, cast

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.data.buffer import Buffer
from rover.data.copies import Copies
from rover.data.kinds import kinds_of
from rover.envs import Spaces
from rover.errors import (
    BY_ENVIRONMENT,
    ConfigurationError,
    NonFiniteError,
    ReplayMismatchError,
    abridge,
    shorten,
    warn,
)

_MOST_REWARDS = 100  # different ones: more are no events

# Names in `info` of an episode's last observation, where the next start was returned instead.
_LAST_OBSERVATIONS = "final_obs", "final_observation", "terminal_observation"
_RESETS = (
    "the environment resets itself, and returns the next start as the observation of an end: the "
    "true one is taken from info"
)
_ONE_BUFFER = (
    "observations are one buffer for ever, which each step overwrites: return copies (ROVER makes "
    "its own)"
)


def as_reward(reward: Any, where: object) -> float:
    """A reward that an environment returned, as a finite number; arrays of one number are one.
    NonFiniteError: it is NaN, infinite, or no single number."""
    try:
        value = float(np.asarray(reward).item())
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise NonFiniteError(
            f"{where}: the environment gave the reward {shorten(reward)}, which is not one "
            "finite number; fix the environment, or make one number of it with "
            "gymnasium.wrappers.TransformReward(env, FUNCTION)"
        )
    return value


def check_same_spaces(buffer: Buffer, env: gym.Env[Any, Any]) -> None:
    """Check that a buffer holds transitions of an environment's observations and actions; else
    ConfigurationError."""
    # Equal shapes and dtypes are all that can be told; which observations they are cannot.
    own, table = Spaces.of(env), buffer.observations
    fits = (table.shape, table.dtype, buffer.n_actions) == (own.shape, own.dtype, own.n_actions)
    if isinstance(own.observation, spaces.Discrete):
        fits &= bool((table.rows < own.observation.n).all())
    # Equal numbers may stand for other continuous actions, as in someone's data set.
    if buffer.action_set is not None and own.actions is not None:
        fits &= np.array_equal(buffer.action_set, own.actions)
    if not fits:
        raise ConfigurationError(
            f"the buffer was collected on another environment: it has observations of shape "
            f"{table.shape} and dtype {table.dtype} and {buffer.n_actions} actions, and this "
            f"environment has {abridge(own.observation)} and {abridge(own.acted)}: make it with "
            "the observations of pretraining"
        )


def _parts(answer: Any, names: str) -> Any:
    """The answer of an environment, if it has the parts of Gymnasium's interface."""
    if not isinstance(answer, tuple) or len(answer) != names.count(",") + 1:
        got = f"{len(answer)} values" if isinstance(answer, tuple) else type(answer).__name__
        raise ConfigurationError(
            f"the environment returned {got} in place of ({names}): correct it, or wrap one of the "
            "time before Gymnasium (shimmy.GymV21CompatibilityV0)"
        )
    if not isinstance(answer[-1], dict):
        raise ConfigurationError(f"the environment returned {answer[-1]!r:.80} as info, not a dict")
    return answer


class RunningEpisode:
    """One episode of an environment, which is reset.

    Only the observations are read; the environment may change the actions that it is given. An
    episode with a `number` is of a run with this seed, and reset with a hash of both.

    Attributes:
        env: the environment.
        observation: the first one, as it is stored (:class:`rover.envs.Spaces`).
        n_steps: taken so far.
        found: messages of kinds (:func:`rover.data.kinds.kinds_of`) that no stored row shows.

    Raises:
        ConfigurationError: the first observation is not of its space.
        NonFiniteError: NaN or infinity in that observation.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        seed: int,
        number: int | None = None,
        spaces: Spaces | None = None,
        found: set[str] | None = None,
    ) -> None:
        self.env, self._number, self.n_steps = env, number or 0, 0
        self._spaces = spaces or Spaces.of(env)
        self.found = set[str]() if found is None else found
        if number is not None:
            seed = int(np.random.SeedSequence([seed, 1, number]).generate_state(1)[0])
        try:
            first, _ = _parts(env.reset(seed=seed), "observation, info")
        except Exception as error:
            where = f"in the reset of episode {self._number}, seed {seed}"
            error.add_note(f"{BY_ENVIRONMENT} {where}")
            raise
        self.observation = self._row = self._spaces.read(first, self)
        self._returned = first

    def __str__(self) -> str:
        """The latest step, as messages name it."""
        return f"step {self.n_steps} of episode {self._number}"

    def step(self, action: int) -> tuple[NDArray[Any], SupportsFloat, bool, bool]:
        """Take an action, by its number where they are not Discrete: observation, reward as it was
        returned, terminated, truncated. Of an environment that resets itself the observation of an
        end is the one in `info`.

        ConfigurationError: the observation is not of its space. NonFiniteError: NaN or infinity in
        it.
        """
        taken = self._spaces.taken(action)
        # The reward is passed on unread: pretraining must not depend on it, not even on its type.
        try:
            observation, reward, terminated, truncated, info = _parts(
                self.env.step(taken), "observation, reward, terminated, truncated, info"
            )
        except Exception as error:
            error.add_note(
                f"{BY_ENVIRONMENT} in step {self.n_steps + 1} of episode {self._number}, whose "
                f"action was {shorten(self._spaces.taken(action))}"
            )
            raise
        self.n_steps += 1
        if terminated or truncated:
            last = [info[name] for name in _LAST_OBSERVATIONS if info.get(name) is not None]
            if last:
                observation = last[0]
                self.found.add(_RESETS)
        row = self._spaces.read(observation, self)
        if observation is self._returned and not np.array_equal(row, self._row):
            self.found.add(_ONE_BUFFER)
        self._returned, self._row = observation, row
        return row, reward, bool(terminated), bool(truncated)


@dataclass
class _Arrival:
    """First arrival at a reward, for reports alone: nothing that learns reads it.

    A step arrives that earns more than what is usual, the commonest reward; or, where each step
    costs, that ends its episode by itself for no higher price. Of each reward `values` it is kept
    how often it was earned and when first, and when first at a termination (0: never).
    """

    n_steps: int = 0
    values: dict[str, list[int]] = field(default_factory=dict)

    def note(self, reward: Any, terminated: bool) -> None:
        """Take note of a step; a reward that is no single finite number is skipped."""
        self.n_steps += 1
        try:
            name = repr(as_reward(reward, ""))
        except NonFiniteError:
            return
        if name in self.values or len(self.values) < _MOST_REWARDS:
            kept = self.values.setdefault(name, [0, self.n_steps, 0])
            kept[0] += 1
            if terminated and kept[2] == 0:
                kept[2] = self.n_steps

    def within(self, n_steps: int) -> tuple[bool, int | None]:
        """Sparsity of the rewards (at least half of the steps earned the same: elsewhere arrivals
        are no events), and the first arrival if it is among so many steps."""
        name = max(self.values, key=lambda one: self.values[one][0], default=None)
        if name is None or 2 * self.values[name][0] < self.n_steps:
            return False, None
        usual = float(name)
        steps = [first for one, (_, first, _) in self.values.items() if float(one) > usual]
        if usual < 0.0:
            steps += [end for one, (*_, end) in self.values.items() if end and float(one) >= usual]
        first = min(steps, default=n_steps + 1)
        return True, first if first <= n_steps else None


_Chosen = tuple[int, NDArray[np.float32] | None]
"""An action, and the skill that it was chosen by, if there are any."""


class Collector:
    """Steps an environment, or several copies of it, and records every transition; no transition
    crosses a reset.

    Copies take turns. Each has an episode of its own, and its next action is chosen when its latest
    transition has been recorded; then the transition of the next copy is recorded. What learns sees
    one transition after the other, as of one environment.

    The environment's reward is recorded only where the buffer has a column for it. Whatever else
    steps or resets the environment is noticed, by which an episode is then played again.

    Args:
        env: the environment.
        buffer: the transitions; episodes of several copies are interleaved.
        seed: of the run.
        spaces: the environment's, where they are known already.
        copies: of the environment, which are stepped in its place.

    Attributes:
        buffer, spaces: as given.
        n_episodes: begun so far.
        turn: number of the copy whose turn it is; 0 of an environment alone.
        observations: index of the observation that the agent stands on in each copy.
        episodes: number of the episode in progress in each, from 0.
        arrival: first arrival at a reward, for reports, of a buffer without rewards.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        buffer: Buffer,
        *,
        seed: int,
        spaces: Spaces | None = None,
        copies: Copies | None = None,
    ) -> None:
        self.buffer, self._seed, self._copies = buffer, seed, copies
        self.spaces = spaces or Spaces.of(env)
        n = 1 if copies is None else copies.number
        self._source = copies or SimpleNamespace(envs=[env])
        self.turn = self.n_episodes = self._n_calls = 0
        self.observations, self.episodes = [-1] * n, [-1] * n
        self._running: list[RunningEpisode | None] = [None] * n
        # Actions whose transitions are not recorded yet, and the skills by which they were chosen.
        self._chosen: list[_Chosen | None] = [None] * n
        self.arrival = _Arrival()
        self._found, self._named = set[str](), set[str]()
        # Since users step what they gave, or a wrapper of it.
        self._world = cast(Any, env.unwrapped)
        if hasattr(self._world, "_rover_calls"):
            return
        self._world._rover_calls = 0
        for name in {"reset", "step"} - vars(self._world).keys():
            call = getattr(type(self._world), name)
            counted = update_wrapper(partial(_counted, call), call)
            setattr(self._world, name, MethodType(cast(Any, counted), self._world))

    def start_episode(self, *turns: int) -> None:
        """Begin an episode, in each copy or in those whose `turns` are given: reset it, and stand
        on the first observation."""
        for turn in turns or range(len(self._running)):
            self.episodes[turn] = number = self.n_episodes
            about: Any = {"seed": self._seed, "number": number, "spaces": self.spaces}
            about |= {"found": self._found}
            running = self._running[turn] = RunningEpisode(self._source.envs[turn], **about)
            self.observations[turn] = self.buffer.observations.intern(running.observation)
            self.buffer.add_start(self.observations[turn])
            self.n_episodes += 1
        self._n_calls = self._world._rover_calls

    def choose(self, act: Callable[[int], _Chosen]) -> None:
        """Choose the next action of each copy that has none: `act` has it, and the skill that it is
        by if there are any, on an observation of the copy whose turn it is meanwhile."""
        following = self.turn
        for turn, chosen in enumerate(self._chosen):
            if chosen is None:
                self.turn = turn
                self._chosen[turn] = action, _ = act(self.observations[turn])
                if self._copies is not None:
                    self._resumed()
                    self._copies.send(turn, self.spaces.taken(action))
        self.turn = following

    def step(self, action: int | None = None) -> bool:
        """Record the next transition, of `action` in an environment alone unless it was chosen
        before, and reset if the episode is over, which is returned. An episode that somebody else
        interrupted, who stepped or reset the environment, is replayed."""
        running, turn = self._resumed(), self.turn
        chosen = self._chosen[turn] if action is None else (action, None)
        assert chosen is not None
        action, skill = chosen
        reached, reward, terminated, truncated = running.step(action)
        self._chosen[turn] = None
        has_rewards = self.buffer.rewards is not None
        if not has_rewards:
            self.arrival.note(reward, terminated)
        begun = self.observations[turn]
        self.observations[turn] = self.buffer.observations.intern(reached)
        self.buffer.add(
            *(begun, action, self.observations[turn], terminated, truncated),
            reward=as_reward(reward, running) if has_rewards else None,
            skill=skill,
            episode=self.episodes[turn],
        )
        self._n_calls = self._world._rover_calls
        # At once, so that the next action is chosen on an observation of the buffer in any case.
        if terminated or truncated:
            self.start_episode(turn)
        self.turn = (turn + 1) % len(self._running)
        return terminated or truncated

    def kinds(self) -> dict[str, str]:
        """A message for each kind of environment that the steps show, by its name, once for all."""
        space = self.spaces.observation if self.spaces.observation is self.spaces.observed else None
        found = [*kinds_of(self.buffer, space), *sorted(self._found)]
        kinds = {message.partition(":")[0]: message for message in found}
        new = {kind: message for kind, message in kinds.items() if kind not in self._named}
        self._named |= new.keys()
        return new

    def state(self) -> dict[str, Any]:
        """Numbers of the episodes, whose transitions are in the buffer, and what was chosen."""
        return {
            "turn": self.turn,
            "episodes": self.episodes.copy(),
            "chosen": self._chosen.copy(),
            "arrival": {**vars(self.arrival)},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Bring the environment to where :meth:`state` was taken; the buffer must be restored.
        ReplayMismatchError: it does not repeat itself from the same seed."""
        self.episodes, self.arrival = [*state["episodes"]], _Arrival(**state["arrival"])
        self.n_episodes = len(self.buffer.episode_starts)
        check_repeats(self._source.envs[0], self.buffer, seed=self._seed, strictly=True)
        self._running = [None] * len(self._running)
        for turn in range(len(self._running)):
            self.turn = turn
            self._resumed()
        self.turn, self._chosen = state["turn"], [*state["chosen"]]

    def _resumed(self) -> RunningEpisode:
        """The running episode, played again where it was interrupted."""
        turn, buffer, episode = self.turn, self.buffer, self.episodes[self.turn]
        running, env = self._running[turn], self._source.envs[turn]
        is_alone = self._copies is not None or self._n_calls == self._world._rover_calls
        # Copies are made anew when a run goes on.
        if running is not None and running.env is env and is_alone:
            return running
        running, found = _replayed(env, buffer, episode, seed=self._seed, spaces=self.spaces)
        if found is not None:
            raise _mismatch(found[0], episode)
        reached = buffer.successors[buffer.rows_of(episode)]
        self._running[turn] = running
        self.observations[turn] = int([buffer.episode_starts[episode], *reached][-1])
        self._n_calls = self._world._rover_calls
        return running


def _counted(call: Any, world: Any, *args: Any, **options: Any) -> Any:
    """Call a method, and count that by its `world`: a copy of an environment counts its own."""
    world._rover_calls += 1
    return call(world, *args, **options)


_Difference = tuple[int, bytes, bool]
"""A step that came out otherwise, 0 for the reset, its observation, and True of mere rounding."""


def _replayed(
    env: gym.Env[Any, Any],
    buffer: Buffer,
    episode: int,
    *,
    seed: int,
    most: int | None = None,
    spaces: Spaces | None = None,
) -> tuple[RunningEpisode, _Difference | None]:
    """Take the stored actions of an episode of a run again, `most` at most, up to a difference."""
    running = RunningEpisode(env, seed=seed, number=episode, spaces=spaces)
    rows, reached = buffer.rows_of(episode)[:most], running.observation
    places = [buffer.episode_starts[episode], *buffer.successors[rows]]
    for number, place in enumerate(places):
        is_same = True
        if number > 0:
            row = rows[number - 1]
            reached, reward, *ends = running.step(int(buffer.actions[row]))
            is_same = ends == [buffer.terminated[row], buffer.truncated[row]]
            if buffer.rewards is not None:
                is_same &= math.isclose(as_reward(reward, running), buffer.rewards[row])
        stored = buffer.observations.rows[place]
        if not (is_same and np.array_equal(reached, stored)):
            is_close = is_same and stored.dtype.kind == "f" and np.allclose(reached, stored)
            return running, (number, np.asarray(reached).tobytes(), bool(is_close))
    return running, None


def differences(
    env: gym.Env[Any, Any], buffer: Buffer, *, seed: int, most: int, spaces: Spaces | None = None
) -> Iterator[tuple[int, _Difference]]:
    """Episodes of a run that differ when they are played again, and where: of the first, the last
    and those that touch most states; at most five, and `most` steps."""
    size = len(buffer.observations)
    touched = np.unique(buffer.episodes * size + buffer.successors) // max(1, size)
    n_states = np.bincount(touched)
    n, order = len(n_states), np.argsort(-n_states, kind="stable").tolist()
    for episode in [*dict.fromkeys([0, n - 1, *order])][: min(n, 5)]:
        _, found = _replayed(env, buffer, episode, seed=seed, most=most, spaces=spaces)
        most = max(0, most - len(buffer.rows_of(episode)))
        if found is not None:
            yield episode, found


def not_repeated(
    buffer: Buffer,
    env: gym.Env[Any, Any],
    reason: str,
    *,
    seed: int,
    most: int = 500,
    spaces: Spaces | None = None,
) -> list[str]:
    """A message with the reason that names a step of a run of a seed, played again for `most`
    steps, that comes out otherwise; none: there is no such step."""
    found = differences(env, buffer, seed=seed, most=most, spaces=spaces)
    return [
        f"the seed does not repeat step {step} of episode {episode}: {reason}. Runs cannot be "
        "resumed or evaluated otherwise"
        for episode, (step, _, is_close) in found
        if not is_close
    ][:1]


def _mismatch(step: int, episode: int) -> ReplayMismatchError:
    return ReplayMismatchError(
        f"the environment did not repeat itself: step {step} of episode {episode} differs from "
        "what was recorded, although seed and actions are the same. A run can only be resumed in "
        "an environment that is deterministic given its seed, of the same versions and set as it "
        "was (in Python: env=); only such an instance can be evaluated in and then learned in "
        "further: else give an id, or a function that makes the environment"
    )


def check_repeats(
    env: gym.Env[Any, Any], buffer: Buffer, *, seed: int, strictly: bool = False
) -> None:
    """Replay stored episodes of a run with this seed in an environment that was made again, as of
    :func:`differences`, 2,000 steps.

    `strictly`: differences by rounding, and an environment that its seed does not determine, are
    refused too. Of the latter a RoverWarning says that nothing can be compared.

    Raises:
        ReplayMismatchError: it is another environment; the message names the episode and the step.
    """
    for episode, found in differences(env, buffer, seed=seed, most=2000):
        step, _, is_close = found
        if is_close and not strictly:
            continue
        # Several times, since one of few outcomes may come again by chance.
        again = (_replayed(env, buffer, episode, seed=seed, most=step)[1] for _ in range(8))
        if strictly or all(one == found for one in again):
            raise _mismatch(step, episode)
        warn(
            f"the environment's seed does not determine it (step {step} of episode {episode} "
            "differs each time), so that it cannot be compared with the run's: the run cannot be "
            "resumed, and figures may be of another environment",
            stacklevel=3,
        )
        return
