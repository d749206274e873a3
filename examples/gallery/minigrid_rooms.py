"""
MiniGrid as an image
====================

The observation is the whole grid as an image of small codes. The agent does not use the grid
structure, nor the meaning of its seven actions. It needs the extra ``arenas`` (minigrid).
"""

import gymnasium
import matplotlib.pyplot as plt
import minigrid
import numpy as np
from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper

import rover
from rover.plots import add_colour_bar

gymnasium.register_envs(minigrid)


def make_env():
    """An empty room of 6 × 6 cells, seen as an image (8, 8, 3)."""
    return ImgObsWrapper(FullyObsWrapper(gymnasium.make("MiniGrid-Empty-8x8-v0")))


# %%
# The cell of the agent is where the image holds the code of an agent, 10.
figure = plt.figure(figsize=(9.0, 4.0), layout="constrained")
panels = figure.subplots(1, 2)
for axes, name in zip(panels, ("rover", "random"), strict=True):
    agent = rover.make_agent(name, make_env(), seed=100).learn(400)
    images = agent.buffer.observations.rows  # (N, width, height, 3)
    rows, x, y = np.nonzero(images[:, :, :, 0] == 10)
    visits = np.zeros(images.shape[1:3])
    np.add.at(visits, (x, y), agent.buffer.visits()[rows])
    print(f"{agent.label}: {np.count_nonzero(visits)} cells, {len(images)} of 142 states")
    axes.imshow(images[0, :, :, 0].T == 2, cmap="Greys", alpha=0.8)  # 2: a wall
    shown = axes.imshow(np.ma.masked_equal(visits.T, 0), norm="log")
    axes.set(title=f"{agent.label}: {len(images)} states", xticks=[], yticks=[])
add_colour_bar(figure, shown, list(panels), "visits")
plt.show()
