"""Colours, dashes and labels: no two agents of a picture look the same."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from rover.baselines import agent_class, agent_names
from rover.plots.style import AgentStyle, assign_styles


def looks(names: list[str], declared: dict[str, AgentStyle] | None = None) -> list[tuple[str, str]]:
    return [(s.colour, s.dashes) for s in assign_styles(names, declared).values()]


def test_every_agent_with_a_variant_and_strangers_can_be_told_apart() -> None:
    agents = {
        name: AgentStyle(cls.label, cls.colour, cls.dashes)
        for name, cls in ((name, agent_class(name)) for name in agent_names())
    }
    names = [*agents, "scratch", *(f"{name}-paper" for name in agents), "mine", "yours"]
    assert len(set(looks(names, agents))) == len(names)
    assert list(assign_styles(names, agents)) == names


# Of linear RGB, for a full deficiency (Machado, Oliveira & Fernandes, 2009, Table 1).
VISIONS = {
    "any": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
TO_XYZ = [[0.4339, 0.3762, 0.1899], [0.2127, 0.7152, 0.0722], [0.0178, 0.1095, 0.8729]]


def lab(colour: str, vision: str) -> Any:
    """CIE L*a*b* of a colour, as seen with a vision; relative to white."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(TO_XYZ @ np.clip(VISIONS[vision] @ linear, 1e-3, 1.0))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISIONS)
def test_every_agent_has_a_colour_of_its_own_for_any_colour_vision(vision: str) -> None:
    classes = map(agent_class, agent_names())
    ours = [cls for cls in classes if cls.__module__.startswith("rover.")]  # and no test's
    seen = {cls.name: lab(cls.colour, vision) for cls in ours}
    pairs = itertools.combinations(seen, 2)
    distances = {pair: float(np.linalg.norm(seen[pair[0]] - seen[pair[1]])) for pair in pairs}
    assert min(distances.values()) > 12.0, min(distances, key=distances.__getitem__)


@pytest.mark.slow
def test_drawing_touches_no_global_state_of_matplotlib() -> None:
    program = (
        "import sys, rover; assert 'matplotlib' not in sys.modules; import rover.plots as p;"
        "import matplotlib as m, numpy as n; before = m.rcParams.copy(); f = p.make_figure(2, 2);"
        "grid = p.GridMap(n.array([[0, 0]]), n.ones((2, 2), bool));"
        "p.draw_panels(f, [p.MapPanel(values=n.ones(1))], grid);"
        "f.savefig('/dev/null', format='png');"
        "assert 'matplotlib.pyplot' not in sys.modules; assert m.rcParams.copy() == before"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
