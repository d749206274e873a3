"""A learner with an intrinsic reward: what is common to RND, SMM, APT, MAXENT and CIC."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from small_agents import BONUS_AGENTS, small_agent
from torch import Tensor

from rover.data import Batch, n_step_batch, sample_windows
from rover.envs import GridWorld
from rover.errors import ConfigurationError
from rover.features import Observations


@pytest.mark.slow
@pytest.mark.parametrize("name", BONUS_AGENTS)
def test_all_agents_spend_their_budget_alike(name, monkeypatch):
    """The same uniform seed steps and updates; and no further environment step, but for the random
    walks that an end of a run is measured by."""
    taken, step = [], GridWorld.step

    def counted(self: Any, action: Any) -> Any:
        taken.append(self)
        return step(self, action)

    monkeypatch.setattr(GridWorld, "step", counted)
    agent = small_agent(name, "onehot", measure_share=0.0)
    agent.learn(100)
    n_taken = sum(one is agent.env.unwrapped for one in taken)  # and no instance beside it
    assert len(agent.buffer) == agent.num_timesteps == n_taken == 100
    # Every third step from the first one after the 40 seed steps: 42, 45, ..., 99.
    assert int(agent._learner.state()["optimizer.step.actor.head.weights.0"]) == 20


@pytest.mark.parametrize("name", ["rnd", "smm", "maxent"])
@pytest.mark.parametrize(("seed_steps", "epsilon"), [(0, 0.25), (10_000, 0.0)])
def test_actions_are_those_of_the_policy_and_uniform_ones(name, seed_steps, epsilon):
    agent = small_agent(
        name, "onehot", seed_steps=seed_steps, exploration_epsilon=epsilon, policy_every=1
    )
    agent.learn(1)
    with torch.no_grad():
        agent._learner.actor.head.biases[-1].copy_(torch.tensor([[[0.0, 1.0, 2.0, 0.5]]]))
    agent._tabulated.forget()
    raw = torch.tensor(agent.buffer.observations.rows[:1])
    skill = None if agent._skill is None else torch.from_numpy(agent._skill[None])
    logits = agent._learner.actor(raw, skill)[0]
    share = 1.0 if seed_steps else epsilon
    probs = torch.softmax(logits.detach().double(), dim=0).numpy()
    expected = (1.0 - share) * probs + share / 4
    n = 4000
    shares = np.bincount([agent._act(0) for _ in range(n)], minlength=4) / n
    np.testing.assert_allclose(shares, expected, atol=4 * math.sqrt(0.25 / n))


@pytest.mark.parametrize(("name", "every"), [("smm", None), ("cic", 7)])
def test_skills_change_with_episodes_and_every_so_many_steps(name, every):
    agent = small_agent(name, "onehot", skill_every=every, seed_steps=150)
    agent.learn(200)
    skills, step = agent.buffer.skills, np.arange(1, 200)
    changed = (skills[1:] != skills[:-1]).any(axis=1)
    if every is None:  # one of four, which may be drawn again
        assert changed.any()
        assert not changed[step % 30 != 0].any()  # episodes have 30 steps
    else:
        np.testing.assert_array_equal(changed, (step % every == 0) | (step % 30 == 0))


@pytest.mark.slow
def test_maxent_mixes_the_policies_of_its_rounds():
    agent = small_agent("maxent", "state")
    reward = agent._reward
    agent.learn(39)
    assert reward.density is None
    agent.learn(1)  # the seed steps are the first round, and its policy is the new one
    table = agent.buffer.observations.rows
    visits = agent.buffer.visits()
    np.testing.assert_array_equal(reward.density.weights, visits / visits.sum())
    np.testing.assert_allclose(
        torch.softmax(agent._rounds[0](torch.tensor(table)), dim=1).numpy(), 0.25, atol=0.02
    )
    agent.learn(135)  # rounds end at steps 40, 100 and 160
    tables = agent.policy.tables(table)
    assert len(tables) == 4
    np.testing.assert_array_equal(agent.policy.probs(table), tables.mean(axis=0))
    before = tables[:3]
    agent.learn(25)
    np.testing.assert_array_equal(agent.policy.tables(table)[:3], before)


class NumberedReward:
    """The row of the reached observation in the buffer's table, as a reward."""

    observations = Observations((), "int64", n_states=23)

    def __init__(self) -> None:
        self.seen: list[int] = []

    def note(self, observation: np.ndarray, *, done: bool, episode: int) -> None:
        pass

    def update(self, batch: Batch) -> tuple[Tensor, dict[str, float]]:
        self.seen.append(len(batch))
        return batch.observations[batch.valued_index].float(), {}


