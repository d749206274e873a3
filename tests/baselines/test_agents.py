"""All agents behind one interface; plans of R-max and estimates of MEPOL against brute force."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from same_files import assert_same
from scipy.special import digamma, gamma
from small_agents import BONUS_AGENTS, SMALL, lines_of
from small_envs import ENVIRONMENTS, GRID
from torch import Tensor, nn
from walks import numbered

import rover
from rover.baselines import make_agent, resume_agent
from rover.baselines.mepol import _log_weights, _maximize_entropy, _MepolConfig, _Neighbourhoods
from rover.baselines.rmax import _optimal, _optimistic_values
from rover.data import Buffer
from rover.envs import GridWorld
from rover.errors import ConfigurationError, RoverWarning
from rover.features import AdamW
from rover.learners import DDPGConfig
from rover.policies import NetworkPolicy, PlannedPolicy
from rover.storage import read_json, read_lines
from rover.training.agent import Agent
from rover.world.counts import Counts

QUICK: dict[str, Any] = {"policy_every": 25, "checkpoint_every": 25, "evaluation_episodes": 2}


def test_the_policy_is_the_plan_with_ties_uniform():
    agent = make_agent("rmax", GridWorld("two_rooms"), seed=1, **QUICK)
    agent.learn(25)
    table = agent.policy.probs(agent.buffer.observations.rows)
    tried = np.zeros(table.shape, np.bool_)
    tried[agent.buffer.inputs, agent.buffer.actions] = True
    for x in np.flatnonzero(~tried.all(axis=1)):  # an untried action is the nearest unknown pair
        np.testing.assert_allclose(table[x], ~tried[x] / (~tried[x]).sum(), rtol=1e-12)
    unseen = np.setdiff1d(np.arange(40), agent.buffer.observations.rows)[:3]
    np.testing.assert_allclose(agent.policy.probs(unseen), 0.25)


def test_a_world_that_is_known_is_walked_uniformly():
    agent = make_agent("rmax", GridWorld("S...", horizon=20), seed=1, **QUICK)
    lines = lines_of(agent, 150)
    assert lines[-1]["known_pairs"] == lines[-1]["pairs"] == 16
    assert np.bincount(4 * agent.buffer.inputs + agent.buffer.actions, minlength=16).min() >= 1
    assert lines[-1]["start_value"] == 0.0
    np.testing.assert_allclose(agent.policy.probs(np.arange(4)), 0.25)


def tried(rng, n_states, n_outcomes, n_known, starts) -> Buffer:
    """`n_known` random pairs of a state and one of three actions, each tried `n_outcomes` times."""
    buffer = numbered(n_states, 3, starts=starts)
    for pair in rng.permutation(3 * n_states)[:n_known].repeat(n_outcomes).tolist():
        ends = bool(rng.random() < 0.1)
        buffer.add(pair // 3, pair % 3, int(rng.integers(n_states)), ends, False)
    return buffer


def value_iteration(buffer: Buffer, discount: float) -> np.ndarray:
    """Q (S, A) of the optimistic model, by brute force."""
    n, starts = len(buffer.observations), buffer.starts()
    counts = np.zeros((n, 3, n))
    np.add.at(counts, (buffer.inputs, buffer.actions, buffer.successors), ~buffer.terminated)
    ended = np.zeros(counts.shape[:2])
    np.add.at(ended, (buffer.inputs, buffer.actions), buffer.terminated)
    tries = counts.sum(axis=2) + ended
    values = np.zeros(len(counts))
    for _ in range(400):  # 0.9⁴⁰⁰ is below the rounding of 1
        at_start = np.average(values[starts[0]], weights=starts[1])
        onward = (counts @ values + ended * at_start) / np.maximum(tries, 1)
        q = np.where(tries > 0, discount * onward, 1.0)
        values = q.max(axis=1)
    return q


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    n_states=st.integers(1, 7),
    n_outcomes=st.integers(1, 4),
    share=st.floats(0.0, 1.0),
    n_starts=st.integers(1, 4),
)
def test_values_and_actions_are_those_of_value_iteration(
    seed, n_states, n_outcomes, share, n_starts
):
    rng = np.random.default_rng(seed)
    starts = rng.integers(n_states, size=n_starts)
    buffer = tried(rng, n_states, n_outcomes, int(share * n_states * 3), starts)
    values = _optimistic_values(Counts(buffer), 3, discount=0.9)
    q = value_iteration(buffer, 0.9)
    np.testing.assert_allclose(values.max(axis=1), q.max(axis=1), atol=1e-10)
    assert np.array_equal(_optimal(values), q >= q.max(axis=1, keepdims=True) - 1e-9)


def test_too_many_states_are_refused():
    agent = make_agent("rmax", "MountainCar-v0", seed=0, max_states=20)
    with pytest.raises(ConfigurationError, match="more than max_states = 20 distinct observations"):
        agent.learn(60)


FILES = ("config.json", "policy.safetensors", "buffer.safetensors", "metrics.jsonl")


def small_grid_agent(name: str, run_dir: Path | None = None, **changes: Any) -> Agent[Any]:
    settings = {"seed": 1, **SMALL[name], **changes}
    return make_agent(name, "rover/Grid-v0", env_kwargs=GRID, run_dir=run_dir, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_run_folder_and_what_is_read_from_it(name, tmp_path):
    """Also where learning went in two parts."""
    folder = tmp_path / "run"
    agent = small_grid_agent(name, folder).learn(100)
    assert (agent.name, agent.preset, len(agent.buffer)) == (name, "fast", 100)
    lines = read_lines(folder / "metrics.jsonl")
    assert [line["step"] for line in lines] == ([25, 50, 75, 100] if name != "mepol" else [50, 100])
    assert all(np.isfinite(line["optimality_ratio"]) for line in lines)
    summary = read_json(folder / "summary.json")
    assert (summary["steps"], summary["states_total"]) == (100, 16)
    assert summary["optimality_ratio"] >= 1.0 - 1e-6
    policy = rover.load_policy(folder / "policy.safetensors")
    assert isinstance(policy, NetworkPolicy if name in BONUS_AGENTS else PlannedPolicy)
    assert (policy.details["agent"], policy.details["steps"]) == (name, 100)
    states = np.arange(16)
    np.testing.assert_array_equal(policy.tables(states), agent.policy.tables(states))
    resumed = resume_agent(folder)
    assert (type(resumed), resumed.config) == (type(agent), agent.config)
    assert resumed.num_timesteps == resumed.total_timesteps == 100
    np.testing.assert_array_equal(resumed.policy.tables(states), policy.tables(states))
    small_grid_agent(name, tmp_path / "twice").learn(60).learn(40)
    assert_same(folder, tmp_path / "twice", *FILES)
    another = small_grid_agent(name, seed=2).learn(100)
    assert not np.array_equal(another.buffer.actions, agent.buffer.actions)


@pytest.mark.slow
def test_single_settings_by_mapping_by_dots_or_as_models():
    def config(**settings: Any) -> Any:
        return make_agent("apt", ENVIRONMENTS["state"](), **settings).config

    by_dots = config(**{"learner.batch_size": 9, "n_steps": 2})
    assert (by_dots.learner.batch_size, by_dots.n_steps) == (9, 2)
    assert by_dots.intrinsic == config().intrinsic
    learner = DDPGConfig(batch_size=9)
    assert config(learner=learner).learner == learner


FEW_NEIGHBOURS: dict[str, Any] = {
    "n_trajectories": 3,
    "n_neighbors": 10,
    "hidden_sizes": (16, 16),
    "max_search_steps": 4,
    "evaluation_episodes": 2,
    "checkpoint_every": 1,
}


def brute_force(points: np.ndarray, weights: np.ndarray, k: int) -> tuple[float, float]:
    """Entropy and divergence by the formulas, loop by loop."""
    n, p = points.shape
    entropy = divergence = 0.0
    for i in range(n):
        distances = np.linalg.norm(points - points[i], axis=1)
        distances[i] = np.inf
        nearest = np.argsort(distances)[:k]
        mass = weights[nearest].sum()
        volume = distances[nearest[-1]] ** p * math.pi ** (p / 2) / gamma(p / 2 + 1)
        entropy -= mass / k * math.log(mass / volume)
        divergence += math.log(k / n / mass) / n
    return entropy + math.log(k) - digamma(k), divergence


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**32),
    n=st.integers(4, 30),
    p=st.integers(1, 4),
    share=st.floats(0.05, 0.95),
    sharpness=st.floats(0.0, 5.0),
)
def test_estimates_are_those_of_brute_force(seed, n, p, share, sharpness):
    rng = np.random.default_rng(seed)
    points, k = rng.normal(size=(n, p)), max(1, int(share * (n - 1)))
    log_weights = torch.log_softmax(torch.from_numpy(sharpness * rng.normal(size=n)), 0)
    near = _Neighbourhoods(points, k)
    entropy, divergence = brute_force(points, log_weights.exp().numpy(), k)
    assert near.entropy(log_weights).item() == pytest.approx(entropy, abs=1e-9)
    assert near.divergence(log_weights).item() == pytest.approx(divergence, abs=1e-9)


def test_importance_weights_by_hand_and_far_from_the_behaviour_policy():
    log_ratios = torch.log(torch.tensor([2.0, 3.0, 0.5, 1.0, 4.0]))
    weights = _log_weights(log_ratios, [2, 3]).exp()
    torch.testing.assert_close(weights, torch.tensor([2.0, 6.0, 0.5, 0.5, 2.0]) / 11.0)
    far = torch.tensor([-500.0] * 4 + [500.0] * 4, dtype=torch.float64).requires_grad_()
    near = _Neighbourhoods(np.arange(8.0)[:, None], 2)
    log_weights = _log_weights(far, [4, 4])
    total = near.entropy(log_weights) + near.divergence(log_weights)
    total.backward()
    assert bool(torch.isfinite(far.grad).all())


class Choice:
    """A policy that chooses the second of two places with the logistic function of a logit."""

    def __init__(self) -> None:
        self.logit = nn.Parameter(torch.tensor(np.log(4.0)))  # probability 0.8
        self.optimizer = AdamW("the search", nn.ParameterDict({"logit": self.logit}), 0.05)

    def search(self, seed: int, *, factor: float = 1.0, **changes: Any) -> dict[str, float]:
        """Search on 300 trajectories of one choice, 0.8 to the second place, far from the first."""
        rng = np.random.default_rng(seed)
        actions = (np.arange(300) % 5 > 0).astype(np.int64)
        near = _Neighbourhoods((5.0 * actions + rng.random(actions.shape))[:, None], 3)
        signs = torch.from_numpy(2.0 * actions - 1.0)
        usual = {"kl_threshold": 1.0, "max_search_steps": 10, "max_backtracks": 3}
        return _maximize_entropy(
            self.optimizer,
            lambda: factor * torch.nn.functional.logsigmoid(signs * self.logit),
            [1] * 300,
            near,
            _MepolConfig(**{**usual, **changes}),
        )

    def state(self) -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in self.optimizer.tensors().items()}


def test_the_search_climbs_to_the_even_choice():
    choice = Choice()
    found = choice.search(0, max_search_steps=60)
    # entropy ln 2 over places of length 1; KL of (0.8, 0.2) from (0.5, 0.5)
    assert found["search_steps"] == 60
    assert found["state_entropy_before"] == pytest.approx(0.500, abs=0.1)
    assert found["state_entropy"] == pytest.approx(np.log(2.0), abs=0.1)
    assert found["kl"] == pytest.approx(0.193, abs=0.06)
    assert torch.sigmoid(choice.logit).item() == pytest.approx(0.5, abs=0.08)


def test_steps_beyond_the_trust_region_are_taken_back():
    choice = Choice()
    found = choice.search(1, kl_threshold=0.01, max_search_steps=100, max_backtracks=4)
    assert found["backtracks"] == 5
    assert 0 < found["search_steps"] < 50
    assert found["kl"] <= 0.01
    # Adam's own step count says that what was taken back left no trace
    assert choice.state()["optimizer.step.logit"].item() == found["search_steps"]


def test_trajectories_end_with_their_episodes_or_at_the_horizon():
    env = GridWorld("S..G", goal="marked", horizon=30)
    agent = make_agent("mepol", env, seed=3, **FEW_NEIGHBOURS)
    agent._horizon = 12
    lines = lines_of(agent, 300)
    ends = np.cumsum([line["batch_steps"] for line in lines])
    assert [line["step"] for line in lines] == ends.tolist()
    lengths = [0]
    for done in agent.buffer.is_end.tolist():
        lengths[-1] += 1
        if done or lengths[-1] == 12:
            lengths.append(0)
    sizes = [sum(lengths[i : i + 3]) for i in range(0, len(lengths) - 3, 3)]
    assert [line["batch_steps"] for line in lines] == sizes


def test_grid_worlds_have_the_coordinates_of_their_cells():
    env = GridWorld("S..\n.#.\n...", observation="onehot", horizon=20)
    agent = make_agent("mepol", env, **FEW_NEIGHBOURS).learn(70)
    table, rows = agent.buffer.observations.rows, env.finite_mdp.observations
    cells = [
        env.layout.cells[next(s for s, row in enumerate(rows) if np.array_equal(row, seen))]
        for seen in table
    ]
    repeated = np.repeat(np.arange(len(table)), 1000)
    offsets = agent._points(repeated) - np.stack(cells)[repeated]
    assert np.abs(offsets).max() <= 0.5
    np.testing.assert_allclose(offsets.mean(axis=0), 0.0, atol=0.02)
    np.testing.assert_allclose(offsets.var(axis=0), 1.0 / 12.0, atol=0.005)


def test_batches_with_too_few_states_or_without_a_metric_are_refused():
    for name in ("numbers", "pixels", "lake"):
        with pytest.raises(ConfigurationError, match="needs distances between states"):
            make_agent("mepol", ENVIRONMENTS[name](), **FEW_NEIGHBOURS)
    with pytest.warns(RoverWarning, match="5 steps were too few for a policy"):
        make_agent("mepol", GridWorld("S.."), **FEW_NEIGHBOURS).learn(5)
    short = GridWorld("S.G", goal="marked", horizon=30)
    agent = make_agent("mepol", short, **{**FEW_NEIGHBOURS, "n_trajectories": 1, "n_neighbors": 29})
    with pytest.raises(ConfigurationError, match="29 nearest neighbours were asked for among"):
        agent.learn(300)
