"""A learner with an intrinsic reward: what is common to RND, SMM, APT, MAXENT and CIC."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from small_envs import ENVIRONMENTS, Place
from small_peers import bonus_of, small_peer
from torch import Tensor

from rover.baselines.bonus import _counted_steps, observation_spec
from rover.baselines.maxent import MaxEnt
from rover.baselines.methods import BONUS_METHODS
from rover.baselines.observation import ObservationSpec
from rover.baselines.reward_scaling import RewardScaler
from rover.data import NStepSampler, ReplayBuffer
from rover.envs import GridWorld
from rover.errors import ConfigurationError
from rover.types import Batch

KINDS = ("onehot", "state", "vector", "short vector", "pixels", "lake")


def lines_of(agent: Any, steps: int) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    agent.learn(steps, callback=lambda line: lines.append(dict(line)))
    return lines


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", BONUS_METHODS)
def test_every_method_on_every_kind_of_observation(method: str, kind: str) -> None:
    agent = small_peer(method, kind)
    lines = lines_of(agent, 75)
    assert [line["step"] for line in lines] == [25, 50, 75]
    json.dumps(lines, allow_nan=False)
    assert {"reward_mean", "critic_loss", "policy_entropy"} <= lines[-1].keys()
    assert 0.0 <= lines[-1]["policy_entropy"] <= math.log(agent.policy.n_actions) + 1e-6
    table = agent.buffer.observations.rows
    probs = agent.policy.probs(table)
    np.testing.assert_allclose(probs.sum(axis=1), 1.0, atol=1e-12)
    assert probs.shape == (len(table), agent.policy.n_actions)


@pytest.mark.parametrize("method", BONUS_METHODS)
def test_one_seed_gives_the_same_bits_and_another_others(method: str) -> None:
    one, same, other = (small_peer(method, "onehot", seed) for seed in (3, 3, 4))
    lines = [lines_of(agent, 100) for agent in (one, same, other)]
    assert lines[0] == lines[1]
    assert lines[0] != lines[2]
    np.testing.assert_array_equal(one.buffer.actions, same.buffer.actions)
    assert not np.array_equal(one.buffer.actions, other.buffer.actions)
    found = same.policy.state_dict()  # type: ignore[attr-defined]
    for name, tensor in one.policy.state_dict().items():  # type: ignore[attr-defined]
        assert torch.equal(tensor, found[name]), name


def test_all_methods_spend_their_budget_alike() -> None:
    """The same uniform seed steps, the same number of updates, and no hidden environment step."""
    agents = {name: small_peer(name, "onehot") for name in BONUS_METHODS}
    steps = dict.fromkeys(agents, 0)
    for name, agent in agents.items():
        env, real_step = agent.env.unwrapped, agent.env.unwrapped.step

        def step(action: Any, name: str = name, real_step: Any = real_step) -> Any:
            steps[name] += 1
            return real_step(action)

        env.step = step  # type: ignore[method-assign]
        agent.learn(100)
        assert len(agent.buffer) == agent.num_timesteps == 100
    assert set(steps.values()) == {100}
    # Every third step from the first one after the 40 seed steps: 42, 45, ..., 99.
    assert {bonus_of(agent)._learner.n_updates for agent in agents.values()} == {20}


@pytest.mark.parametrize("method", BONUS_METHODS)
def test_actions_are_those_of_the_policy_and_epsilon_uniform_ones(method: str) -> None:
    agent = small_peer(method, "onehot", seed_steps=0, exploration_epsilon=0.25, policy_every=1)
    agent.learn(1)
    bonus = bonus_of(agent)
    with torch.no_grad():
        bonus._learner.actor.head.biases[-1].copy_(torch.tensor([[[0.0, 1.0, 2.0, 0.5]]]))
    bonus._tabulated.forget()
    skill = None if bonus._skills is None else torch.from_numpy(bonus._skills.current[None])
    raw = torch.from_numpy(agent.buffer.observations.rows[:1])
    policy = torch.softmax(bonus._learner.policy_logits(raw, skill)[0], dim=0).double().numpy()
    expected = 0.75 * policy + 0.25 / 4
    n = 8000
    shares = np.bincount([bonus.act(0) for _ in range(n)], minlength=4) / n
    np.testing.assert_allclose(shares, expected, atol=4 * math.sqrt(0.25 / n))


def test_seed_steps_are_uniform_whatever_the_policy() -> None:
    agent = small_peer("rnd", "onehot", seed_steps=10_000, exploration_epsilon=0.0, policy_every=1)
    agent.learn(1)
    bonus = bonus_of(agent)
    with torch.no_grad():
        bonus._learner.actor.head.biases[-1].copy_(torch.tensor([[[50.0, 0.0, 0.0, 0.0]]]))
    shares = np.bincount([bonus.act(0) for _ in range(8000)], minlength=4) / 8000
    np.testing.assert_allclose(shares, 0.25, atol=0.02)


@pytest.mark.parametrize("method", ["rnd", "smm"])
@pytest.mark.parametrize("kind", ["onehot", "pixels", "short vector"])
def test_what_is_tabulated_is_the_current_policy(method: str, kind: str) -> None:
    """After every step: under the present weights, and for the skill that is followed now."""
    agent = small_peer(method, kind, exploration_epsilon=0.0)
    bonus = bonus_of(agent)
    agent.learn(60)
    n_checked = 0
    for _ in range(20):
        agent.learn(1)
        for observation, entry in bonus._tabulated._entries.items():
            raw = torch.from_numpy(agent.buffer.observations.rows[observation][None])
            skill = None if bonus._skills is None else torch.from_numpy(bonus._skills.current[None])
            probs = torch.softmax(bonus._learner.policy_logits(raw, skill)[0].double(), dim=0)
            np.testing.assert_allclose(
                np.diff(entry.cumulative, prepend=0.0), probs.numpy(), atol=1e-6
            )
            assert entry.greedy == int(probs.argmax())
            n_checked += 1
    assert n_checked > 0


def test_an_episode_of_smm_keeps_its_skill() -> None:
    agent = small_peer("smm", "onehot")
    agent.learn(300)
    skills = bonus_of(agent)._skills
    assert skills is not None
    ends = agent.buffer.truncated | agent.buffer.terminated
    changed = (skills.rows[1:] != skills.rows[:-1]).any(axis=1)
    assert not changed[~ends[:-1]].any()
    assert changed[ends[:-1]].any()
    assert (skills.rows.sum(axis=1) == 1).all()


def test_cic_draws_a_skill_every_so_many_steps_and_each_episode() -> None:
    agent = small_peer("cic", "onehot", skill_every=7)  # episodes have 30 steps
    agent.learn(200)
    skills = bonus_of(agent)._skills
    assert skills is not None
    step = np.arange(1, 200)
    expected = (step % 7 == 0) | (step % 30 == 0)
    np.testing.assert_array_equal((skills.rows[1:] != skills.rows[:-1]).any(axis=1), expected)
    assert skills.rows.min() >= 0.0
    assert skills.rows.max() <= 1.0
    assert small_peer("cic", "onehot").config.skill_every == 50


def test_a_policy_with_skills_is_measured_with_them() -> None:
    smm = small_peer("smm", "state", evaluation_skills=9)
    table = np.arange(5)
    assert smm.policy.tables(table).shape == (4, 5, 4)
    skills = bonus_of(smm)._evaluation_skills
    assert skills is not None
    assert torch.equal(skills.sum(dim=0), torch.ones(4))  # each of the four once
    assert small_peer("cic", "state", evaluation_skills=9).policy.tables(table).shape == (9, 5, 4)


def test_maxent_mixes_the_policies_of_its_rounds() -> None:
    agent = small_peer("maxent", "state")
    bonus = bonus_of(agent)
    reward = bonus._reward
    assert isinstance(reward, MaxEnt)
    agent.learn(39)
    assert reward._density is None
    agent.learn(1)  # the seed steps are the first round, and its policy is the new one
    table = agent.buffer.observations.rows
    visits = agent.buffer.visits()
    assert reward._density is not None
    np.testing.assert_array_equal(reward._density.weights, visits / visits.sum())
    np.testing.assert_allclose(
        torch.softmax(bonus._rounds[0](torch.from_numpy(table)), dim=1).numpy(), 0.25, atol=0.02
    )
    agent.learn(135)  # rounds end at steps 40, 100 and 160
    tables = agent.policy.tables(table)
    assert len(tables) == 4
    np.testing.assert_array_equal(agent.policy.probs(table), tables.mean(axis=0))
    before = tables[:3]
    agent.learn(25)
    np.testing.assert_array_equal(agent.policy.tables(table)[:3], before)


def test_fast_maxent_tells_all_one_hot_states_apart() -> None:
    """Also those that the largest principal components leave out: p̂ is their frequency."""
    agent = small_peer("maxent", "onehot", intrinsic={})
    agent.learn(40)  # the first round ends with the seed steps
    table = torch.from_numpy(agent.buffer.observations.rows)
    everywhere = torch.arange(len(table))
    batch = Batch(table, everywhere, everywhere, everywhere)
    frequency = agent.buffer.visits() / agent.buffer.visits().sum()
    rewards = bonus_of(agent)._reward.reward(batch)
    np.testing.assert_allclose(rewards.numpy(), 1.0 / (frequency + 1e-3), rtol=1e-5)


class NumberedReward:
    """The row of the reached observation in the buffer's table, as a reward."""

    skill_dim = 0

    def __init__(self) -> None:
        self.seen: list[int] = []

    def reward(self, batch: Batch) -> Tensor:
        return batch.observations[batch.next_index].float()

    def update(self, batch: Batch) -> dict[str, float]:
        self.seen.append(len(batch))
        return {}


