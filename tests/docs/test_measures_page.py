"""The page of the figures names every key that a run writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from grid_runs import make_grid

import rover
from rover.baselines.random import Random
from rover.storage import JsonLines

PAGE = Path(__file__).parents[2] / "docs" / "measures.md"


@pytest.mark.parametrize("known", [True, False])
def test_every_figure_of_a_run_is_explained(known: bool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = {"run_dir": folder, "seed": 0, "evaluation_episodes": 2}
    if known:
        rover.Rover(make_grid(), policy_every=25, mirror_steps=5, **settings).learn(50)
    else:
        Random("MountainCar-v0", policy_every=25, measure_share=1000, **settings).learn(50)
    explained = set(re.findall(r"`([a-z0-9_]+)`", PAGE.read_text("utf-8")))
    summary = json.loads((folder / "summary.json").read_text())
    assert {*summary} <= explained
    for line in JsonLines.read(folder / "metrics.jsonl"):
        assert {*line} <= explained
