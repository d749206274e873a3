"""Buffers as Minari data sets and back, and what offline learners see of them."""

import warnings
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rover.baselines import make_agent
from rover.data import Buffer, relabel
from rover.envs import GridWorld, reward_function
from rover.errors import ArtefactError, ConfigurationError, NonFiniteError, RoverWarning
from rover.integrations.minari import export_minari, load_minari

pytestmark = pytest.mark.slow

minari = pytest.importorskip("minari")

MAP = "S..#..\n......\n...#.G"


@cache
def collected(kind: str, steps: int = 130, *, start: str | None = None) -> Any:
    """A grid world and the buffer of random steps in it, which no test may change."""
    env = gym.make("rover/Grid-v0", layout=MAP, observation=kind, horizon=20, start=start)
    return env, make_agent("random", env, seed=3, policy_every=min(steps, 100)).learn(steps).buffer


def same_transitions(first: Buffer, second: Buffer) -> bool:
    def columns(buffer: Buffer) -> Any:
        rows = buffer.observations.rows
        ends = buffer.terminated, buffer.is_end
        return rows[buffer.inputs], buffer.actions, rows[buffer.successors], *ends

    pairs = zip(columns(first), columns(second), strict=True)
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("kind", ["state", "pixels"])
def test_a_round_trip_is_exact(kind):
    steps = 120
    env, buffer = collected(kind, steps, start="random")
    dataset = export_minari(buffer, f"rover/{kind}-v0", env=env)
    back, rewards = load_minari(f"rover/{kind}-v0")
    assert same_transitions(back, buffer)
    assert back.episode_starts.tolist() == buffer.episode_starts.tolist()[:6]
    assert rewards.tolist() == [0.0] * steps
    assert (dataset.total_steps, dataset.total_episodes) == (steps, 6)
    assert dataset.observation_space == env.observation_space
    assert dataset.action_space == env.action_space


def test_a_run_says_where_its_transitions_are_from(tmp_path):
    folder, kwargs = tmp_path / "run", {"layout": MAP, "observation": "onehot", "horizon": 20}
    settings = {"env_kwargs": kwargs, "run_dir": folder, "seed": 3, "policy_every": 10}
    transitions = make_agent("random", "rover/Grid-v0", **settings).learn(130).buffer
    dataset = export_minari(folder, "rover/maze-v0", author="Ada", author_email="ada@example.org")
    back, _ = load_minari(dataset)
    assert (len(back), back.n_episodes) == (130, 7)
    assert back.truncated[-1]  # the run stopped within an episode
    assert np.array_equal(back.actions, transitions.actions)
    metadata = dataset.storage.metadata
    assert metadata["algorithm_name"] == "random"
    assert "130 transitions of reward-free pretraining (random, preset" in metadata["description"]
    assert (metadata["author"], metadata["author_email"]) == ({"Ada"}, {"ada@example.org"})
    file = folder / "buffer.safetensors"
    with pytest.raises(ConfigurationError, match="do not name their environment: give env="):
        export_minari(file, "bare-v0")


def test_the_environment_is_recovered(tmp_path):
    file = tmp_path / "map.txt"
    file.write_text(MAP)
    env = gym.make("rover/Grid-v0", layout=str(file), observation="onehot", horizon=9, slip=0.1)
    buffer = make_agent("random", env, policy_every=10).learn(30).buffer
    dataset = export_minari(buffer, "maze-v0", env=env)
    file.unlink()  # the data set must not need it
    recovered = minari.load_dataset("maze-v0").recover_environment()
    assert recovered.spec.id == "rover/Grid-v0"
    world = recovered.unwrapped
    assert (world.layout.text, world.horizon, world.slip) == (MAP, 9, 0.1)
    assert recovered.observation_space == dataset.observation_space


