"""The propositions on numbers."""

import csv
import math

import numpy as np
import pytest
from finite_problems import finite
from scipy.linalg import matmul_toeplitz
from scipy.sparse import csr_array

from experiments.propositions import _riesz_energies, check_propositions
from rover.evaluation import policy_occupancy


@pytest.mark.parametrize(("exponent", "rest"), [(0.5, 1e-2), (0.75, 2e-2), (1.5, 1e-2)])
def test_riesz_energies_are_those_of_occupancies_that_are_solved_for(exponent, rest):
    for right, energy in zip((1.0, 0.5), _riesz_energies(exponent, rest), strict=True):
        length = round(40 / (rest if right == 1.0 else math.sqrt(2 * rest)))
        x = np.arange(length)
        ahead, back = np.minimum(x + 1, length - 1), np.abs(x - 1)
        places = (np.concatenate([x, x]), np.concatenate([ahead, back]))
        chances = np.repeat([right, 1 - right], length)
        walk = finite([csr_array((chances, places), shape=(length, length))], np.eye(length)[0])
        occupancy = policy_occupancy(walk, np.ones((length, 1)), discount=1 - rest)
        kernel = np.maximum(x, 1.0) ** -exponent
        solved = occupancy @ matmul_toeplitz((kernel, kernel), occupancy)
        assert energy == pytest.approx(float(solved), rel=1e-9)


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