def learned_from(agent: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Batch, Tensor, Tensor]]:
    """Batches, returns and discounts that the learner of an agent is given from now on."""
    given: list[tuple[Batch, Tensor, Tensor]] = []
    update = agent._learner.update
    monkeypatch.setattr(agent, "_reward", NumberedReward())
    monkeypatch.setattr(
        agent._learner, "update", lambda *words: (given.append(words), update(*words))[1]
    )
    return given


@pytest.mark.parametrize("n_steps", [1, 3])
def test_the_learner_gets_n_step_returns(n_steps, monkeypatch):
    agent = small_agent("rnd", "state", n_steps=n_steps, learner_discount=0.9, reward_scale="raw")
    given = learned_from(agent, monkeypatch)
    agent.learn(41)  # 40 seed steps; the only episode end is after step 30
    rng = np.random.Generator(type(agent._batch_rng.bit_generator)())
    rng.bit_generator.state = agent._batch_rng.bit_generator.state
    rows, lengths = sample_windows(agent.buffer, 24, rng, n_steps=n_steps)
    agent._learn()
    batch, returns, discounts = given[-1]
    reached = torch.from_numpy(agent.buffer.observations.rows[agent.buffer.successors[rows]])
    expected = n_step_batch(agent.buffer, rows, lengths, reached.float(), discount=0.9)
    torch.testing.assert_close((returns, discounts), expected[1:])
    for name in ("index", "next_index", "observations", "actions"):
        assert torch.equal(getattr(batch, name), getattr(expected[0], name)), name
    assert agent._reward.seen[-1] == lengths.sum()  # nothing is learned twice to fill a window up


@pytest.mark.parametrize("window", ["first", "last"])
def test_a_window_may_have_one_reward(window, monkeypatch):
    """Of the observation that it begins or ends with, and one γ before its bootstrap."""
    settings: dict[str, Any] = {"n_steps": 3, "learner_discount": 0.9, "reward_scale": "raw"}
    agent = small_agent("rnd", "state", window=window, **settings)
    given = learned_from(agent, monkeypatch)
    agent.learn(60)
    agent._learn()
    batch, returns, discounts = given[-1]
    end = batch.index if window == "first" else batch.next_index
    assert torch.equal(returns, batch.observations[end].float())
    assert bool((discounts == 0.9).all())
    moved = batch.observations[batch.next_index] - batch.observations[batch.index]
    assert int(moved.abs().max()) > 1  # it leads to where its last step does


@pytest.mark.parametrize("mode", ["raw", "std", "standard"])
def test_rewards_are_scaled_by_all_that_came_before(mode):
    agent, rng = small_agent("rnd", "state", reward_scale=mode), np.random.default_rng(0)
    batches = [torch.from_numpy(5.0 + 3.0 * rng.standard_normal(n)) for n in (7, 1, 20)]
    for number, batch in enumerate(batches):
        so_far = torch.cat(batches[: number + 1]).numpy()
        shift = so_far.mean() if mode == "standard" else 0.0
        scale = 1.0 if mode == "raw" else so_far.std()
        np.testing.assert_allclose(agent._scaled(batch), (batch.numpy() - shift) / scale, rtol=1e-5)
    constant = small_agent("rnd", "state", reward_scale=mode)._scaled(torch.full((4,), 1000.0))
    assert constant.tolist() == [0.0 if mode == "standard" else 1000.0] * 4  # no scale of its own


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", BONUS_AGENTS)
def test_a_gpu_learns_what_the_cpu_learns(name):
    here, there = (small_agent(name, "onehot", device=device) for device in ("cpu", "cuda"))
    for agent in (here, there):
        agent.learn(40)  # uniform actions alone
    there._load_agent_state(here._agent_state())  # the same weights
    for _ in range(3):
        for agent in (here, there):
            agent._learn()
        assert there._figures_of_update == pytest.approx(here._figures_of_update, rel=1e-3)
    there.learn(60)
    tensors = (*there.policy.state_dict().values(), *there._agent_state()["learner"].values())
    assert {tensor.device.type for tensor in tensors} == {"cpu"}, "what is handed over"
    assert {tensor.device.type for tensor in there._learner._tensors().values()} == {"cuda"}


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigurationError, match="torch finds no GPU"):
        small_agent("rnd", "onehot", device="cuda").learn(1)
