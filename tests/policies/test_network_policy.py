"""Policies that are networks: mixtures, skills and gradients."""

import numpy as np
import pytest
import torch
from small_networks import small_policy

from rover.errors import ConfigurationError, NonFiniteError
from rover.features import Observations
from rover.policies import NetworkPolicy

N_STATES, N_ACTIONS = 7, 3
KINDS = {"one": {}, "mixture": {"n_networks": 3}, "skills": {"skill_dim": 5}}


def make_policy(kind: str) -> NetworkPolicy:
    seen = Observations((), "int64", n_states=N_STATES)
    return small_policy(seen, N_ACTIONS, **KINDS[kind])


STATES = np.arange(N_STATES)


@pytest.mark.parametrize(("kind", "n"), [("one", 1), ("mixture", 3), ("skills", 4)])
def test_probabilities_are_the_mean_of_the_components_and_have_gradients(kind, n):
    policy, states = make_policy(kind), torch.from_numpy(STATES)
    assert (policy.n_components, policy.n_actions) == (n, N_ACTIONS)
    tables = policy.tables(STATES)
    assert tables.shape == (n, N_STATES, N_ACTIONS)
    for k in range(n):
        logits = policy.component_logits(states, k).double()
        np.testing.assert_array_equal(tables[k], torch.softmax(logits, dim=1).numpy())
        if policy.skills is not None:
            direct = policy.networks[0](states, policy.skills[k].repeat(N_STATES, 1))
            torch.testing.assert_close(policy.component_logits(states, k), direct)
    if n > 1:
        assert np.abs(tables[0] - tables[1]).max() > 0.01
    np.testing.assert_array_equal(policy.probs(STATES), tables.mean(axis=0))
    probs = torch.softmax(policy(states), dim=1)
    np.testing.assert_allclose(probs.numpy(), tables.mean(axis=0), atol=1e-6)
    assert not policy(states).requires_grad
    policy.requires_grad_()
    policy(states)[:, 0].sum().backward()
    for parameter in policy.parameters():
        assert parameter.grad is not None
        assert bool(torch.isfinite(parameter.grad).all() & parameter.grad.any())


@pytest.mark.parametrize("kind", ["mixture", "skills"])
def test_actions_of_a_component_and_of_the_mixture(kind):
    policy, rng, n = make_policy(kind), np.random.default_rng(0), 400
    tables = policy.tables(STATES)
    for component in (1, None):
        drawn = [policy.act(np.int64(2), rng, component) for _ in range(n)]
        expected = tables[:, 2].mean(axis=0) if component is None else tables[component, 2]
        shares = np.bincount(drawn, minlength=N_ACTIONS) / n
        np.testing.assert_allclose(shares, expected, atol=0.1)
    components = [policy.draw_component(rng) for _ in range(n)]
    shares = np.bincount(components, minlength=policy.n_components) / n
    np.testing.assert_allclose(shares, 1 / policy.n_components, atol=0.1)


def test_what_cannot_be_asked():
    policy = make_policy("mixture")
    with pytest.raises(ConfigurationError, match="component 3 was asked for, of a policy with 3"):
        policy.act(0, np.random.default_rng(0), 3)
    with torch.no_grad():
        next(policy.parameters()).fill_(float("nan"))
    with pytest.raises(NonFiniteError, match="numbers are NaN or infinite"):
        policy.probs(STATES)
