"""
One room twice as often
=======================

By default all states are visited as evenly as possible. A target gives each state its own share:
here the states of one room count twice. The learned policy is compared with the minimum of the
distance :math:`J` to the target over all policies.
"""

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

import rover
from rover.envs import finite_dynamics, map_arrays
from rover.evaluation import optimal_occupancy, policy_occupancy
from rover.operators import Objective
from rover.plots import GridMap, MapPanel, map_figure

env = gymnasium.make("rover/FourRooms-v0")
grid = env.unwrapped.layout.state_grid  # (rows, columns), -1 at walls
rows, columns = np.indices(grid.shape)
is_free, middle = grid >= 0, grid.shape[0] // 2
in_room = np.zeros(grid.max() + 1, bool)
in_room[grid[is_free]] = ((rows < middle) & (columns > middle))[is_free]


def twice(states):
    """The weight of each state, relative to the others."""
    return 1.0 + in_room[states]


# %%
problem = finite_dynamics(env)
target = twice(problem.observations) / twice(problem.observations).sum()
least = optimal_occupancy(problem.dynamics, discount=0.99, objective=Objective(target)).objective
panels = [MapPanel("the target", values=target)]
for name, wanted in (("evenly", None), ("towards the target", twice)):
    agent = rover.Rover(env, target=wanted, seed=100).learn(1500)
    probs = agent.policy.probs(problem.observations)  # (S, 4)
    occupancy = policy_occupancy(problem.dynamics, probs, discount=0.99)
    distance = ((occupancy - target) ** 2).sum()
    print(f"{name}: {occupancy[in_room].sum():.1%} in the room, J = {distance:.1e}")
    panels.append(MapPanel(f"{name}: {occupancy[in_room].sum():.0%} in the room", values=occupancy))
print(f"the target: {target[in_room].sum():.1%} in the room, J* = {least:.1e}")

# %%
grid = GridMap(**map_arrays(env, problem.observations))
figure = plt.figure(layout="constrained")
map_figure(grid, panels, columns=3, scale="occupancy", onto=figure)
plt.show()