def test_labels_of_a_task_are_written_and_read():
    env, buffer = collected("onehot", 400)
    task = gym.make("rover/Grid-v0", layout=MAP, observation="onehot", goal=(2, 1))
    labels = relabel(buffer, reward_function(task))
    assert labels.terminated.sum() > 1
    dataset = export_minari(labels, "maze-v0", env=env)
    goal = task.unwrapped.finite_mdp.observations[task.unwrapped.goal_state]
    for episode in dataset:
        at_goal = [np.array_equal(observation, goal) for observation in episode.observations]
        assert not any(at_goal[:-1])
        assert episode.terminations[-1] == at_goal[-1]
        assert episode.truncations[-1] == (not at_goal[-1])
        assert episode.rewards.tolist() == [0.0 if there else -1.0 for there in at_goal[1:]]
    assert dataset.total_steps == len(labels) < len(buffer)
    back, rewards = load_minari(dataset)
    assert np.array_equal(rewards, labels.rewards)
    assert np.array_equal(back.terminated, labels.terminated)


def test_transitions_that_cannot_be_exported(tmp_path):
    state_env, buffer = collected("state")
    other = gym.make("rover/Grid-v0", layout=MAP, observation="onehot")
    make_agent("random", GridWorld(MAP), run_dir=tmp_path / "run", policy_every=10).learn(20)
    for source, env, words in (
        (buffer, other, r"another environment: .* and 4 actions"),
        (Buffer((), np.dtype(np.int64), 4), state_env, "no transition to export"),
        (tmp_path, None, "holds no run"),
        (tmp_path / "run", None, r"from an id: give it in Python as env="),
    ):
        with pytest.raises((ArtefactError, ConfigurationError), match=words):
            export_minari(source, "maze-v0", env=env)


def test_data_sets_that_are_missing_empty_or_damaged(root):
    with pytest.raises(ArtefactError, match=r"'maze-v0' cannot be read .*FileNotFound.*download"):
        load_minari("maze-v0")
    made_by_others([])
    with pytest.raises(ArtefactError, match="'other-v0': it holds no transitions"):
        load_minari("other-v0")
    env, buffer = collected("state")
    export_minari(buffer, "maze-v0", env=env)
    (root / "maze-v0" / "data" / "main_data.hdf5").write_bytes(b"no such thing")
    with pytest.raises(ArtefactError, match=r"'maze-v0' cannot be read .*delete it"):
        load_minari("maze-v0")


def made_by_others(episodes: list[dict[str, Any]], name: str = "other-v0", **spaces: Any) -> Any:
    """A data set as other programs make it."""
    given = {
        "observation_space": gym.spaces.Box(-9, 9, (2,), np.float64),
        "action_space": gym.spaces.Discrete(2),
    } | spaces
    buffers = [minari.data_collector.EpisodeBuffer(infos={}, **episode) for episode in episodes]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an author, an e-mail address, ... that are missing
        return minari.create_dataset_from_buffers(name, buffers, **given)


def an_episode(length: int = 3, **changes: Any) -> dict[str, Any]:
    observations = np.arange(2.0 * length + 2).reshape(length + 1, 2) / 8
    flags = np.zeros(length, bool)
    return {
        "observations": observations,
        "actions": np.arange(length) % 2,
        "rewards": np.arange(length) / 4,
        "terminations": flags,
        "truncations": flags,
    } | changes


def test_data_sets_of_others():
    ended = np.array([False, True])
    first = an_episode()  # ends without saying how
    second = an_episode(2, terminations=ended)
    # The third goes on behind an end.
    both = an_episode(4, terminations=np.array([False, True, False, False]))
    single = gym.spaces.Box(-9, 9, (2,), np.float32)  # of values in float64 that it holds exactly
    data = made_by_others([first, second, both], observation_space=single)
    buffer, rewards = load_minari(data)
    assert buffer.observations.dtype == np.float32
    assert rewards.tolist() == [0, 0.25, 0.5, 0, 0.25, 0, 0.25, 0.5, 0.75]
    assert buffer.terminated.tolist() == [False] * 4 + [True, False, True, False, False]
    assert buffer.truncated.tolist() == [False, False, True] + [False] * 5 + [True]
    assert buffer.episode_starts.tolist() == [0, 0, 0, 2]
    assert np.array_equal(buffer.observations.rows[buffer.inputs[:3]], first["observations"][:-1])
    some, _ = load_minari(minari.load_dataset("other-v0").filter_episodes(lambda e: len(e) == 2))
    assert some.terminated.tolist() == [False, True]