@pytest.mark.parametrize("n_steps", [1, 3])
def test_the_learner_gets_n_step_returns(n_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = small_peer("rnd", "state", n_steps=n_steps, learner_discount=0.9, reward_scale="raw")
    bonus = bonus_of(agent)
    reward = NumberedReward()
    monkeypatch.setattr(bonus, "_reward", reward)
    given: list[tuple[Batch, Tensor, Tensor]] = []
    update = bonus._learner.update

    def spy(batch: Batch, returns: Tensor, discounts: Tensor) -> Any:
        given.append((batch, returns, discounts))
        return update(batch, returns, discounts)

    monkeypatch.setattr(bonus._learner, "update", spy)
    agent.learn(41)  # 40 seed steps; the only episode end is after step 30
    bonus_rng = np.random.Generator(type(bonus._batch_rng.bit_generator)())
    bonus_rng.bit_generator.state = bonus._batch_rng.bit_generator.state
    starts = bonus_rng.integers(41, size=24)
    bonus._learn()
    batch, returns, discounts = given[-1]
    buffer = agent.buffer
    states = buffer.observations.rows
    n_counted = 0
    for i, start in enumerate(starts):
        total, row = 0.0, int(start)
        for j in range(n_steps):
            row = int(start) + j
            total += 0.9**j * float(states[buffer.successors[row]])
            n_counted += 1
            if buffer.truncated[row] or row == 40:
                break
        assert float(returns[i]) == pytest.approx(total, rel=1e-6)
        assert float(discounts[i]) == pytest.approx(0.9 ** (row - start + 1), rel=1e-6)
        assert int(batch.observations[batch.next_index[i]]) == states[buffer.successors[row]]
        assert int(batch.observations[batch.index[i]]) == states[buffer.inputs[start]]
        assert int(batch.actions[i]) == buffer.actions[start]
    assert reward.seen[-1] == n_counted  # nothing is learned twice to fill a window up


def test_steps_past_the_end_of_a_window_are_left_out() -> None:
    buffer = ReplayBuffer((), np.dtype(np.int64), 2)
    rows = [buffer.observations.intern(np.int64(x)) for x in range(6)]
    buffer.add_start(0)
    for x in rows[:-1]:
        buffer.add(x, x % 2, x + 1, terminated=x == 2, truncated=False)
    skills = np.array([[0.0], [0.0], [0.0], [1.0], [2.0]], np.float32)
    windows = NStepSampler(buffer, n_steps=3).windows(np.array([0, 1, 2, 3, 4]), skills=skills)
    steps, kept = _counted_steps(windows)
    assert windows.lengths.tolist() == [3, 2, 1, 1, 1]
    assert isinstance(kept, Tensor)
    assert kept.tolist() == [0, 1, 2, 3, 4, 6, 9, 12]
    assert steps.observations[steps.index].tolist() == [0, 1, 2, 1, 2, 2, 3, 4]
    assert steps.observations[steps.next_index].tolist() == [1, 2, 3, 2, 3, 3, 4, 5]
    assert steps.actions.tolist() == [0, 1, 0, 1, 0, 0, 1, 0]
    assert steps.skills is not None
    assert steps.skills[:, 0].tolist() == [0.0] * 6 + [1.0, 2.0]
    whole = replace(windows, lengths=np.full(5, 3))
    assert _counted_steps(whole) == (windows.steps, slice(None))


@pytest.mark.parametrize("mode", ["raw", "std", "standard"])
def test_rewards_are_scaled_by_all_that_came_before(mode: Any) -> None:
    rng = np.random.default_rng(0)
    batches = [torch.from_numpy(5.0 + 3.0 * rng.standard_normal(n)) for n in (7, 1, 20)]
    scaler, resumed = RewardScaler(mode), RewardScaler(mode)
    for number, batch in enumerate(batches):
        so_far = torch.cat(batches[: number + 1]).numpy()
        shift = so_far.mean() if mode == "standard" else 0.0
        scale = 1.0 if mode == "raw" else so_far.std()
        np.testing.assert_allclose(scaler(batch), (batch.numpy() - shift) / scale, rtol=1e-9)
        resumed.load_state(json.loads(json.dumps(scaler.state())))
    assert torch.equal(scaler(batches[0]), resumed(batches[0]))


def test_constant_rewards_have_no_scale_of_their_own() -> None:
    assert RewardScaler("std")(torch.full((4,), 1000.0)).tolist() == [1000.0] * 4
    assert RewardScaler("standard")(torch.full((4,), 1000.0)).tolist() == [0.0] * 4


def test_how_observations_are_seen() -> None:
    assert observation_spec(ENVIRONMENTS["state"]()) == ObservationSpec((), "int64", n_states=23)
    assert observation_spec(ENVIRONMENTS["onehot"]()).one_hot
    unit_vector = Place(
        spaces.Box(0, 1, (2,), np.float64), lambda x, y: np.array([x / 5, y / 5], np.float64)
    )
    assert observation_spec(unit_vector) == ObservationSpec((2,), "float64")
    assert observation_spec(GridWorld("S.", observation="pixels")).is_image
    assert observation_spec(gym.make("CartPole-v1")) == ObservationSpec((4,), "float32")
    half = Place(spaces.Box(0, 1, (2,), np.float16), lambda x, y: np.zeros(2, np.float16))
    with pytest.raises(ConfigurationError, match="dtype float16 are not supported; wrap"):
        observation_spec(half)


def test_too_small_a_batch_for_the_neighbours_is_refused() -> None:
    agent = small_peer("apt", "onehot", learner={"batch_size": 2}, n_steps=1)
    with pytest.raises(ConfigurationError, match="nearest neighbours were asked for among 2"):
        agent.learn(60)
