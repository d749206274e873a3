"""Pictures that do not repeat: seen by slow features, by a function of the buffer alone."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from small_envs import Disc, image_place
from walled_points import WalledPoint

from rover import Rover, load_policy, make_agent, solve
from rover.coverage.represent import Slow
from rover.data import Buffer
from rover.data.images import ImageFeatures, _frames_of
from rover.features.slow import LAG, LaggedSums, bending, coefficients, seen, slow_features
from rover.world.net import units_due
from rover.world.world import lasts_a_lag

QUICK = {"evaluation_episodes": 2}


def _filled(n: int) -> list[Any]:
    """Arguments of `Buffer.add`, and starts, of n random steps."""
    env, rng, steps = Disc(), np.random.default_rng(0), []
    seen, _ = env.reset(seed=0)
    for _ in range(n):
        action = int(rng.integers(4))
        after, _, _, over, _ = env.step(action)
        steps.append((seen, action, after, over))
        seen = env.reset()[0] if over else after
    return steps


def _add(buffer: Buffer, step: Any) -> None:
    before, action, after, over = step
    table = buffer.observations
    if len(buffer) == 0 or buffer.truncated[-1]:
        buffer.add_start(table.intern(before))
    buffer.add(table.intern(before), action, table.intern(after), False, over)


def test_features_follow_from_the_first_transitions_however_often_they_were_looked_at():
    buffer, often = Buffer((16, 16, 3), np.uint8, 4), None
    for step in _filled(190):
        _add(buffer, step)
        if len(buffer) >= 112:
            often = often or ImageFeatures(buffer, 112)
            often.points(buffer.successors[-1:])
    once, every = ImageFeatures(buffer, 112), np.arange(len(buffer.observations))
    early = once.points(every)
    np.testing.assert_array_equal(often.points(every), early)
    np.testing.assert_array_equal(once.encoder.features(buffer.observations.rows), early)
    late = ImageFeatures(buffer, 168).points(every)
    assert early.shape != late.shape or (early != late).any()


def test_pairs_lie_within_episodes():
    buffer, episodes = Buffer((16, 16, 3), np.uint8, 4), []
    for step in _filled(168):  # of 60 steps, and a rest
        _add(buffer, step)
        if not episodes or len(episodes[-1][1]) == 60:
            episodes.append(([step[0]], []))
        episodes[-1][0].append(step[2])
        episodes[-1][1].append(step[1])
    found = ImageFeatures(buffer, units_due(len(buffer)))
    sums, every = LaggedSums(198, 4), torch.tensor(buffer.observations.rows)
    usual = every[torch.tensor(buffer.inputs)].median(dim=0).values
    shares = dict(found.encoder.named_buffers())["shares"]
    for pictures, actions in episodes:
        rows = coefficients(seen(torch.from_numpy(np.array(pictures)), usual, shares), usual)
        for begin in range(len(rows) - LAG):
            before = max(begin - LAG, 0)
            taken = np.zeros((2, 4))
            for step in range(LAG):
                taken[0, actions[begin + step]] += LAG - step
            for step in range(before, begin):
                taken[1, actions[step]] += step - begin + LAG
            each = (rows[[row]] for row in (before, begin, begin + LAG))
            sums.add(*each, torch.tensor(taken.reshape(1, 8)))
    expected = slow_features(sums, bending(16, 16, 3))
    assert len(expected.moved) == 2
    encoder = dict(found.encoder.named_buffers())
    np.testing.assert_array_equal(encoder["mean"], expected.mean)
    # Of either sign, and up to the grid.
    np.testing.assert_allclose(
        encoder["projection"].abs(), expected.projection.abs(), rtol=1e-3, atol=1e-5
    )


def test_marks_that_stay_within_an_episode_are_no_place_of_anything():
    """A disc that is pushed about, and a mark of another colour that lies elsewhere each time."""
    rng, size, buffer = np.random.default_rng(0), 32, Buffer((32, 32, 3), np.uint8, 4)
    ways = np.array([[0.7, 0.0], [-0.7, 0.0], [0.0, 0.7], [0.0, -0.7]])
    at, places = np.stack(np.mgrid[:size, :size], axis=-1) + 0.5, []

    def drawn(place: Any, mark: Any) -> Any:
        picture = np.full((size, size, 3), 40.0)
        for where, colour in ((mark, (200, 20, 90)), (place, (60, 180, 100))):
            cover = np.clip(3.0 - np.linalg.norm(at - where, axis=-1) + 0.5, 0.0, 1.0)[..., None]
            picture += (np.array(colour) - picture) * cover
        return picture.astype(np.uint8)

    for _ in range(8):
        mark, place, action = rng.uniform(18, 28, 2), rng.uniform(6, 26, 2), 0
        before = drawn(place, mark)
        for step in range(100):
            action = int(rng.integers(4)) if step % 5 == 0 else action
            place = np.clip(place + ways[action], 4, size - 4)
            after = drawn(place, mark)
            _add(buffer, (before, action, after, step == 99))
            places.append(place)
            before = after
    points = ImageFeatures(buffer, 800).points(buffer.successors[:800])
    design, wanted = np.column_stack([np.ones(800), points]), np.array(places)
    missed = wanted - design @ np.linalg.lstsq(design, wanted, rcond=None)[0]
    np.testing.assert_array_less((missed**2).mean(axis=0) / wanted.var(axis=0), 0.03)


@pytest.mark.parametrize(("axes", "newest_first"), [((0, 1), True), ((1, 0), False)])
def test_stacked_frames_are_told_from_colours(axes, newest_first):
    colours, stacked = Buffer((16, 16, 3), np.uint8, 4), Buffer((16, 16, 6), np.uint8, 4)
    older: Any = None
    for before, action, after, over in _filled(100):
        _add(colours, (before, action, after, over))
        older = before if older is None else older
        frames = (before, older), (after, before)
        pair = [np.concatenate([two[axes[0]], two[axes[1]]], axis=2) for two in frames]
        _add(stacked, (pair[0], action, pair[1], over))
        older = None if over else before
    assert _frames_of(colours) == (1, True)
    assert _frames_of(stacked) == (2, newest_first)
    points = ImageFeatures(stacked, 75).points(stacked.successors[:59])
    assert points.shape == (59, 4)
    # The speeds are what the newest frame's features changed by.
    np.testing.assert_allclose(points[1:, 2:], np.diff(points[:, :2], axis=0), atol=1e-9)


def test_a_policy_of_slow_features_is_handed_over_and_plans_are_made_on_them(tmp_path):
    agent = Rover(Disc(), seed=0, **QUICK).learn(200)
    assert not agent._representation.learns
    planned, _ = agent._improve()
    assert planned.encoder.config.kind == "slow"
    rows = agent.buffer.observations.rows[::7]
    planned.save(tmp_path / "policy")
    again = load_policy(tmp_path / "policy")
    np.testing.assert_array_equal(again.probs(rows), planned.probs(rows))
    assert np.ptp(planned.probs(rows), axis=0).max() > 0.1
    solved = solve(agent, lambda x, a, y: (y[:, :, 8:].mean(axis=(1, 2, 3)) > 10).astype(float))
    solved.save(tmp_path / "solved")
    np.testing.assert_array_equal(load_policy(tmp_path / "solved").probs(rows), solved.probs(rows))


def test_models_of_noisy_images_repeat_no_noise():
    agent = Rover(Disc(), seed=0, n_landmarks=40, **QUICK).learn(200)
    model = agent.world.landmarks(agent._representation.sums)
    assert not model.dynamics._residuals[:, :-1].any()
    assert len(agent._improve()[0].basis) <= 40


@pytest.mark.parametrize("env", [Disc, WalledPoint])
def test_a_plan_in_between_changes_nothing_of_what_follows(env):
    """To the bit: explorations keep the model that they were made on."""
    runs = []
    for is_solved in (False, True):
        agent = Rover(env(), seed=0, n_landmarks=40, **QUICK).learn(170)
        if is_solved:
            solve(agent, goal=agent.buffer.observations.rows[-1])
        runs.append(agent.learn(60).buffer)
    np.testing.assert_array_equal(runs[0].actions, runs[1].actions)


def test_pictures_of_any_data_are_planned_on_by_slow_features():
    """The disc is sent into a corner, from data of who has no representation of it."""

    def reward(before: Any, actions: Any, after: Any) -> Any:
        return after[:, 10:, 10:].mean(axis=(1, 2, 3)) / 255.0

    agent = make_agent("random", Disc(), seed=3, **QUICK).learn(1200)
    policy, rows = solve(agent, reward=reward), agent.buffer.observations.rows[::20]
    same = solve(agent.buffer, reward=reward)
    np.testing.assert_array_equal(same.probs(rows), policy.probs(rows))
    assert policy.encoder is not None
    assert policy.encoder.config.kind == "slow"
    rng, earned = np.random.default_rng(0), {}
    for name, act in {
        "plan": lambda x: policy.act(x, rng),
        "chance": lambda _: rng.integers(4),
    }.items():
        env, rewards = Disc(), []
        for episode in range(3):
            seen, over = env.reset(seed=episode)[0], False
            while not over:
                seen, _, _, over, _ = env.step(act(seen))
                rewards.append(float(reward(None, None, seen[None])[0]))
        earned[name] = np.mean(rewards)
    assert earned["plan"] > 3.0 * earned["chance"]
    # A picture is a goal, too: the nearer the disc lies to where it lies there, the sooner.
    values = solve(agent, goal=rows[30]).value(rows)
    shares = rows[..., 0] / rows[..., 0].sum(axis=(1, 2), keepdims=True)
    centres = np.stack([shares.sum(axis=axis) @ np.arange(shares.shape[2]) for axis in (1, 2)], 1)
    away = np.linalg.norm(centres - centres[30], axis=1)
    assert spearmanr(values, away).statistic < -0.9


def test_images_are_seen_by_slow_features_where_they_do_not_repeat_but_last():
    whole, short = Disc(), gym.wrappers.TimeLimit(Disc(), LAG - 1)
    runs = [Rover(env, seed=0, seed_steps=50, **QUICK).learn(120) for env in (whole, short)]
    assert [lasts_a_lag(run.buffer) for run in runs] == [True, False]
    assert [run.world.kind for run in runs] == ["landmarks", "states"]
    assert [isinstance(run._representation, Slow) for run in runs] == [True, False]
    assert Rover(image_place(), seed=0, **QUICK).learn(120)._representation is None
    assert Rover(image_place(), representation="info_nce")._representation.learns
