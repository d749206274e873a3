"""The table of J/J* by the mass of the sink."""

from __future__ import annotations

import pandas as pd

from rover_bench.sink_mass import table


def test_a_line_for_each_number_of_rooms_by_hand() -> None:
    columns = ["rooms", "sink_mass", "new_states", "optimality_ratio"]
    policies = [(7, 0.05, 12, 2.0), (7, 0.3, 0, 8.0), (7, 0.2, 5, 4.0), (2, 0.1, 2, 1.0)]
    text = table(pd.DataFrame(policies, columns=columns))
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.split("\n")]
    assert lines[2:] == [
        ["2", "–", "1.00 (1.00), 1", "–", "–", "1.00 (1.00), 1"],
        ["7", "2.00 (2.00), 1", "–", "6.00 (8.00), 2", "2.00 (2.00), 1", "8.00 (8.00), 1"],
    ]
