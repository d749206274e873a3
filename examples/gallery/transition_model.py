"""
The transition model: rows of one landmark
==========================================

Black: cells, where sums are stored. Coloured: landmarks. The area of a ring is the weight in a row.
"""

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
from gymnasium.spaces import Box, Discrete

import rover
from rover.world.world import World

WALLS = np.array([[*"......"], [*".####."], [*".#..#."], [*".#.##."], [*"......"]]) == "#"
MOVES = {"right": (1, 0), "up": (0, 1), "left": (-1, 0), "down": (0, -1)}
COLOURS = "#D55E00", "#0072B2", "#CC79A7", "#000000"


class PointMaze(gymnasium.Env):
    observation_space, action_space = Box(0.0, 6.0, (2,), np.float64), Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.point = np.array([0.5, 0.5])
        return self.point, {}

    def step(self, action):
        x, y = end = self.point + self.np_random.normal([*MOVES.values()][action], 0.1) * 0.3
        is_free = 0 <= x < 6 and 0 <= y < 5 and not WALLS[int(y), int(x)]
        self.point = end if is_free else self.point
        return self.point, 0.0, False, False, {}


buffer = rover.Rover(PointMaze(), seed=100).learn(500).buffer
model = World(buffer).landmarks()
rows, scale = model.rows(80), model.units.scale
novelty = model.novelty(rows.landmarks)
places, ends = rows.landmarks * scale, rows.ahead.reshape(-1, 4, 2) * scale
place = np.linalg.norm(places - (5.5, 1.1), axis=1).argmin()
figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 4.8), layout="constrained")
for axes, title in (left, "landmarks and their novelty"), (right, "transitions of one landmark"):
    axes.pcolormesh(np.arange(7), np.arange(6), WALLS, cmap="Greys", vmax=3)
    axes.plot(*(model.cells.landmarks * scale).T, "k.", markersize=2)
    points = axes.scatter(*places.T, c=novelty, s=26)
    axes.set(aspect="equal", xlabel="x", ylabel="y", title=title)
right.set(xlim=(4, 6), ylim=(0, 2))
left.indicate_inset((4, 0, 2, 2), edgecolor="black")
figure.colorbar(points, ax=left, label="novelty", shrink=0.8)
for row, (name, colour) in enumerate(zip(MOVES, COLOURS, strict=True), 4 * place):
    look = {"color": colour, "linewidth": 2}
    right.annotate("", ends[place, row % 4], places[place], arrowprops=look | {"arrowstyle": "->"})
    right.scatter(*places.T, 900 * rows.onward[[row]].toarray()[0], "none", edgecolors=colour)
    right.plot([], label=name, **look)
figure.legend(loc="outside lower right", ncols=4)
plt.show()
