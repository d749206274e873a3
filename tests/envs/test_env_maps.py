"""Maps of environments: where states lie, where actions lead, and what stands where."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rover.envs import finite_dynamics, make_env, map_arrays


def arrays_of(env: gym.Env[Any, Any]) -> dict[str, Any]:
    problem = finite_dynamics(env)
    assert problem is not None
    arrays = map_arrays(env, problem.observations)
    assert arrays["cells"].shape == (problem.dynamics.n_states, 2)
    _check_moves(problem.dynamics, arrays)
    return arrays


def _check_moves(dynamics: Any, arrays: dict[str, Any]) -> None:
    """Whatever an action's likeliest outcome changes is the cell that it points to."""
    for matrix, move in zip(dynamics.transition, arrays["moves"], strict=True):
        after = np.asarray(matrix.argmax(axis=1)).ravel()
        moved = arrays["cells"][after] - arrays["cells"]
        is_step = np.abs(moved).sum(axis=1) == 1  # not a wall, nor a fall from the cliff
        assert (moved[is_step] == move).all()
        assert is_step.any() == move.any()


@pytest.mark.parametrize(
    ("env_id", "kwargs", "free", "marks"),
    [
        ("rover/TwoRooms-v0", {"goal": (6, 6)}, 99, {(6, 6): "★"}),
        ("rover/TwoRooms-v0", {}, 99, {}),
        (
            "FrozenLake-v1",
            {"is_slippery": False},
            16,
            {(3, 3): "★", (1, 1): "●", (3, 1): "●", (3, 2): "●", (0, 3): "●"},
        ),
        ("CliffWalking-v1", {}, 38, {(11, 3): "★"}),  # nobody stays on the ten cells of the cliff
    ],
)
def test_states_lie_where_the_environment_draws_them(
    env_id: str, kwargs: dict[str, Any], free: int, marks: dict[tuple[int, int], str]
) -> None:
    arrays = arrays_of(make_env(env_id, kwargs))
    assert int(arrays["free"].sum()) == free
    assert {(x, y): chr(sign) for x, y, sign in arrays["marks"].tolist()} == marks
    assert len(arrays["walls"]) == 0


def test_taxi_has_many_states_in_a_cell_and_walls_between_cells() -> None:
    taxi = next(name for name in ("Taxi-v4", "Taxi-v3") if name in gym.registry)
    arrays = arrays_of(gym.make(taxi))
    assert len(np.unique(arrays["cells"], axis=0)) == arrays["free"].sum() == 25
    letters = {chr(sign): (x, y) for x, y, sign in arrays["marks"].tolist()}
    assert letters == {"R": (0, 0), "G": (4, 0), "Y": (0, 4), "B": (3, 4)}
    walls = {(x, (y + end) / 2) for x, y, _, end in arrays["walls"].tolist()}
    assert walls == {(1.5, 0), (1.5, 1), (0.5, 3), (0.5, 4), (2.5, 3), (2.5, 4)}


def test_other_environments_have_no_map() -> None:
    assert map_arrays(gym.make("CartPole-v1"), np.zeros((3, 4))) == {}
