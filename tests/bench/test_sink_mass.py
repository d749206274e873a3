"""The table of J/J* by the mass of the sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rover import Rover
from rover_bench import paper_study, sink_mass
from rover_bench.sink_mass import main, read_policies, table


def test_a_line_for_each_number_of_rooms_by_hand() -> None:
    columns = ["rooms", "sink_mass", "new_states", "optimality_ratio"]
    policies = [(7, 0.05, 12, 2.0), (7, 0.3, 0, 8.0), (7, 0.2, 5, 4.0), (2, 0.1, 2, 1.0)]
    text = table(pd.DataFrame(policies, columns=columns))
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.split("\n")]
    assert lines[2:] == [
        ["2", "–", "1.00 (1.00), 1", "–", "–", "1.00 (1.00), 1"],
        ["7", "2.00 (2.00), 1", "–", "6.00 (8.00), 2", "2.00 (2.00), 1", "8.00 (8.00), 1"],
    ]


def test_policies_are_read_from_finished_runs_of_preset_paper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = paper_study("scaling", "laptop").cases()[0]
    assert (case.preset, case.env_kwargs["rooms"]) == ("paper", 2)
    agent = Rover(
        case.env,
        "paper",
        env_kwargs=case.env_kwargs,
        seed=case.seeds[0],
        run_dir=next(iter(case.runs(tmp_path))).folder,
        seed_steps=100,
        policy_every=100,
        first_policy=None,
        encoder_every=100,
        mirror_steps=5,
        evaluation_every=1,
        evaluation_episodes=1,
    )
    lines: list[dict[str, Any]] = []
    agent.learn(400, callback=lines.append)
    assert len(read_policies(tmp_path)) == 0  # too early
    monkeypatch.setattr(sink_mass, "_FIRST", 300)
    policies = read_policies(tmp_path)
    assert policies["rooms"].tolist() == [2, 2]
    planned = [line for line in lines if line.get("sink_mass") is not None]
    assert policies["sink_mass"].iloc[-1] == planned[-1]["sink_mass"]
    main([str(tmp_path)])
    assert "| 2 | " in capsys.readouterr().out
