"""The collector on scripted environments: what ends an episode, and what replays it."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from walks import collected

from rover.data import Buffer, Collector
from rover.envs import GridWorld, Spaces
from rover.errors import ReplayMismatchError


class Walk(GridWorld):
    """A slippery corridor that terminates at its end, cell 9, and is truncated after six steps."""

    def __init__(self, *, forgets_its_seed: bool = False) -> None:
        super().__init__("S........G", goal="marked", start="random", slip=0.3, horizon=6)
        self.resets, self.forgets_its_seed = 0, forgets_its_seed

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.resets += 1
        return super().reset(seed=self.resets if self.forgets_its_seed else seed, options=options)


def collect(env: gym.Env[Any, Any], n_steps: int, *, seed: int = 3) -> tuple[Collector, Buffer]:
    collector = collected(env, n_steps, seed=seed)
    return collector, collector.buffer


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), n_steps=st.integers(0, 80))
def test_no_transition_crosses_a_reset(seed, n_steps):
    env = Walk()
    collector, buffer = collect(env, n_steps, seed=seed)
    table = buffer.observations.rows
    done = buffer.is_end
    np.testing.assert_array_equal(buffer.terminated, table[buffer.successors] == 9)
    lengths = np.diff(np.flatnonzero(np.r_[True, done]))
    assert lengths.max(initial=0) <= 6
    assert (lengths[buffer.truncated[done] & ~buffer.terminated[done]] == 6).all()
    expected = buffer.successors[:-1][~done[:-1]]
    np.testing.assert_array_equal(buffer.inputs[1:][~done[:-1]], expected)
    starts = buffer.episode_starts
    begun = np.flatnonzero(np.concatenate([[True], done]))[: len(starts)]
    for start, row in zip(starts, begun, strict=True):
        if row < len(buffer):
            assert buffer.inputs[row] == start
    assert len(starts) == collector.episodes[0] + 1 == env.resets == int(done.sum()) + 1
    assert np.abs(table[buffer.successors] - table[buffer.inputs]).max(initial=0) <= 1
    assert table[collector.observations[0]] == env.state


@settings(max_examples=40)
@given(seed=st.integers(0, 2**62), n_steps=st.integers(0, 60))
def test_replay_leads_to_the_same_place_and_the_same_future(seed, n_steps):
    collector, buffer = collect(Walk(), n_steps, seed=seed)
    other_env = Walk()
    other_buffer = Buffer.of(Spaces.of(other_env))
    other_buffer.load_state(buffer.state())
    other = Collector(other_env, other_buffer, seed=seed)
    other.load_state(collector.state())
    assert other.observations == collector.observations
    assert len(other_buffer) == n_steps
    for action in [0, 1] * 10:
        assert other.step(action) == collector.step(action)
    for name, values in buffer.state().items():
        np.testing.assert_array_equal(other_buffer.state()[name], values)


@pytest.mark.parametrize("n_steps", [0, 7, 40])
def test_an_environment_that_does_not_repeat_itself_is_refused(n_steps):
    collector, buffer = collect(Walk(forgets_its_seed=True), n_steps)
    words = r"not repeat itself: step \d of episode \d .*given its seed"
    with pytest.raises(ReplayMismatchError, match=words):
        replay_often(collector)
    assert len(buffer) == n_steps


def replay_often(collector: Collector) -> None:
    for _ in range(20):  # one replay may agree by chance
        collector.load_state(collector.state())


def test_an_episode_that_another_one_interrupts_goes_on_as_if_alone():
    env = Walk()
    (first, _), (alone, _) = collect(env, 7), collect(Walk(), 7)
    collect(env, 4, seed=8)
    for action in [0, 1] * 10:
        assert first.step(action) == alone.step(action)
        assert first.observations == alone.observations
