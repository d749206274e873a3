from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rover.errors import ArtefactError
from rover.storage import (
    generator_state,
    restore_generator,
    restore_torch_generator,
    torch_generator_state,
)

_BIT_GENERATORS = ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"]


def make_generator(name: str, seed: int | list[int] | None) -> np.random.Generator:
    return np.random.Generator(getattr(np.random, name)(seed))


@settings(deadline=None)
@given(
    name=st.sampled_from(_BIT_GENERATORS),
    seed=st.integers(0, 2**128) | st.lists(st.integers(0, 2**40), min_size=1, max_size=3),
    draws=st.integers(0, 700),
    children=st.integers(0, 3),
)
def test_a_restored_generator_draws_and_spawns_the_same(
    name: str, seed: int | list[int], draws: int, children: int
) -> None:
    rng = make_generator(name, seed)
    rng.integers(0, 2**31, size=draws, dtype=np.int32)  # 32 bits: half a word stays behind
    rng.spawn(children)
    state = json.loads(json.dumps(generator_state(rng), allow_nan=False))
    restored = restore_generator(state)
    assert generator_state(restored) == state
    for _ in range(2):
        expected = rng.integers(0, 2**31, size=5, dtype=np.int32), rng.normal(size=700)
        found = restored.integers(0, 2**31, size=5, dtype=np.int32), restored.normal(size=700)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
        rng, restored = rng.spawn(1)[0], restored.spawn(1)[0]  # also in the children


def test_unseeded_and_spawned_generators_are_restored() -> None:
    for rng in (np.random.default_rng(), np.random.default_rng(3).spawn(2)[1]):
        restored = restore_generator(json.loads(json.dumps(generator_state(rng))))
        assert restored.random() == rng.random()
        assert restored.spawn(1)[0].random() == rng.spawn(1)[0].random()


class _FixedSeed(np.random.bit_generator.ISeedSequence):
    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return np.ones(n_words, dtype=dtype)


def test_generators_of_others_are_refused() -> None:
    rng = np.random.Generator(np.random.PCG64(_FixedSeed()))  # type: ignore[arg-type]
    with pytest.raises(ArtefactError, match="PCG64 seeded by _FixedSeed cannot be stored; use num"):
        generator_state(rng)


def _changes() -> list[tuple[str, list[str], Any]]:
    return [
        ("PCG64", ["bits", "bit_generator"], "os.system"),
        ("PCG64", ["bits", "bit_generator"], "MT19937"),
        ("PCG64", ["bits", "state"], None),
        ("PCG64", ["bits", "state", "state"], "7"),
        ("PCG64", ["bits", "state", "state"], -1),
        ("PCG64", ["bits", "extra"], 1),
        ("PCG64", ["seeds", "extra"], 1),
        ("PCG64", ["seeds", "entropy"], "x"),
        ("PCG64", ["seeds"], None),
        ("MT19937", ["bits", "state", "key"], [1, 2]),
        ("MT19937", ["bits", "state", "key"], [-1] * 624),
        ("MT19937", ["bits", "state", "pos"], 10**6),
        ("MT19937", ["bits", "state", "pos"], -1),
        ("Philox", ["bits", "buffer_pos"], 5),
    ]


@pytest.mark.parametrize(("name", "keys", "value"), _changes())
def test_states_that_are_none_are_refused(name: str, keys: list[str], value: Any) -> None:
    state = copy.deepcopy(generator_state(make_generator(name, 1)))
    target = state
    for key in keys[:-1]:
        target = target[key]
    target[keys[-1]] = value
    with pytest.raises(ArtefactError, match="not the state of a random number generator"):
        restore_generator(state)


@pytest.mark.parametrize("state", [{}, {"bits": {}, "seeds": {}}, {"bits": 3, "seeds": {}}])
def test_fragments_are_refused(state: dict[str, Any]) -> None:
    with pytest.raises(ArtefactError, match="not the state of a random number generator"):
        restore_generator(state)


def test_a_restored_torch_generator_draws_the_same() -> None:
    generator = torch.Generator().manual_seed(5)
    torch.randn(7, generator=generator)
    state = torch_generator_state(generator)
    assert state.dtype == torch.uint8
    assert state.ndim == 1
    expected = torch.randn(20, generator=generator)
    assert torch.equal(torch.randn(20, generator=restore_torch_generator(state)), expected)
    assert torch.equal(torch.randn(20, generator=restore_torch_generator(state)), expected)


@pytest.mark.parametrize(
    "state", [torch.zeros(3, dtype=torch.uint8), torch.zeros(5056), torch.zeros(0)]
)
def test_torch_states_that_are_none_are_refused(state: torch.Tensor) -> None:
    with pytest.raises(ArtefactError, match="not the state of a torch generator on cpu"):
        restore_torch_generator(state)
