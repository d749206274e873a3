"""The propositions on numbers."""

import csv

import pytest

from experiments.propositions import check_propositions


def test_the_page_of_propositions_says_what_holds_and_what_does_not(tmp_path):
    report = check_propositions(tmp_path, seeds=range(100, 110))
    assert report.files == (tmp_path / "propositions.md", tmp_path / "propositions.csv")
    page = report.files[0].read_text()
    wrong = [line for line in page.splitlines() if "does not hold" in line]
    assert [line.split(" | ")[0].removeprefix("| ") for line in wrong] == [
        "Theorem 2, with M as it is printed, which is that transposed",
        "ballistic",
        "diffusive",
    ]
    assert all("| 1.5 |" in line for line in wrong[1:])
    assert page.count("| holds |") == 11 + 6
    with report.files[1].open() as file:
        lines = list(csv.DictReader(file))
    assert float(lines[0]["measured"]) < 1e-8
    assert {line["claim"]: float(line["measured"]) for line in lines}[
        "energy, ballistic, s = 0.5"
    ] == pytest.approx(0.5, abs=1e-3)
