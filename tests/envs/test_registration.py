"""Ids in Gymnasium's registry, and the id and keywords that make an environment again."""

import json

import numpy as np
import pytest

from rover.envs import GridWorld, id_and_kwargs, make_env

MAP = "S..\n.#.\n..G"


@pytest.mark.parametrize("kind", ["text", "path", "name of a file"])
def test_a_map_is_part_of_the_keywords(kind, tmp_path):
    path = tmp_path / "map.txt"
    path.write_text(MAP)
    layout = {"text": MAP, "path": path}.get(kind, str(path))
    env = make_env("rover/Grid-v0", {"layout": layout, "goal": (2, 2), "max_episode_steps": 7})
    path.unlink()
    made_with = id_and_kwargs(env)
    kwargs = {"layout": MAP, "goal": [2, 2], "max_episode_steps": 7}
    assert made_with == ("rover/Grid-v0", kwargs)
    again = make_env(*json.loads(json.dumps(made_with)))
    assert again.unwrapped.layout == env.unwrapped.layout
    assert again.unwrapped.goal == (2, 2)
    assert id_and_kwargs(again) == made_with
    assert again.spec.max_episode_steps == 7


def test_what_cannot_be_made_again_has_no_keywords():
    assert id_and_kwargs(GridWorld("two_rooms")) is None
    strange = make_env("FrozenLake-v1", {"desc": np.array([["S", "G"]])})
    assert id_and_kwargs(strange) is None
