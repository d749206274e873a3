"""
The same rooms from pixels
==========================

The agent observes 84×84 images and learns a representation that separates the 99 states of
Two Rooms.
"""

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

import rover
from rover.envs import finite_dynamics, map_arrays
from rover.plots import GridMap, MapPanel, map_figure

env = gymnasium.make("rover/TwoRooms-v0", observation="pixels")
agent = rover.Rover(env, seed=100).learn(600)
print(f"{len(agent.buffer.observations)} different pictures in {len(agent.buffer)} transitions")

# %%
# The first observation, and where the policy spends its time: the exact discounted occupancy
# of the policy, on the map that the agent never had.
from rover.evaluation import policy_occupancy

problem = finite_dynamics(env)
probs = agent.policy.probs(problem.observations)
occupancy = policy_occupancy(problem.dynamics, probs, discount=0.99)

grid = GridMap(**map_arrays(env, problem.observations))
figure = plt.figure(figsize=(8.0, 3.8), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[3, 5])
axes = left.subplots()
axes.imshow(np.asarray(problem.observations[0]).squeeze(), cmap="gray")
axes.set_title("an observation")
axes.axis("off")
map_figure(grid, [MapPanel("occupancy", values=occupancy)], scale="occupancy", onto=right)
plt.show()
