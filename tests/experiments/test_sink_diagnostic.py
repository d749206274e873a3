"""The zero-memory diagnostic: the effect itself, its pieces against oracles, and its files."""

import csv

import numpy as np
import pytest
import torch
from dense_form import DenseReference

from rover.errors import ConfigurationError
from rover.operators import Linear, merge_transitions
from sink_diagnostic import (
    Comparison,
    DiagnosticSettings,
    Rounds,
    main,
    make_world,
    markdown,
    plan_on_batch,
    run_rounds,
    sample_batch,
)

pytestmark = pytest.mark.slow

SMALL = DiagnosticSettings(env_kwargs={"rooms": 3, "horizon": 100}, n_rounds=6, mirror_steps=100)
SEEDS = range(3)


@pytest.fixture(scope="module")
def diagnostics() -> dict[float, list[Rounds]]:
    return {
        norm: [run_rounds(SMALL, sink_norm=norm, seed=seed) for seed in SEEDS]
        for norm in (0.0, 0.15, 10.0)
    }


def test_the_sink_retains_what_is_lost_without_it(diagnostics):
    for bare, shown in zip(diagnostics[0.0], diagnostics[0.15], strict=True):
        assert shown.retained.mean() > bare.retained.mean() + 0.08
        assert shown.retained.min() > 0.95
        assert shown.kept[-1] == 1.0
        assert bare.states_seen[1:].min() < shown.states_seen[1:].min()


def test_with_the_sink_coverage_grows(diagnostics):
    for run in diagnostics[0.15]:
        assert run.states_seen[-1] > run.states_seen[0]
        assert run.states_seen[-1] == 65  # all of them


def test_without_the_sink_plans_run_out_of_the_data(diagnostics):
    bare = np.mean([run.sink_mass for run in diagnostics[0.0]])
    shown = np.mean([run.sink_mass for run in diagnostics[0.15]])
    assert bare > 0.7 > shown


def test_a_sink_that_costs_too_much_keeps_the_agent_at_home(diagnostics):
    """Paper, sensitivity analysis: ε = 10 prevents effective exploration."""
    for run in diagnostics[10.0]:
        assert run.states_seen[1:].max() < run.states_seen[0]


def test_rounds_of_one_seed_begin_alike_and_repeat_themselves(diagnostics):
    again = run_rounds(SMALL, sink_norm=0.15, seed=0)
    np.testing.assert_array_equal(again.visits, diagnostics[0.15][0].visits)
    np.testing.assert_array_equal(diagnostics[0.0][0].visits[0], again.visits[0])
    assert (diagnostics[0.0][1].visits[0] != again.visits[0]).any()


def test_shares_of_made_up_visits():
    rounds = Rounds(np.array([[3, 1, 0, 0], [1, 0, 2, 0], [0, 0, 1, 0]]), np.zeros(3))
    np.testing.assert_array_equal(rounds.states_seen, [2, 2, 1])
    np.testing.assert_allclose(rounds.retained, [1 / 2, 1 / 2])
    np.testing.assert_allclose(rounds.kept, [1.0, 2 / 3, 1 / 3])


def test_batches_follow_the_dynamics_and_the_policy():
    successor = np.array([[0, 1], [0, 1]])
    policy_probs = np.array([[0.25, 0.75], [1.0, 0.0]])
    states, actions, successors = sample_batch(
        successor, policy_probs, 0, n_episodes=500, horizon=20, rng=np.random.default_rng(0)
    )
    np.testing.assert_array_equal(successors, successor[states, actions])
    by_step = states.reshape(20, 500)
    assert (by_step[0] == 0).all()
    np.testing.assert_array_equal(successors.reshape(20, 500)[:-1], by_step[1:])
    assert (actions[states == 1] == 0).all()
    assert actions[states == 0].mean() == pytest.approx(0.75, abs=0.02)


def test_zero_norm_is_the_paper_s_form_without_augmentation():
    """J of a plan at ε = 0 is ‖μ‖² of the unaugmented dense form on the raw transitions."""
    rng = np.random.default_rng(1)
    world = make_world(SMALL)
    successor = world.dynamics().successor()
    uniform = np.full(successor.shape, 0.25)
    batch = sample_batch(successor, uniform, 0, n_episodes=2, horizon=60, rng=rng)
    features = torch.eye(len(successor), dtype=torch.float64)
    descent, probs = plan_on_batch(
        merge_transitions(*batch), features, 0, SMALL, n_actions=4, sink_norm=0.0
    )
    states, actions, successors = (torch.from_numpy(column) for column in batch)
    reference = DenseReference(
        inputs=features[states],
        actions=actions,
        successors=features[successors],
        terminated=torch.zeros(len(actions), dtype=torch.bool),
        starts=features[:1],
        start_weights=torch.ones(1, dtype=torch.float64),
        kernel=Linear(),
        n_actions=4,
        ridge=SMALL.ridge,
        discount=0.99,
        sink_norm=0.0,
    )
    dense = reference.evaluate(reference.states @ probs)  # the features are one-hot
    assert descent.occupancy.objective == pytest.approx(dense.objective, rel=1e-8)
    assert descent.occupancy.sink_mass == pytest.approx(dense.sink_mass, abs=1e-8)


