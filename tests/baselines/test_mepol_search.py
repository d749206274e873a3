"""The search stays where the batch can be trusted, takes steps back whole, and can be resumed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rover.baselines.mepol_search import EntropySearch, Neighbourhoods, find_neighbourhoods
from rover.errors import ArtefactError, NonFiniteError

N_TRAJECTORIES = 300
VALID = torch.ones(N_TRAJECTORIES, 1, dtype=torch.bool)


def choices(seed: int) -> tuple[Tensor, Neighbourhoods]:
    """One choice between two places far apart, 0.8 to the second: actions (E, 1), neighbours."""
    rng = np.random.default_rng(seed)
    actions = (np.arange(N_TRAJECTORIES)[:, None] % 5 > 0).astype(np.int64)
    places = 5.0 * actions + rng.random(actions.shape)
    near = find_neighbourhoods(places, n_neighbors=3, min_distance=1e-6)
    return torch.from_numpy(actions), near


def log_probs(logit: Tensor, actions: Tensor) -> Callable[[], Tensor]:
    """ln π(a) where the probability of action 1 is the logistic function of `logit`."""
    signs = 2.0 * actions - 1.0
    return lambda: torch.nn.functional.logsigmoid(signs * logit)


def make_search(logit: Tensor, **changes: Any) -> EntropySearch:
    defaults = {"learning_rate": 0.05, "kl_threshold": 1.0, "max_steps": 10, "max_backtracks": 3}
    return EntropySearch({"logit": logit}, **{**defaults, **changes})


def behaviour_logit() -> Tensor:
    return torch.tensor(np.log(4.0)).requires_grad_()  # probability 0.8


def test_the_search_climbs_to_the_even_choice() -> None:
    logit = behaviour_logit()
    actions, near = choices(0)
    search = make_search(logit, max_steps=60)
    found = search.maximize(log_probs(logit, actions), VALID, near)
    # entropy ln 2 over places of length 1; KL of (0.8, 0.2) from (0.5, 0.5)
    assert found.n_steps == 60
    assert found.entropy_before == pytest.approx(0.500, abs=0.1)
    assert found.entropy == pytest.approx(np.log(2.0), abs=0.1)
    assert found.kl == pytest.approx(0.193, abs=0.06)
    assert torch.sigmoid(logit).item() == pytest.approx(0.5, abs=0.08)


def test_steps_beyond_the_trust_region_are_taken_back() -> None:
    logit = behaviour_logit()
    actions, near = choices(1)
    search = make_search(logit, kl_threshold=0.01, max_steps=100, max_backtracks=4)
    found = search.maximize(log_probs(logit, actions), VALID, near)
    assert found.n_backtracks == 5
    assert 0 < found.n_steps < 50
    assert found.kl <= 0.01
    # Adam's own step count says that what was taken back left no trace
    assert search.state()["optimizer.step.logit"].item() == found.n_steps


def test_no_step_is_kept_where_none_is_trusted() -> None:
    logit = behaviour_logit()
    actions, near = choices(1)
    search = make_search(logit, kl_threshold=1e-12, max_backtracks=2)
    before = search.state()
    found = search.maximize(log_probs(logit, actions), VALID, near)
    assert (found.n_steps, found.n_backtracks, found.kl) == (0, 3, 0.0)
    assert found.entropy == found.entropy_before
    for name, tensor in search.state().items():
        assert torch.equal(tensor, before[name])


def test_backtracking_lasts_for_one_batch_only() -> None:
    logit = behaviour_logit()
    search = make_search(logit, kl_threshold=1e-12)
    actions, near = choices(1)
    search.maximize(log_probs(logit, actions), VALID, near)
    trusting = make_search(fresh := behaviour_logit(), max_steps=1)
    trusting.maximize(log_probs(fresh, actions), VALID, near)
    search._kl_threshold, search._max_steps = 1.0, 1
    search.maximize(log_probs(logit, actions), VALID, near)
    assert torch.equal(logit, fresh)


def test_a_restored_search_goes_on_in_the_same_bits() -> None:
    first = behaviour_logit()
    search = make_search(first)
    search.maximize(log_probs(first, choices(0)[0]), VALID, choices(0)[1])
    second = torch.tensor(0.0, dtype=first.dtype).requires_grad_()
    other = make_search(second)
    other.load_state(search.state())
    outcomes = [
        each.maximize(log_probs(logit, choices(2)[0]), VALID, choices(2)[1])
        for each, logit in ((search, first), (other, second))
    ]
    assert outcomes[0] == outcomes[1]
    assert torch.equal(first, second)


def test_a_foreign_state_is_refused_and_changes_nothing() -> None:
    logit = behaviour_logit()
    search = make_search(logit)
    state = search.state() | {"logit": torch.zeros(2)}
    with pytest.raises(ArtefactError, match=r"has logit of shape \(2,\) instead of \(\)"):
        search.load_state(state)
    del state["logit"]
    with pytest.raises(ArtefactError, match="logit of shape None"):
        search.load_state(state)
    assert logit.item() == pytest.approx(np.log(4.0))


def test_numbers_that_are_not_finite_end_the_search() -> None:
    logit = behaviour_logit()
    actions, near = choices(0)
    broken = log_probs(logit, actions)
    with pytest.raises(NonFiniteError, match="the state entropy is nan and its gradient has norm"):
        make_search(logit).maximize(lambda: broken() * torch.nan, VALID, near)
    assert logit.item() == pytest.approx(np.log(4.0))
