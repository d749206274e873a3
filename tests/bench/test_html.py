"""Reports as one HTML file: what they say, what they escape, and how a browser shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rover.errors import ArtefactError
from rover.plots import make_figure, write_pictures
from rover_bench import load_study, write_html
from rover_bench.files import write_report
from rover_bench.html import _across_tasks, _comparable, _render
from rover_bench.load import study_in
from rover_bench.report import Report, table_of_runs

EVIL = "<script>alert(1)</script> & <img src=x onerror=alert(1)> [a](javascript:alert(1))"
WIDE = [
    "states_seen",
    "steps_to_full_coverage",
    "optimality_ratio",
    "mean_coverage",
    "wall_seconds",
]


def reported(figures: Callable[[dict[str, str], int], dict[str, float]], **changes: Any) -> Report:
    """A report of made-up runs of three agents on two environments: labels, seed → figures."""
    study = load_study(
        {
            "name": "made",
            "title": "Made <up> & shown",
            "introduction": EVIL,
            "run": {"steps": 3000, "seeds": [0, 1, 2]},
            "axes": {
                "map": {"maze": {"env": "rover/Maze-v0"}, "two": {"env": "rover/TwoRooms-v0"}},
                "agent": {"rover": {}, "rnd": {"agent": "rnd"}, "apt": {"agent": "apt"}},
            },
            "tables": {"Figures | all": {"rows": ["map", "agent"], "figures": WIDE}},
            **changes,
        }
    )
    cases = study.cases()
    runs = table_of_runs(study, ((c, s, figures(c.labels, s)) for c in cases for s in c.seeds))
    facts = ("Machine: A CPU.", "Seeds: 0 to 2.")
    return Report(study, cases, runs, {}, facts, (EVIL,), "rover sweep made.toml")


def ratios(labels: dict[str, str], seed: int) -> dict[str, float]:
    ratio = {"rover": 1.0, "rnd": 2.0 + seed, "apt": 4.0}[labels["agent"]]
    return dict.fromkeys(WIDE, 1234.0) | {"mean_coverage": 0.9, "optimality_ratio": ratio}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The HTML file of a report with a picture."""
    folder = tmp_path_factory.mktemp("pages")
    figure = make_figure(12.0, 4.0, "A wide picture")
    write_pictures([("visits", figure)], folder / "pictures")
    write_report(reported(ratios, pictures={"agents": {"kind": "agents"}}), folder)
    assert study_in(folder) == reported(ratios, pictures={"agents": {"kind": "agents"}}).study
    return write_html(study_in(folder), folder)


def test_a_report_says_all_and_needs_no_other_file(made: Path) -> None:
    text = made.read_text("utf-8")
    for part in ("Figures | all", "Pictures", "All tasks together", "Configuration"):
        assert f">{part}</a>" in text
        assert f">{part}</h2>" in text
    for said in ("rover sweep made.toml", "Machine: A CPU.", "Seeds: 0 to 2.", "rnd fast"):
        assert said in text
    assert "<code>env = &quot;rover/Maze-v0&quot;</code>" in text
    assert text.count('src="data:image/png;base64,') == 3  # visits, and a profile of each score
    assert "<script" not in text
    assert "<img src=x" not in text
    assert "javascript:alert(1)&quot;" not in text
    assert 'href="javascript' not in text
    assert text.count("&lt;script&gt;alert(1)") == 2  # the introduction and the failure
    assert "<title>Made &lt;up&gt; &amp; shown</title>" in text
    before = made.read_bytes()
    assert write_html(study_in(made.parent), made.parent).read_bytes() == before


def test_scores_are_compared_on_the_tasks_that_all_have() -> None:
    def some(labels: dict[str, str], seed: int) -> dict[str, float]:
        missing = labels == {"map": "two", "agent": "apt"}
        return {} if missing else ratios(labels, seed)

    found = _comparable(reported(ratios), "J*/J")
    assert {name: list(tasks) for name, tasks in found.items()} == {
        name: ["maze", "two"] for name in ("rover", "rnd", "apt")
    }
    assert [*found["rnd"]["two"]] == [1 / 2, 1 / 3, 1 / 4]
    assert {tuple(tasks) for tasks in _comparable(reported(some), "J*/J").values()} == {("maze",)}
    text, pictures = _across_tasks(reported(ratios), np.random.default_rng(0))
    assert list(pictures) == ["profiles-0.png", "profiles-1.png"]
    assert "| rover | 3 | 1.000 [1.000, 1.000] |" in text
    assert "| rover |  | **1.00 [1.00, 1.00]** | **1.00 [1.00, 1.00]** |" in text
    # apt has ¼: it loses to rnd twice, and ties once
    assert "| apt | 0.00 [0.00, 0.00] | 0.17 [0.00, " in text
    text, pictures = _across_tasks(
        reported(lambda *_: {"wall_seconds": 1.0}), np.random.default_rng(0)
    )
    assert text.startswith("## All tasks together\n\nNothing can be said: ")
    assert pictures == {}


def test_pictures_come_from_the_folder_of_the_page(tmp_path):
    page = tmp_path / "page"
    page.mkdir()
    (tmp_path / "secret.png").write_bytes(b"secret")
    (page / "notes.txt").write_text("notes")
    for name in ("../secret.png", "/etc/hostname.png", "notes.txt", "https://a.b/c.png"):
        with pytest.raises(ArtefactError, match=r"no png or svg file in it|does not exist"):
            _render(f"![x]({name})", "", page, {})
    assert "secret" not in _render("# a\n\nb", "", page, {})
