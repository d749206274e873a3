"""The presets beside what was published, and that the settings they need do what they say."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rover import Rover, load_policy
from rover.coverage.config import RoverConfig
from rover.coverage.resolve import choose_encoder, resolve
from rover.data import Buffer, draw_transitions
from rover.envs import finite_dynamics, make_env
from rover.errors import ArtefactError, ConfigurationError, RoverWarning
from rover.features import make_encoder
from rover.operators import (
    constant_steps,
    mirror_descend,
    sparse_operator_from_dynamics,
    unchecked_steps,
)
from rover.policies import policy as policies
from rover.storage import JsonLines, write_sealed
from rover.training.config import validate_settings

ONE_HOT, IMAGE = spaces.Box(0, 1, (109,), np.float32), spaces.Box(0, 255, (84, 84, 3), np.uint8)
NAMES = ("paper", "code-2026-06", "code-2026-02", "code-2026-02-pixels")
TABLE: dict[str, tuple[Any, ...]] = {
    "kernel": ("linear",) * 4,
    "normalization": ("l1",) * 4,
    "feature_dim": (200,) * 4,
    "temperature": (1.0,) * 4,
    "batch_size": (1024,) * 4,
    "learning_rate": (1e-3,) * 4,
    "encoder_every": (1,) * 4,
    "encoder_updates": (1,) * 4,
    "encoder_tolerance": (None,) * 4,
    "collect": ("policy",) * 4,
    "seed_steps": (2000,) * 4,
    "sink_warmup": (50_000,) * 4,
    "warm_start": (False,) * 4,
    "unseen_starts": (False,) * 4,
    "mirror_tolerance": (0.0,) * 4,
    "discovery_steps": (None,) * 4,
    "initial_gain": (1.0,) * 4,
    "encoder": ("paper", "paper", "paper", "flat"),
    "predictor": ("two_layer", "silu", "linear", "linear"),
    "predictor_width": (1024, 1024, None, None),
    "weight_decay": (1e-5, 1e-5, 0.0, 0.0),
    "cosine_updates": (100_000, 100_000, None, None),
    "decay_predictor": (True, False, True, True),
    "batch_weights": ("counts", "episodes", "episodes", "episodes"),
    "ridge": (1e-3, 1e-3, 1e-8, 1e-6),
    "step_rule": ("backtracking", "backtracking", "unchecked", "unchecked"),
    "step_size": (10.0, 10.0, 500.0, 10.0),
    "mirror_steps": (250, 250, 200, 250),
    "policy_every": (1500, 1500, 5000, 1500),
    "policy_share": (0.0,) * 4,
    "first_policy": (300, 300, 2000, 50),
    "exploration_epsilon": (0.15, 0.0, 0.0, 0.0),
    "policy_epsilon": (0.0, 0.15, 0.3, 0.15),
    "sink_norm": (0.05, 0.05, 0.004, 0.004),
    "plan_transitions": (4096, 4096, 5000, 5000),
    "plan_draw": ("uniform", "episodes", "diverse", "subset"),
    "plan_window": (None, None, 50_000, 15_000),
}


def made(preset: str, space: spaces.Space[Any] = ONE_HOT, **overrides: Any) -> RoverConfig:
    settings = {**Rover.presets[preset], **overrides}
    return resolve(validate_settings(RoverConfig, settings), space)


@pytest.mark.parametrize("place", range(4))
def test_presets_are_to_the_letter(place: int) -> None:
    config = made(NAMES[place], IMAGE if "pixels" in NAMES[place] else ONE_HOT)
    assert {name: getattr(config, name) for name in TABLE} == {
        name: values[place] for name, values in TABLE.items()
    }
    assert Rover.presets[NAMES[place]].keys() <= TABLE.keys()


def test_unknown_presets_suggest() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'code-2026-06'"):
        Rover("rover/Corridor-v0", "code-2026-6")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"predictor_width": 64}, "predictor_width=64 does nothing without a predictor of two"),
        ({"decay_predictor": False, "weight_decay": 0.0}, "decay_predictor=False does nothing"),
        ({"plan_draw": "diverse"}, "plan_draw='diverse' does nothing without plan_transitions"),
        (
            {"collect": "policy", "variance_ridge": 0.5},
            "variance_ridge=0.5 does nothing without an",
        ),
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        made("default", **settings)


def test_settings_of_an_encoder_that_nothing_trains_are_named() -> None:
    with pytest.warns(RoverWarning, match=r"learning_rate=0.01 does nothing here: .* used as they"):
        Rover("rover/Corridor-v0", learning_rate=0.01)
    with warnings.catch_warnings():  # a preset's own are for the environments that need them
        warnings.simplefilter("error")
        paper = Rover("rover/Corridor-v0", "paper", kernel=None)
        Rover("rover/Corridor-v0", **paper.config.model_dump())
        Rover("rover/Corridor-v0", env_kwargs={"observation": "onehot"}, learning_rate=0.01)


@pytest.mark.parametrize(("preset", "inputs"), [("paper", 49), ("code-2026-02-pixels", 35 * 35)])
def test_the_image_heads(preset: str, inputs: int) -> None:
    config = choose_encoder(made(preset, IMAGE), IMAGE)
    encoder = make_encoder(config, torch.Generator().manual_seed(0), gain=1.0)
    assert encoder.output.weight.shape == (200, 32 * inputs)
    has_norm = any("layer_norm" in name for name, _ in encoder.named_parameters())
    assert has_norm == (preset == "paper")
    torch.testing.assert_close(
        torch.linalg.svdvals(encoder.output.weight.detach()), torch.ones(200)
    )
    features = encoder.features(np.random.default_rng(0).integers(0, 256, (2, 84, 84, 3), np.uint8))
    np.testing.assert_allclose(np.abs(features).sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize(("side", "padded"), [(14, True), (15, False)])
def test_images_that_nothing_would_be_left_of_are_padded(side: int, padded: bool) -> None:
    space = spaces.Box(0, 255, (side, 40, 3), np.uint8)
    config = choose_encoder(made("code-2026-02-pixels", space), space)
    assert config.padding == padded
    encoder = make_encoder(config, torch.Generator().manual_seed(0))
    assert encoder.features(np.zeros((1, side, 40, 3), np.uint8)).shape == (1, 200)


def buffer_of(lengths: list[int], unfinished: int = 0) -> Buffer:
    """Episodes of these lengths, in which each transition has an observation of its own."""
    buffer = Buffer((), np.int64, 2)
    ends = np.cumsum(lengths) - 1
    for row in range(sum(lengths) + unfinished):
        here, there = buffer.observations.intern(np.int64(row)), row
        buffer.add(here, row % 2, there, False, row in ends)
    return buffer


def test_draws_by_episodes_are_of_finished_ones_each_alike() -> None:
    buffer, rng = buffer_of([2, 6, 2], unfinished=5), np.random.default_rng(0)
    drawn = draw_transitions(buffer, 30_000, "episodes", rng)
    expected = np.repeat([1 / 6, 1 / 18, 1 / 6, 0.0], [2, 6, 2, 5])
    np.testing.assert_allclose(np.bincount(drawn, minlength=15) / 30_000, expected, atol=0.01)
    drawn = draw_transitions(buffer, 1000, "episodes", rng, window=9)  # the second from its end
    assert set(drawn) == set(range(6, 10))
    assert set(draw_transitions(buffer_of([], 4), 100, "episodes", rng)) == {0, 1, 2, 3}


def test_draws_from_a_window_with_and_without_replacement() -> None:
    buffer, rng = buffer_of([10]), np.random.default_rng(0)
    assert draw_transitions(buffer, None, "uniform", rng, window=4).tolist() == [6, 7, 8, 9]
    assert set(draw_transitions(buffer, 99, "uniform", rng, window=4)) == {6, 7, 8, 9}
    assert len(set(draw_transitions(buffer, 7, "subset", rng))) == 7
    assert draw_transitions(buffer, 12, "diverse", rng).tolist() == list(range(10))


def test_the_most_diverse_draw_has_the_largest_determinant_of_a_hundred() -> None:
    buffer = Buffer((), np.int64, 2)
    for x, a in np.random.default_rng(1).integers(0, [6, 2], (40, 2)).tolist():
        buffer.add(buffer.observations.intern(np.int64(x)), a, 0, False, False)
    drawn = draw_transitions(buffer, 12, "diverse", np.random.default_rng(2))
    rng, best = np.random.default_rng(2), (-math.inf, np.zeros(0))
    for rows in (rng.choice(40, size=12, replace=False) for _ in range(100)):
        pairs = np.eye(12)[2 * buffer.inputs[rows] + buffer.actions[rows]]
        log_det = np.linalg.slogdet(pairs @ pairs.T + 1e-6 * np.eye(12))[1]
        best = max(best, (log_det, rows), key=lambda each: each[0])
    assert sorted(drawn) == sorted(best[1])


SMALL: dict[str, Any] = {
    "hidden_sizes": (8,),
    "feature_dim": 6,
    "predictor_width": 5,
    "batch_size": 16,
    "encoder_every": 20,
    "mirror_steps": 3,
    "evaluation_episodes": 2,
    "plan_transitions": 50,
}


def corridor(preset: str, **settings: Any) -> Rover:
    where = {"observation": "onehot", "length": 9, "horizon": 10}
    return Rover("rover/Corridor-v0", preset, env_kwargs=where, **{**SMALL, **settings})


@pytest.mark.parametrize(
    ("first", "steps"), [(7, [27, 50, 75]), (5, [25, 50, 75]), (None, [25, 50, 75]), (0, [20, 25])]
)
def test_the_first_policy(first: int | None, steps: list[int]) -> None:
    lines: list[int] = []
    agent = corridor("paper", seed_steps=20, policy_every=25, first_policy=first)
    agent.learn(steps[-1], callback=lambda line: lines.append(line["step"]) is None)
    assert lines == steps


def test_policies_become_rarer_as_the_data_grows() -> None:
    lines: list[int] = []
    quick = {"policy_every": 10, "mirror_steps": 3, "evaluation_episodes": 2}
    agent = Rover("rover/Corridor-v0", policy_share=0.25, **quick)
    agent.learn(130, callback=lambda line: lines.append(line["step"]) is None)
    assert lines == [10, 20, 30, 40, 50, 60, 70, 80, 100, 120]


def test_encoder_batches_by_finished_episodes() -> None:
    agent = corridor("code-2026-06", seed_steps=5, first_policy=5).learn(38)
    counts, drawn = agent._representation._draw_batch()
    finished = {*zip(agent.buffer.inputs[:30], agent.buffer.actions[:30], strict=True)}
    assert drawn.sum() == 16
    assert {*zip(counts.inputs, counts.actions, strict=True)} <= finished


def test_a_policy_keeps_its_share_of_uniform_actions(tmp_path: Path) -> None:
    agent = corridor("code-2026-06", seed_steps=20, first_policy=10).learn(40)
    policy, observations = agent.policy, np.eye(9, dtype=np.float32)
    shares = torch.softmax(policy.regressors(torch.from_numpy(observations)) @ policy.weights, 1)
    expected = 0.85 * shares.detach().numpy() + 0.15 / 4
    np.testing.assert_allclose(policy.probs(observations), expected, rtol=1e-12)
    policy.save(tmp_path / "policy")
    assert np.array_equal(
        load_policy(tmp_path / "policy").probs(observations), policy.probs(observations)
    )
    for stored, words in ((None, None), (2.0, "share of uniform actions is 2"), ("x", "float")):
        content = {"type": policy.file_type, "details": {}, **policy.content(), "epsilon": stored}
        if words is None:  # a file of version 0.2
            del content["epsilon"]
        write_sealed(tmp_path / "other", content, kind=policies.POLICY_KIND)
        if words is None:
            assert load_policy(tmp_path / "other").epsilon == 0.0  # type: ignore[attr-defined]
            continue
        with pytest.raises(ArtefactError, match=words):
            load_policy(tmp_path / "other")


def test_unchecked_steps_end_with_the_last_iterate() -> None:
    """Of steps so large that the objective rises in the end."""
    problem = finite_dynamics(make_env("rover/TwoRooms-v0", {}))
    assert problem is not None
    dynamics = problem.dynamics
    operator = sparse_operator_from_dynamics(dynamics.transition, dynamics.start)
    found = {}
    for rule in (constant_steps(1e4), unchecked_steps(1e4)):
        result = mirror_descend(
            operator, operator.start, discount=0.99, sink_norm=0.0, n_steps=6, step_rule=rule
        )
        found[rule.keep_best] = result
        assert result.objectives == found[True].objectives
    objectives = found[True].objectives
    assert found[True].occupancy.objective == min(objectives) < objectives[-1]
    assert found[False].occupancy.objective == objectives[-1]


def test_one_grid_of_measurements_and_a_second_horizon(tmp_path: Path) -> None:
    agent = corridor(
        "paper",
        seed_steps=0,
        first_policy=15,
        policy_every=20,
        evaluation_every=40,
        second_horizon=300,
        run_dir=tmp_path / "run",
    ).learn(140)
    lines = JsonLines.read(tmp_path / "run" / "metrics.jsonl")
    measured = [line for line in lines if "mean_coverage" in line]
    assert [line["step"] for line in measured] == [15, 40, 80, 120]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["second_coverage"] > summary["mean_coverage"]
    assert summary["second_p_coverage_95"] > 0.5 > summary["p_coverage_95"]
    assert agent.measures.evaluator is not None
    assert agent.measures.evaluator.horizon == 10
