"""Several copies of an environment at once, for simulators that are slow.

Copies step in this process, or each in one of its own (Gymnasium's ``AsyncVectorEnv``, whose
automatic resets are off), so that one simulates while the agent decides for another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Self, cast

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv, AutoresetMode

from rover.errors import ConfigurationError, RoverError


class Episodic:
    """A holder of attributes of each episode in progress; there may be several at once.

    A subclass names the attributes and sets them in :meth:`_begin_episode`.
    """

    _of_episode: ClassVar[tuple[str, ...]]

    @abstractmethod
    def _begin_episode(self) -> None:
        """Set what belongs to an episode as at its beginning."""

    def forget_episodes(self) -> None:
        """Hold nothing of any episode."""
        self._held: dict[int, list[Any]] = {}
        self.end_episode()

    def end_episode(self) -> None:
        """Hold nothing of the episode that was turned to, which is over."""
        self._turned_to = -1
        self._begin_episode()

    def turn_to(self, episode: int) -> None:
        """Go on with an episode, by its number."""
        if episode == self._turned_to:
            return
        if self._turned_to >= 0:
            self._held[self._turned_to] = [getattr(self, name) for name in self._of_episode]
        self._turned_to = episode
        if episode not in self._held:
            self._begin_episode()
            return
        for name, value in zip(self._of_episode, self._held.pop(episode), strict=True):
            setattr(self, name, value)


class _Remote(gym.Env[Any, Any]):
    """A copy of an environment in a process of its own, number `number` of a vector environment.

    Steps are asked for one by one, through the pipe of the process: a vector environment waits for
    all of them, and a copy that has ended its episode has none to make.
    """

    def __init__(self, vector: AsyncVectorEnv, number: int) -> None:
        self._vector, self._number, self.is_stepping = vector, number, False
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space

    def send(self, action: Any) -> None:
        """Begin the step that :meth:`step` returns."""
        self._ask("step", action)
        self.is_stepping = True

    def _ask(self, command: str, value: Any) -> None:
        with _named_end():
            self._vector.parent_pipes[self._number].send((command, value))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """Begin an episode."""
        self._ask("reset", {"seed": seed, "options": options})
        return cast(tuple[Any, Any], self.receive())

    def step(self, action: Any) -> Any:
        """Make a step, the one that has begun if there is any."""
        if not self.is_stepping:
            self.send(action)
        return self.receive()

    def receive(self) -> Any:
        """Wait for what was asked for, or raise what it raised."""
        self.is_stepping = False
        with _named_end():
            returned, is_fine = self._vector.parent_pipes[self._number].recv()
        if is_fine:
            return returned
        number = -1
        while number != self._number:  # others may have failed before
            number, _, raised, trace = self._vector.error_queue.get()
        raised.add_note(trace)
        raise raised


@contextmanager
def _named_end() -> Iterator[None]:
    """Say that a process has ended, to which nothing can be sent."""
    try:
        yield
    except (OSError, EOFError) as error:
        raise RoverError(
            "the process of a copy has ended, or was killed: for want of memory lower num_envs; a "
            "run with a folder can be resumed"
        ) from error


class Copies:
    """A number of copies of an environment, as a function makes them.

    They are made when they are first asked for, and again after the end of a ``with`` block.
    """

    def __init__(
        self, make: Callable[[], gym.Env[Any, Any]], number: int, *, in_processes: bool
    ) -> None:
        self._make, self.number, self._in_processes = make, number, in_processes
        self._envs: Sequence[gym.Env[Any, Any]] = ()
        self._vector: AsyncVectorEnv | None = None

    @property
    def envs(self) -> Sequence[gym.Env[Any, Any]]:
        """The copies. ConfigurationError: the function returns the same instance again."""
        if not self._envs and self._in_processes:
            made, mode = [self._make] * self.number, AutoresetMode.DISABLED
            self._vector = vector = AsyncVectorEnv(made, shared_memory=False, autoreset_mode=mode)
            self._envs = [_Remote(vector, number) for number in range(self.number)]
        elif not self._envs:
            self._envs = [self._make() for _ in range(self.number)]
            if len({id(env.unwrapped) for env in self._envs}) < self.number:
                raise ConfigurationError(
                    f"num_envs={self.number} needs different copies, and your function returns the "
                    "same instance each time: let it make one"
                )
        return self._envs

    def send(self, number: int, action: Any) -> None:
        """Begin a step of copy `number`, if it is in a process of its own."""
        env = self.envs[number]
        if isinstance(env, _Remote):
            env.send(action)

    def __enter__(self) -> Self:
        """Begin a block that the copies are open in, once they are asked for."""
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: Any) -> None:
        """End the processes and close the copies; after an error without waiting for them."""
        envs, self._envs, vector, self._vector = self._envs, (), self._vector, None
        if vector is None:
            for env in envs:
                env.close()
            return
        if raised is None:
            with suppress(OSError, EOFError, RoverError):  # of a process that has ended
                for env in envs:
                    if isinstance(env, _Remote) and env.is_stepping:
                        env.receive()
                vector.close()
        for process in vector.processes:
            process.kill()
            process.join()
        vector.closed = True
