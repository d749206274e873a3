"""
TopoGym: the map of a world that hides the position
===================================================

The observation is a view of 7 × 7 symbols that turns with the agent; neither its position nor its
heading is shown. The laws of the three actions are read off the views, and the views drawn on one
map. It needs the extra ``topogym``.
"""

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
import topogym  # noqa: F401  (registers its worlds)
from matplotlib.colors import ListedColormap

import rover

env = gymnasium.make("TopoGym/Maze-50-v0", seed=100, reward_mode="none")
agent = rover.Rover(env, seed=100, measure_share=0.0).learn(4000)

# %%
# The map is a part of the policy: numbers of cells, 1,024 a row, and the symbol of each.
cells, symbols = np.asarray(agent.policy.content()["map"]["cells"])
rows, columns = np.divmod(cells, 1024)
drawn = np.ma.masked_all((np.ptp(rows) + 1, np.ptp(columns) + 1))
drawn[rows - rows.min(), columns - columns.min()] = np.unique(symbols, return_inverse=True)[1]
layout = env.unwrapped.layout
true = np.zeros_like(drawn.filled(0), shape=(50, 50))
true[tuple(np.transpose(list(layout.free_cells))[::-1])] = 1
print(f"{len(layout.free_cells):,} free cells; {len(cells):,} cells on the map")

# %%
# Its heading is the one of the first view, whatever that was.
figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 4.6), layout="constrained")
left.imshow(true, cmap=ListedColormap(["#444444", "#f0f0f0"]))
left.plot(*layout.start, "o", color="#0072b2", label="start")
left.plot(*layout.goal, "*", color="#d55e00", markersize=12, label="goal")
left.set(title="the world, which is not shown", xticks=[], yticks=[])
left.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=2, frameon=False)
right.imshow(drawn, cmap="cividis")
right.set(title="the map that was inferred", xticks=[], yticks=[])
plt.show()
