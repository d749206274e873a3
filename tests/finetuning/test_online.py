"""Fine-tuning: what is transferred, what learns when, what a run leaves and hands over."""

import copy
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn
from transfer_cases import (
    BEST,
    QUICK,
    always,
    corridor,
    coverage_policy,
    network_policy,
    solved_policy,
)

from rover.envs import make_env
from rover.errors import ConfigurationError, RoverWarning
from rover.evaluation import greedy_episodes
from rover.finetuning import TaskResult, finetune
from rover.finetuning.run import _Progress, _TaskRun
from rover.policies import CoveragePolicy, NetworkPolicy

EYE = np.eye(9, dtype=np.float32)

# A curve of a run this short goes up and down.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:no reward was seen"),
    pytest.mark.filterwarnings("ignore:.*too few for a policy update"),
]


def quick(policy: Any, steps: int = 600, **changes: Any) -> TaskResult:
    env = changes.pop("env", None) or corridor().make_env()
    return finetune(policy, env, total_timesteps=steps, **{**QUICK, **changes})


def bits(result: TaskResult) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in result.actor.state_dict().items()}


@pytest.mark.parametrize("algorithm", ["ddpg", "sac"])
def test_the_corridor_is_learned_from_rovers_policy(algorithm):
    summary = quick(coverage_policy(), 1000, algorithm=algorithm).summary
    assert summary["best_possible_return"] == summary["best_greedy_return"] == BEST
    assert summary["steps_to_first_success"] < summary["steps_to_best_return"] <= 1000


def test_what_has_learned_acts_as_it_did_while_it_learned():
    """Uniform actions that were mixed into the policy are not mixed into what it becomes."""
    policy = copy.deepcopy(coverage_policy())
    policy.epsilon = 0.5
    actor = quick(policy, 300).actor
    plain = quick(coverage_policy(), 300).actor
    observations = torch.from_numpy(EYE)
    torch.testing.assert_close(actor(observations), plain(observations), rtol=0.0, atol=0.0)
    assert policy.epsilon == 0.5


def test_evaluations_change_nothing_and_another_seed_changes_the_run():
    first = quick(coverage_policy(), 300, seed=4)
    other = quick(coverage_policy(), 300, seed=4, evaluate_every=77)
    for name in ("step", "greedy_return", "critic_loss", "q_mean", "policy_entropy"):
        assert other.curve[-1][name] == first.curve[-1][name]
    assert first.curve != quick(coverage_policy(), 300, seed=5).curve


def test_the_policy_given_is_never_changed_and_is_kept_during_the_warm_up():
    policy = coverage_policy()
    before = policy.weights.detach().clone()
    warm = quick(policy, 140)  # seed steps and warm-up
    assert torch.equal(warm.actor.weights, before)
    learned = quick(policy, 200)
    assert torch.equal(policy.weights, before)
    assert not torch.equal(learned.actor.weights, before)


@pytest.mark.parametrize("algorithm", ["ddpg", "sac"])
def test_the_size_of_rewards_does_not_matter_to_the_learner(algorithm):
    def learned(scale: float) -> TaskResult:
        env = corridor().make_env()
        env = gym.wrappers.TransformReward(env, lambda reward: scale * float(reward))
        return quick(None, 200, env=env, algorithm=algorithm)

    # A power of two, so that scaling loses no bit.
    small, large = learned(1.0), learned(64.0)
    assert bits(small) == bits(large)
    values = [[record["q_mean"] for record in result.curve[1:]] for result in (small, large)]
    assert values[1] == [64.0 * value for value in values[0]]


def test_the_warm_up_lasts_until_returns_differ():
    away, start = corridor(goal=(8, 0)).make_env(), always(2)
    kept = quick(start, 300, env=away)
    assert kept.summary["steps_to_first_success"] is None
    assert torch.equal(kept.actor.bias, start.bias)
    dense = corridor(goal=(8, 0), reward="dense").make_env()
    assert not torch.equal(quick(start, 300, env=dense).actor.bias, start.bias)


@pytest.mark.parametrize(("freeze", "encoder_moves"), [(None, False), (False, True)])
def test_what_is_frozen(freeze, encoder_moves):
    policy = coverage_policy()
    actor = quick(policy, 300, freeze_encoder=freeze).actor
    assert isinstance(actor, CoveragePolicy)
    moved = [
        not torch.equal(a, b)
        for a, b in zip(actor.encoder.parameters(), policy.encoder.parameters(), strict=True)
    ]
    assert any(moved) == encoder_moves
    assert not torch.equal(actor.weights, policy.weights)


@pytest.mark.parametrize("make_policy", [coverage_policy, network_policy])
def test_the_encoder_alone_is_transferred(make_policy):
    policy = make_policy()
    source = policy.encoder if isinstance(policy, CoveragePolicy) else policy.networks[0].encoder
    for freeze in True, False:
        tuned = quick(policy, 160, transfer="encoder", freeze_encoder=freeze).policy
        assert isinstance(tuned, NetworkPolicy)
        weights: Any = tuned.networks[0].encoder.state_dict()
        same = [torch.equal(weights[name], x) for name, x in source.state_dict().items()]
        assert all(same) == freeze


