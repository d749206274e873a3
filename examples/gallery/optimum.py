"""
Compared with the optimum
=========================

Where the dynamics are known, the minimum of :math:`J` over all policies is a convex quadratic
program, so the occupancy of a learned policy is compared with the best one exactly.
"""

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

import rover
from rover.envs import finite_dynamics, map_arrays
from rover.evaluation import optimal_occupancy, policy_occupancy
from rover.plots import GridMap, MapPanel, map_figure

env = gymnasium.make("rover/FourRooms-v0")
agent = rover.Rover(env, seed=100).learn(1500)

# %%
problem = finite_dynamics(env)
optimum = optimal_occupancy(problem.dynamics, discount=0.99)
learned = agent.policy.probs(problem.observations)  # (S, 4)
tables = {"random actions": np.full_like(learned, 0.25), "ROVER": learned}
panels = []
for name, probs in tables.items():
    occupancy = policy_occupancy(problem.dynamics, probs, discount=0.99)
    ratio = occupancy @ occupancy / optimum.objective
    panels.append(MapPanel(f"{name}: J/J* = {ratio:.3f}", values=occupancy))
panels.append(MapPanel("the optimum", values=optimum.state_occupancy))
print(f"J* = {optimum.objective:.6f}, certified to {optimum.duality_gap:.1e}")

# %%
grid = GridMap(**map_arrays(env, problem.observations))
figure = plt.figure(layout="constrained")
map_figure(grid, panels, columns=3, scale="occupancy", onto=figure)
plt.show()