def test_learned_features_run_too():
    settings = DiagnosticSettings(
        env_kwargs={"rooms": 2, "horizon": 50},
        n_rounds=2,
        mirror_steps=10,
        n_episodes=4,
        features="learned",
        encoder_updates=3,
    )
    first, second = (run_rounds(settings, sink_norm=0.1, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.visits, second.visits)
    assert first.visits.shape == (2, 43)


def made_up(label: str, norm: float, *visits: list[int]) -> Comparison:
    rounds = Rounds(np.array(visits), np.full(len(visits), 0.25))
    return Comparison(label, DiagnosticSettings(n_rounds=len(visits)), norm, (0,), (rounds,))


def test_the_report_says_where_the_effect_does_not_show():
    bare = made_up("as above", 0.0, [1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 0])
    shown = made_up("as above", 0.2, [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1])
    alike = [made_up("alike", norm, [1, 1, 1, 0], [1, 1, 1, 0]) for norm in (0.0, 0.2)]
    lines = markdown((bare, shown, *alike), 0.2, facts=["A fact."], command="c").splitlines()
    assert "| 2 | 2.0 | 3.0 | 0% | 100% | 50% | 100% | 0.25 | 0.25 |" in lines
    assert "| as above | 0 | 2.5 | 2.0 | 25% | 75% |" in lines
    assert "| as above | 0.2 | 3.5 | 3.0 | 100% | 100% |" in lines
    (sentence,) = [line for line in lines if line.startswith("Where the effect does not show")]
    assert sentence.endswith("without the sink): alike (100% without, 100% with).")
    assert lines[-1] == "- A fact."
    assert "Where the effect" not in markdown((bare, shown), 0.2, facts=[], command="")


def test_the_command_writes_picture_table_and_csv(tmp_path, capsys):
    arguments = ["--rounds", "2", "--episodes", "1", "--seeds", "2", "--jobs", "1", "--no-sweep"]
    assert main([*arguments, "--pictures", str(tmp_path / "p"), "--out", str(tmp_path)]) == 0
    assert "written: " in capsys.readouterr().out
    assert (tmp_path / "p" / "sink_diagnostic.png").read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "sink_diagnostic.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2  # norms, seeds, rounds
    assert rows[0]["retained"] == ""
    assert 0 < int(rows[1]["states_seen"]) <= 109
    text = (tmp_path / "sink_diagnostic.md").read_text()
    assert "rover/MultiRooms-v0, 109 states; exact states; 1 episodes per round" in text
    assert "| round | seen, without | seen, ε = 0.2 | again, without | again, ε = 0.2 |" in text
    assert "| as above | 0.2 |" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sink-norm", "0"], "sink_norm must be positive, not 0"),
        (["--seeds", "0"], "seeds must be at least 1, not 0"),
        (["--jobs", "0"], "jobs must be at least 1, not 0"),
        (["--rounds", "0"], "n_rounds must be at least 1, not 0"),
    ],
)
def test_settings_out_of_range_end_the_command(arguments, message, tmp_path, capsys):
    assert main([*arguments, "--out", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err


def test_only_grid_worlds_of_one_start_and_no_goal():
    with pytest.raises(ConfigurationError, match="exploration_epsilon must be in"):
        DiagnosticSettings(exploration_epsilon=1.5)
    for options in ({"goal": (6, 4)}, {"start": "random"}):
        with pytest.raises(ConfigurationError, match="needs one start state and no goal"):
            run_rounds(DiagnosticSettings(env_kwargs=options), sink_norm=0.1, seed=0)
    with pytest.raises(ConfigurationError, match="has a random outcome"):
        run_rounds(DiagnosticSettings(env_kwargs={"slip": 0.2}), sink_norm=0.1, seed=0)
    with pytest.raises(ConfigurationError, match="needs a grid world such as"):
        run_rounds(DiagnosticSettings(env_id="FrozenLake-v1", env_kwargs={}), sink_norm=0.1, seed=0)
