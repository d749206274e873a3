"""
Short episodes
==============

Episodes of Middle Room last 15 steps, just enough for the far corners. Random actions stay near the
start; ROVER spreads the same number of steps over the map.
"""

import matplotlib.pyplot as plt
import numpy as np

import rover
from rover.envs import finite_dynamics, map_arrays
from rover.plots import GridMap, MapPanel, map_figure

agents = {
    "ROVER": rover.Rover("rover/MiddleRoom-v0", seed=100),
    "random actions": rover.make_agent("random", "rover/MiddleRoom-v0", seed=100),
}
for agent in agents.values():
    agent.learn(1000)

# %%
# A buffer stores each distinct observation once, and counts its arrivals.
panels = []
for name, agent in agents.items():
    problem = finite_dynamics(agent.env)
    visits = np.zeros(len(problem.observations))
    visits[problem.states_of(agent.buffer.observations.rows)] = agent.buffer.visits()
    print(f"{name}: {np.count_nonzero(visits)} of {len(visits)} states in 1,000 steps")
    panels.append(MapPanel(name, values=visits))

# %%
grid = GridMap(**map_arrays(agent.env, problem.observations))
figure = plt.figure(layout="constrained")
map_figure(grid, panels, columns=2, scale="visits", onto=figure)
plt.show()
