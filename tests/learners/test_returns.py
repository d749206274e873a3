"""n-step returns against numbers worked out by hand and against a loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rover.errors import ConfigurationError
from rover.learners import n_step_returns


def masks(*rows: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A row per window: "." goes on, "T" terminated, "C" cut (truncated)."""
    return (
        torch.tensor([[c == "T" for c in row] for row in rows]),
        torch.tensor([[c == "C" for c in row] for row in rows]),
    )


def test_hand_computed_windows() -> None:
    rewards = torch.tensor([[1.0, 2.0, 4.0]] * 5)
    result = n_step_returns(rewards, *masks("...", "..T", "..C", ".T.", "CT."), discount=0.5)
    # 1 + 2/2 + 4/4 = 3; up to the second step 1 + 1 = 2; up to the first 1.
    assert result.returns.tolist() == [3.0, 3.0, 3.0, 2.0, 1.0]
    assert result.last.tolist() == [2, 2, 2, 1, 0]
    assert result.discounts.tolist() == [0.125, 0.0, 0.125, 0.0, 0.5]


def test_one_step_returns_are_the_rewards() -> None:
    rewards = torch.tensor([[3.0], [5.0]])
    result = n_step_returns(rewards, *masks(".", "T"), discount=0.9)
    assert result.returns.tolist() == [3.0, 5.0]
    torch.testing.assert_close(result.discounts, torch.tensor([0.9, 0.0]))


def test_nothing_past_the_end_leaks_in() -> None:
    rewards = torch.tensor([[1.0, torch.nan, torch.inf]])
    result = n_step_returns(rewards, *masks("C.."), discount=0.9)
    assert result.returns.tolist() == [1.0]


def test_zero_discount_keeps_the_first_reward_only() -> None:
    result = n_step_returns(torch.tensor([[1.0, 2.0]]), *masks(".."), discount=0.0)
    assert (result.returns.tolist(), result.discounts.tolist()) == ([1.0], [0.0])


@given(
    st.integers(1, 6).flatmap(lambda k: st.lists(st.text("..TC", min_size=k, max_size=k))),
    st.floats(0.0, 1.0),
)
def test_windows_are_those_of_a_loop(rows: list[str], discount: float) -> None:
    if not rows:
        return
    rewards = np.random.default_rng(0).normal(size=(len(rows), len(rows[0])))
    result = n_step_returns(torch.from_numpy(rewards), *masks(*rows), discount=discount)
    for i, row in enumerate(rows):
        total, power, bootstrap = 0.0, 1.0, 1.0
        for j, mark in enumerate(row):
            total += power * rewards[i, j]
            power *= discount
            if mark != ".":
                bootstrap = 0.0 if mark == "T" else 1.0
                break
        assert result.last[i] == j
        assert float(result.returns[i]) == pytest.approx(total)
        assert float(result.discounts[i]) == pytest.approx(bootstrap * power)


@pytest.mark.parametrize(
    ("shape", "mask_shape", "discount", "message"),
    [
        ((4,), (4,), 0.9, "are no windows"),
        ((4, 0), (4, 0), 0.9, "are no windows"),
        ((4, 2), (4, 3), 0.9, "must have one shape"),
        ((4, 2), (4, 2), 1.5, r"discount=1.5 lies outside"),
    ],
)
def test_refusals(
    shape: tuple[int, ...], mask_shape: tuple[int, ...], discount: float, message: str
) -> None:
    mask = torch.zeros(mask_shape, dtype=torch.bool)
    with pytest.raises(ConfigurationError, match=message):
        n_step_returns(torch.zeros(shape), mask, mask, discount=discount)
