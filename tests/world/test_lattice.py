"""Counts are sums; displacements foretell untried pairs, and guesses are in no policy."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from small_envs import Small
from walks import numbered

from rover import Rover
from rover.arrays import FloatArray
from rover.data import Buffer
from rover.world.counts import Counts
from rover.world.lattice import _Lattice, find_lattice
from rover.world.net import PairNovelty

MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


class Field(Small):
    """A field of 12 by 12 cells with what `kind` names, seen as (x, y, colour of the floor)."""

    action_space = spaces.Discrete(4)
    limit = 60

    def __init__(self, kind: str = "open", size: int = 12) -> None:
        self.observation_space = spaces.Box(-1.0, 100.0, (3,), np.float32)
        self.kind, self.size = kind, size
        self._colours = np.random.default_rng(1).integers(0, 90, (size, size))

    def begin(self) -> None:
        self.at = (0, 0)

    def look(self) -> Any:
        return np.array([*self.at, self._colours[self.at]], np.float32)

    def after(self, x: int, y: int, action: int) -> tuple[int, int]:
        """The cell that an action leads to."""
        dx, dy = MOVES[action].tolist()
        to, last = (x + dx, y + dy), self.size - 1
        if self.kind == "torus":
            return to[0] % self.size, to[1] % self.size
        period = {"blocks": 3, "pillars": 2, "gap": 2}.get(self.kind)
        is_open = self.kind == "gap" and to == (11, 11)
        if period and to[0] % period == to[1] % period == 1 and not is_open:
            return x, y
        is_wall = self.kind == "walls" and x != to[0] and {x, to[0]} == {5, 6} and y != 9
        if is_wall or not (0 <= to[0] <= last and 0 <= to[1] <= last):
            return x, y
        return (2, 10) if self.kind == "teleport" and to == (7, 3) else to

    def move(self, action: Any) -> Any:
        slips = self.kind == "slips" and self.np_random.random() < 0.2
        taken = int(self.np_random.integers(4)) if slips else int(action)
        self.at = self.after(*self.at, taken)
        return 0.0, self.kind == "pit" and self.at == (4, 4)


def explored(kind: str, steps: int) -> Rover:
    return Rover(Field(kind), seed=1, measure_share=0.0, evaluation_episodes=1).learn(steps)


@pytest.mark.parametrize("kind", ["open", "walls", "torus", "teleport", "pit", "slips"])
def test_every_pair_is_tried_and_counts_are_those_of_the_world(kind):
    agent = explored(kind, 3000)
    rows = agent.buffer.observations.rows.astype(int)
    n_cells = 144 - (kind == "teleport")  # nobody ever stands where it takes one away
    assert len(rows) == n_cells
    counts = agent._explorer.model
    assert isinstance(counts, Counts)
    if kind == "slips":
        return
    field, ends = Field(kind), [tuple(row[:2].tolist()) for row in rows]
    tried = np.array(counts.tries).reshape(-1, 4)
    assert (tried > 0).sum() >= 4 * (n_cells - (kind == "pit"))
    for state, action in np.argwhere(tried > 0):
        to = field.after(*ends[state], int(action))
        outcome = counts.following[4 * state + action]
        assert outcome < 0 if kind == "pit" and to == (4, 4) else ends[outcome] == to


@pytest.mark.parametrize(
    ("kind", "n_blocks", "most"), [("blocks", 16, 16), ("pillars", 36, 10), ("gap", 35, 35)]
)
def test_blocks_are_tried_from_one_side_and_pillars_not_at_all_once_they_are_a_pattern(
    kind, n_blocks, most
):
    n_cells, misses = 144 - n_blocks, []

    class Watch:
        """Notes the place of each try in vain, once displacements are known."""

        def on_step(self, run: Any) -> bool:
            buffer, row = run.buffer, len(run.buffer) - 1
            begin, end = buffer.inputs[row], buffer.successors[row]
            if row > 60 and begin == end:
                at = buffer.observations.rows[begin, :2] + MOVES[buffer.actions[row]]
                misses.append(tuple(at.astype(int).tolist()))
            return len(buffer.observations) < n_cells

    agent = Rover(Field(kind), seed=1, measure_share=0.0, evaluation_episodes=1)
    agent.learn(3000, callback=Watch())
    assert len(agent.buffer.observations) == n_cells  # the gap is found, too
    # Near the end of an episode nothing else may be within reach.
    assert len(misses) - len(set(misses)) <= 2
    inside = {place for place in misses if -1 not in place and 12 not in place}
    assert len(inside) <= most


@pytest.mark.parametrize("kind", ["open", "blocks", "teleport"])
def test_the_pair_sought_is_the_nearest_and_leaves_no_hole(kind):
    """Against all pairs, at distances by repeated passes over all of them."""
    n_found = 0
    for steps in range(60, 240, 20):
        agent = explored(kind, steps)
        counts = agent._explorer.model
        foretold, begin = counts._foretold, steps % len(agent.buffer.observations)
        to = counts.following
        away = np.full(len(agent.buffer.observations), np.inf)
        away[begin] = 0
        for _ in away:
            for pair, end in enumerate(to):
                if end >= 0:
                    away[end] = min(away[end], away[pair // 4] + 1)
        age = len(agent.buffer.rows_of(agent._collector.episodes[0]))
        left = counts._longest - age
        worth = {
            pair: (away[pair // 4] + 1, foretold.unknown_around(pair))
            for pair in sorted(foretold.ends)
            if foretold.doubt(pair) == 0 and away[pair // 4] + 1 <= left
        }
        if not worth:
            continue
        path, pair = counts.most_novel_path(begin, np.random.default_rng(0), age)
        state = begin
        for action in path[:0:-1]:
            state = to[4 * state + action]
        assert pair == 4 * state + path[0]
        assert worth[pair] == min(worth.values())
        assert len(path) == min(worth.values())[0]
        n_found += 1
    assert n_found >= 3


def test_policies_do_not_depend_on_what_is_foretold():
    agent = explored("walls", 150)
    assert agent._explorer.model._foretold.ends
    before = agent._improve()[0].probs(agent.buffer.observations.rows)
    agent.world._counts = Counts(agent.buffer)
    after = agent._improve()[0].probs(agent.buffer.observations.rows)
    np.testing.assert_array_equal(before, after)


def test_a_lattice_has_the_displacements_that_explain_moves():
    rows = np.array([(x / 7, y * 2.0, (3 * x + y) ** 2) for x in range(8) for y in range(8)])

    def found_in(rows: FloatArray, n_moves: int, step: int) -> _Lattice | None:
        """The lattice of moves from each row to one `step` rows on."""
        buffer = Buffer(rows.shape[1:], np.float32, 2)
        for row in rows.astype(np.float32):
            buffer.observations.intern(row)
        for row in range(n_moves):
            buffer.add(row, 0, row + step, False, True)
        return find_lattice(buffer, np.arange(n_moves), len(rows))

    found = found_in(rows, 56, 8)
    assert found is not None
    assert found.used.tolist() == [0]
    assert found.steps == ((1,), None)
    assert not found.is_reversible
    places = found.places(rows)
    assert [place[0] for place in places] == [x for x in range(8) for _ in range(8)]
    off = rows + np.random.default_rng(0).uniform(0.0, 0.05, rows.shape)  # not on a lattice
    assert found_in(off, 56, 8) is None
    assert found_in(np.eye(9), 8, 1) is None


def test_foretold_pairs_are_settled_by_one_try_each():
    buffer = Buffer((2,), np.float32, 4)
    index = {
        (x, y): buffer.observations.intern(np.array([x, y], np.float32))
        for x in range(4)
        for y in range(4)
    }
    counts = Counts(buffer, foretells=True)

    def tried(x: int, action: int, to: int) -> None:
        buffer.add(x, action, to, False, False)
        counts.add(len(buffer) - 1)

    def n_new() -> int:
        return [counts._foretold.doubt(pair) for pair in counts._foretold.ends].count(0)

    for x in (1, 2):
        for action, (dx, dy) in enumerate(MOVES.tolist()):
            tried(index[x, x], action, index[x + dx, x + dy])
    foretold = counts._foretold
    assert n_new() == 16  # those that leave the square
    assert sum(x >= 0 for x in counts.following) == 4 * 16 - 16
    assert foretold.unknown_around(4 * index[0, 0]) == 3  # beside (-1, 0)
    tried(index[0, 0], 0, index[0, 0])
    assert n_new() == 15
    assert foretold.unknown_around(4 * index[0, 1]) == 2  # (-1, 0) was missed
    buffer.observations.intern(np.array([4, 3], np.float32))
    counts.extend()
    assert counts.following[4 * index[3, 3] + 1] == 16
    assert n_new() == 15 - 1 + 3


@given(st.integers(0, 2**31), st.integers(1, 80))
@settings(max_examples=30)
def test_counts_are_sums_over_the_buffer(seed, n):
    rng = np.random.default_rng(seed)
    buffer = numbered(4, 2, starts=())
    grown, known = Counts(buffer), set()
    for row in range(n):
        x, a, y, ended = (int(rng.integers(high)) for high in (4, 2, 4, 2))
        buffer.add(x, a, y, bool(ended), False)
        outcome = 2 * x + a, y + 4 * ended
        assert grown.add(row) == (outcome not in known)
        known.add(outcome)
    table = np.zeros((8, 8))
    to = buffer.successors + 4 * buffer.terminated
    np.add.at(table, (2 * buffer.inputs + buffer.actions, to), 1.0)
    for counts in (grown, Counts(buffer)):
        found, sums = counts.outcomes(), np.zeros_like(table)
        pairs = 2 * found.inputs + found.actions
        sums[pairs, found.successors + 4 * found.terminated] = found.counts
        np.testing.assert_array_equal(sums, table)
        np.testing.assert_array_equal(counts.tries, table.sum(axis=1))
        assert sum(counts.first_tries) == np.count_nonzero(counts.tries)
        varied = [pair in counts.varied for pair in range(8)]
        assert varied == ((table > 0).sum(axis=1) > 1).tolist()
        assert bool(counts.varied) == any(varied)
    merged = buffer.counts(np.arange(n))
    for one, other in zip(vars(buffer.counts()).values(), vars(merged).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert buffer.counts().n_pairs == sum(grown.first_tries)


SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(1, 4))
def test_novelty_is_that_of_all_arrivals_by_pairs(seed, d):
    """Up to the bins, which are half a width."""
    rng = np.random.default_rng(seed)
    arrivals = rng.normal(size=(60, d))
    widths, scales = rng.uniform(0.5, 1.0, d), rng.uniform(1, 9, d)
    scales[3:] = 0.0  # a feature without a time scale does not count
    novelty = PairNovelty(np.zeros(d), widths, scales)
    novelty.add(arrivals)
    centres = (rng.integers(-4, 5, (20, d)) + 0.5) * widths / 2.0  # of bins
    offsets = (centres[:, None] - arrivals) / widths
    near = np.exp(-0.5 * offsets**2) * (np.abs(offsets) < 2.6)
    pairs = [(i, j) for i in range(d) for j in range(i + 1, d)] or [(0, 0)]
    weights = np.array([scales[i] * scales[j] for i, j in pairs])
    densities = [(near[:, :, i] * near[:, :, j]).sum(axis=1) for i, j in pairs]
    expected = sum(
        weight / (1.0 + density)
        for weight, density in zip(weights / weights.sum(), densities, strict=True)
    )
    np.testing.assert_allclose(novelty(centres), expected, atol=0.02)
