"""
With and without the sink
=========================

In ROVER's model, actions without data lead to a virtual sink, whose mass costs
:math:`\\varepsilon^2 m^2`. With :math:`\\varepsilon = 0` this is free: while a part of the maze is
unknown, the best policy on the model leaves the data.
"""

import matplotlib.pyplot as plt

import rover
from rover.envs import finite_dynamics, map_arrays
from rover.evaluation import optimal_occupancy, policy_occupancy
from rover.plots import GridMap, MapPanel, map_figure

runs = {}
for sink_norm in (1.0, 0.0):
    agent = rover.Rover("rover/Maze-v0", seed=100, sink_norm=sink_norm)
    runs[sink_norm] = agent.learn(400)  # not enough to see the whole maze

# %%
# Both agents collect the same data and return different policies.
problem = finite_dynamics(agent.env)
print(f"{len(agent.buffer.observations)} of {len(problem.observations)} states are known")
least = optimal_occupancy(problem.dynamics, discount=0.99).objective
panels = []
for sink_norm, agent in runs.items():
    probs = agent.policy.probs(problem.observations)
    occupancy = policy_occupancy(problem.dynamics, probs, discount=0.99)
    ratio = occupancy @ occupancy / least
    panels.append(MapPanel(f"ε = {sink_norm:g}: J/J* = {ratio:.2f}", values=occupancy))

# %%
grid = GridMap(**map_arrays(agent.env, problem.observations))
figure = plt.figure(layout="constrained")
map_figure(grid, panels, columns=2, scale="occupancy", onto=figure)
plt.show()