@pytest.mark.parametrize("settings", [{"n_networks": 3}, {"skills": 4}])
def test_of_a_set_of_policies_one_learns(settings):
    policy = network_policy(**settings)
    result = quick(policy, 400)
    tuned = result.policy
    assert isinstance(tuned, NetworkPolicy)
    assert tuned.n_components == 1
    assert not any(np.allclose(tuned.probs(EYE), table) for table in policy.tables(EYE))


def test_the_policy_with_the_best_returns_of_the_warm_up_is_chosen():
    policy = network_policy(n_networks=3)
    for network, action in zip(policy.networks, (3, 2, 3), strict=True):  # the second goes left
        network.head.biases[-1].data[..., action] = 30.0
    assert quick(policy, 240, warmup_steps=150).curve[-1]["greedy_return"] == BEST


@pytest.mark.parametrize(
    ("policy", "settings", "message"),
    [
        (coverage_policy, {"transfer": "head"}, "unknown transfer 'head'; choose one of"),
        (coverage_policy, {"env": "FrozenLake-v1"}, r"shape \(9,\) with 4 actions, and this"),
        (lambda: nn.Linear(9, 3), {}, r"returned \(1, 3\).*logits of shape \(n, 4\)"),
        (lambda: nn.Linear(9, 4), {"transfer": "encoder"}, "has no encoder to transfer"),
        (lambda: 3, {}, "a int holds no transitions to plan on"),
        (solved_policy, {"transfer": "both"}, "has no encoder to transfer"),
    ],
)
def test_refused_starts_and_settings(policy, settings, message):
    env = make_env(settings["env"]) if "env" in settings else None
    with pytest.raises(ConfigurationError, match=message):
        quick(policy and policy(), **{**settings, "env": env})


RETURNS = [-300, -26, -40, -26, -26, -26.0]


def figures_of(curve, best=None):
    kept: Any = {"_best": (np.zeros(1), 0), "_final": None}
    run: Any = SimpleNamespace(_progress=_Progress(curve), _best_return=best, **kept)
    return _TaskRun._figures(run)


@pytest.mark.parametrize(
    ("returns", "best", "first", "stays"),
    [
        (RETURNS, -26.0, 100, 300),
        (RETURNS[::-1], -26.0, 0, None),
        (RETURNS, -25.0, None, None),
        (RETURNS, None, 100, 300),
        (RETURNS[:3], None, 100, None),
        ([-26.0], -26.0, 0, 0),
    ],
)
def test_events_of_a_curve_by_hand(returns, best, first, stays):
    curve = [{"step": 100 * k, "greedy_return": r} for k, r in enumerate(returns)]
    figures = figures_of(curve, best)
    assert (figures["steps_to_best_return"], figures["steps_to_stay_at_best"]) == (first, stays)
    assert figures["best_return_kind"] == ("reached" if best is None else "possible")
    assert figures["greedy_return"] == returns[-1]
    uneven = [{"step": s, "greedy_return": r} for s, r in ((0, -10.0), (100, 0.0), (400, -4))]
    assert figures_of(uneven)["area_under_curve"] == (-5.0 * 100 + -2.0 * 300) / 400


class Endless(gym.Wrapper):
    def step(self, action):
        observation, reward, _, _, info = self.env.unwrapped.step(action)
        self.env.unwrapped._episode_over = False
        return observation, reward, False, False, info


def test_an_episode_that_never_ends(monkeypatch):
    for limit in ("_MAX_STEPS", "_UNLIMITED_STEPS"):
        monkeypatch.setattr(f"rover.evaluation.regret.{limit}", 50)
    env = Endless(corridor().make_env())
    with pytest.warns(RoverWarning, match="did not end within 50 steps"):
        returns = greedy_episodes(env, always(0), seed=0, n_episodes=4)
    assert len(returns) == 1


def test_of_several_best_policies_the_earliest_learned_one_is_handed_over_and_learning_may_stop():
    settings = {"warmup_steps": 40, "evaluate_every": 50}
    result, short = (quick(always(2), 400, **settings, stop_after=after) for after in (None, 3))
    assert [record["step"] for record in short.curve] == [0, 50, 100, 150, 200]  # 2 warm up
    assert [record["greedy_return"] for record in result.curve] == [BEST] * 9
    assert result.summary["policy_step"] == 100  # the first evaluation after the warm-up
    assert result.summary["policy_return"] == BEST


def test_the_best_policy_is_handed_over_and_not_the_last_one():
    start = always(2, logit=0.3)
    # Learning leads to the right, and evaluations ask for the left.
    tasks = iter((corridor(goal=(8, 0), reward="dense"), corridor()))
    settings = {**QUICK, "warmup_steps": 0, "evaluate_every": 400}
    result = finetune(start, lambda: next(tasks).make_env(), total_timesteps=400, **settings)
    assert [record["greedy_return"] for record in result.curve] == [BEST, -30.0]
    assert (result.summary["policy_step"], result.summary["greedy_return"]) == (0, -30.0)
    assert torch.equal(result.actor.bias, start.bias)


def test_a_run_without_a_reward_ends_with_a_warning():
    away = corridor(goal=(8, 0)).make_env()
    message = "no reward was seen in 200 transitions.*choose a task whose reward is met sooner"
    with pytest.warns(RoverWarning, match=message):
        result = finetune(always(2), away, total_timesteps=200, **QUICK)
    assert result.summary["reward_seen"] is False
