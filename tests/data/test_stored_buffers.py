"""Buffers from their files, and every file that is refused."""

from __future__ import annotations

import numpy as np
import pytest
from walks import N_ACTIONS, Step, Walk, walked

from rover.data import ReplayBuffer, load_buffer
from rover.errors import ArtefactError, ConfigurationError
from rover.storage import write_arrays

WALK: Walk = [Step(0, 1, ".", 0), Step(1, 2, "T", 3), Step(2, 1, "C", 0)]


def write(path, buffer, **metadata):
    write_arrays(path, buffer.arrays(), kind="buffer", metadata=metadata)
    return path


@pytest.fixture
def stored(tmp_path):
    return write(tmp_path / "buffer.h5", walked(WALK), n_actions=N_ACTIONS)


def test_a_buffer_comes_back_to_the_bit(stored):
    written = walked(WALK)
    buffer = load_buffer(stored)
    assert buffer.n_actions == N_ACTIONS
    for name, array in written.arrays().items():
        assert buffer.arrays()[name].dtype == array.dtype
        assert np.array_equal(buffer.arrays()[name], array)
    assert np.array_equal(buffer.counts().counts, written.counts().counts)
    asked_for = load_buffer(
        stored, observation_shape=(2,), observation_dtype="float32", n_actions=N_ACTIONS
    )
    assert len(asked_for) == len(WALK)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            {"observation_shape": (3,)},
            r"shape \(2,\), but \(3,\) is needed: .* another env",
        ),
        ({"observation_dtype": np.uint8}, "observations of dtype float32, but uint8 is needed"),
        ({"n_actions": 4}, "a number of actions of 3, but 4 is needed"),
    ],
)
def test_a_buffer_of_something_else_than_asked_for(stored, wanted, message):
    with pytest.raises(ConfigurationError, match=message):
        load_buffer(stored, **wanted)


def test_missing_truncated_altered_and_foreign_files(stored, tmp_path):
    with pytest.raises(ArtefactError, match=r"none\.h5 does not exist"):
        load_buffer(tmp_path / "none.h5")
    with pytest.raises(ArtefactError, match="is a folder"):
        load_buffer(tmp_path)
    content = stored.read_bytes()
    stored.write_bytes(content[:-7])
    with pytest.raises(ArtefactError, match=r"buffer\.h5 is truncated"):
        load_buffer(stored)
    stored.write_bytes(b"")
    with pytest.raises(ArtefactError, match=r"buffer\.h5 is empty"):
        load_buffer(stored)
    stored.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ArtefactError, match="was altered after it was written"):
        load_buffer(stored)
    stored.write_bytes(b"\x89HDF\r\n\x1a\n of another program")
    with pytest.raises(ArtefactError, match=r"buffer\.h5"):
        load_buffer(stored)
    write_arrays(stored, walked(WALK).arrays(), kind="evaluation")
    with pytest.raises(ArtefactError, match="is a evaluation, not a buffer"):
        load_buffer(stored)


def test_a_buffer_without_transitions(tmp_path):
    empty = ReplayBuffer((2,), np.dtype(np.float32), 2)
    with pytest.raises(ArtefactError, match="holds no transitions; make a run of at least one"):
        load_buffer(write(tmp_path / "buffer.h5", empty, n_actions=2))


@pytest.mark.parametrize("count", [None, 0, True, "3", 2.0])
def test_a_file_that_does_not_say_how_many_actions_there_are(tmp_path, count):
    path = write(tmp_path / "buffer.h5", walked(WALK), n_actions=count)
    with pytest.raises(ArtefactError, match="does not say how many actions there are"):
        load_buffer(path)


def test_files_whose_arrays_are_not_those_of_a_buffer(tmp_path):
    arrays = walked(WALK).arrays()
    path = tmp_path / "buffer.h5"
    without = {name: array for name, array in arrays.items() if name != "observations"}
    write_arrays(path, without, kind="buffer", metadata={"n_actions": 3})
    with pytest.raises(ArtefactError, match=r"buffer\.h5 lacks observations"):
        load_buffer(path)
    write_arrays(path, arrays, kind="buffer", metadata={"n_actions": 2})
    with pytest.raises(ArtefactError, match=r"buffer\.h5: .* actions are not all in 0\.\.1"):
        load_buffer(path)
