"""The buffer of a run from its folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rover import Rover
from rover.errors import ArtefactError
from rover.training.run_folder import load_run_buffer


def test_the_buffer_of_a_run_by_its_folder_or_its_file(finished: Path) -> None:
    agent = Rover.resume(finished)
    for path in (finished, str(finished), finished / "buffer.safetensors"):
        buffer = load_run_buffer(path)
        for name, array in agent.buffer.state().items():
            assert np.array_equal(buffer.state()[name], array)


def test_folders_without_a_buffer(copy_of_finished: Path, tmp_path: Path) -> None:
    (copy_of_finished / "manifest.json").unlink()
    (copy_of_finished / "buffer.safetensors").unlink()
    with pytest.raises(ArtefactError, match=r"has no buffer.safetensors yet: .* finish it"):
        load_run_buffer(copy_of_finished)
    with pytest.raises(ArtefactError, match="holds no run"):
        load_run_buffer(tmp_path)
    with pytest.raises(ArtefactError, match="does not exist"):
        load_run_buffer(tmp_path / "nowhere")
