"""The table of J/J* by the mass of the sink."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rover import Rover
from rover_bench import paper_study, sink_mass
from rover_bench.sink_mass import Policy, main, read_policies, table


def test_a_line_for_each_number_of_rooms_by_hand() -> None:
    policies = [
        Policy(rooms=7, sink_mass=0.05, new_states=12, ratio=2.0),
        Policy(rooms=7, sink_mass=0.3, new_states=0, ratio=8.0),
        Policy(rooms=7, sink_mass=0.2, new_states=5, ratio=4.0),
        Policy(rooms=2, sink_mass=0.1, new_states=2, ratio=1.0),
    ]
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table(policies).split("\n")
    ]
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
    assert list(read_policies(tmp_path)) == []  # too early
    monkeypatch.setattr(sink_mass, "FIRST", 300)
    first, second = read_policies(tmp_path)
    assert {first.rooms, second.rooms} == {2}
    planned = [line for line in lines if line.get("sink_mass") is not None]
    assert second.sink_mass == planned[-1]["sink_mass"]
    main([str(tmp_path)])
    assert "| 2 | " in capsys.readouterr().out
