import dataclasses

import gymnasium as gym
import pytest

from rover.coverage.agent import Rover
from rover.errors import ConfigurationError
from rover.experiments.results import COLUMNS, ROWS, select_rows


def test_names_are_distinct_and_every_bar_has_a_column():
    columns = {column.name for column in COLUMNS}
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert len(columns) == len(COLUMNS)
    for row in ROWS:
        assert set(row.bars) <= columns
        assert set(row.paper) <= columns
        assert len(row.seeds) >= 5


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_makes_an_agent_of_its_preset(row):
    agent = Rover(gym.make(row.env_id, **row.env_kwargs), row.preset, **row.overrides)
    learned = agent.config.representation != "identity"
    assert learned == (row.name not in ("multi-rooms-5-identity", "mountain-car"))


def test_what_was_asked_for():
    bars = {row.name: dict(row.bars) for row in ROWS}
    assert bars["multi-rooms-5-identity"] == {
        "steps_to_95_in_20_episodes": 700,
        "optimality_ratio": 1.005,
        "wall_seconds": 15.0,
    }
    assert bars["middle-room-onehot"]["steps_to_full_coverage"] == 1200
    assert bars["mountain-car"] == {"first_arrival": 1000}
    assert all(row.steps == 3000 for row in ROWS if row.preset == "default")
    assert [row.steps for row in ROWS if row.preset == "paper"] == [10_000]


def test_rows_are_selected_by_name_in_the_order_of_the_table():
    assert select_rows(()) == ROWS
    assert [row.name for row in select_rows(("maze-onehot", "two-rooms-onehot"))] == [
        "two-rooms-onehot",
        "maze-onehot",
    ]


def test_an_unknown_row_is_refused_with_the_nearest_and_all_names():
    with pytest.raises(ConfigurationError, match="did you mean 'maze-onehot'") as refused:
        select_rows(("maze-one-hot",))
    assert "mountain-car" in str(refused.value)


def test_rows_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ROWS[0].steps = 1  # type: ignore[misc]
