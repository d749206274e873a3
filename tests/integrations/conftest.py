"""A place of their own for the data sets of a test."""

import pytest


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    """Where the data sets of a test lie."""
    folder = tmp_path / "datasets"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder))
    return folder