SHORT, NAN = np.zeros((3, 2)), np.full((4, 2), np.nan)
FOUR = np.array([0, 1, 2, 5])


@pytest.mark.parametrize(
    ("changes", "space", "error", "message"),
    [
        ({"observations": SHORT}, None, ArtefactError, "no sequence of transitions: it has 3 obs"),
        ({"observations": NAN}, None, NonFiniteError, "'other-v0': .* an observation with NaN"),
        (
            {"observations": FOUR},
            gym.spaces.Discrete(5),
            ConfigurationError,
            "'other-v0': observation 3: .* is 5, outside 0 to 4",
        ),
        ({"actions": FOUR[:3]}, None, ConfigurationError, r"not of the set of Discrete\(2\): 2"),
        ({"rewards": [0, np.inf, 0]}, None, NonFiniteError, "'other-v0': .*NaN or inf"),
    ],
)
def test_data_sets_that_are_refused(changes, space, error, message):
    spaces = {} if space is None else {"observation_space": space}
    made_by_others([an_episode(**changes)], **spaces)
    with pytest.raises(error, match=message):
        load_minari("other-v0")


def test_nested_observations_and_two_actions_at_once():
    """As public data sets have them; stored as Gymnasium flattens."""
    seen = gym.spaces.Dict(
        {
            "achieved_goal": gym.spaces.Box(-9, 9, (2,), np.float32),
            "flags": gym.spaces.Tuple((gym.spaces.MultiBinary(2), gym.spaces.Discrete(3, start=1))),
        }
    )
    taken = gym.spaces.MultiDiscrete([2, 3], start=[0, -1])
    rng = np.random.default_rng(0)
    points, flags = rng.uniform(-1, 1, (6, 2)).astype(np.float32), rng.integers(0, 2, (6, 2))
    columns = {"achieved_goal": points, "flags": (flags.astype(np.int8), rng.integers(1, 4, 6))}
    actions = np.stack([rng.integers(0, 2, 5), rng.integers(-1, 2, 5)], axis=1)
    episode = an_episode(5, observations=columns, actions=actions)
    made_by_others([episode], observation_space=seen, action_space=taken)
    buffer, _ = load_minari("other-v0")
    assert buffer.n_actions == 6
    assert buffer.actions.tolist() == (actions @ [3, 1] + 1).tolist()
    rows = [
        {"achieved_goal": points[k], "flags": tuple(part[k] for part in columns["flags"])}
        for k in range(1, 6)
    ]
    expected = [gym.spaces.flatten(seen, row) for row in rows]
    np.testing.assert_array_equal(buffer.observations.rows[buffer.successors], expected)


def test_actions_that_begin_at_one_are_those_of_the_environment():
    env = gym.wrappers.TransformAction(
        gym.make("CartPole-v1"), lambda action: action - 1, gym.spaces.Discrete(2, start=1)
    )
    buffer = make_agent("random", env, seed=0, measure_share=0.0, policy_every=50).learn(50).buffer
    with warnings.catch_warnings(action="ignore"):  # it cannot be made from an id
        dataset = export_minari(buffer, "one-v0", env=env)
    taken = np.concatenate([episode.actions for episode in dataset])
    assert set(taken.tolist()) == {1, 2}
    assert np.array_equal(load_minari(dataset)[0].actions, taken - 1)


def test_glued_episodes_are_cut():
    places = np.array([*range(20)] * 5 + [20])
    made_by_others([an_episode(100, observations=np.stack([places, places], axis=1) / 4)])
    with pytest.warns(RoverWarning, match="glued together: .*episode_length=20"):
        load_minari("other-v0")
    buffer, rewards = load_minari("other-v0", episode_length=20)
    assert (buffer.n_episodes, len(buffer), len(rewards)) == (5, 96, 96)
