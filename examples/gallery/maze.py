"""
A policy in a maze
==================

A coverage policy is not a single path: at a junction it takes each branch with a probability that
makes the visits even. The length of an arrow is the probability of the action.
"""

import matplotlib.pyplot as plt

import rover
from rover.envs import finite_dynamics, map_arrays
from rover.evaluation import policy_occupancy
from rover.plots import GridMap, MapPanel, map_figure

agent = rover.Rover("rover/Maze-v0", seed=100).learn(1000)

# %%
problem = finite_dynamics(agent.env)
probs = agent.policy.probs(problem.observations)
occupancy = policy_occupancy(problem.dynamics, probs, discount=0.99)
least = 1 / len(occupancy)
print(f"J = {occupancy @ occupancy:.5f}, at least {least:.5f} for {len(occupancy)} states")

# %%
grid = GridMap(**map_arrays(agent.env, problem.observations))
start = problem.dynamics.start.nonzero()[0]
figure = plt.figure(layout="constrained")
map_figure(grid, [MapPanel("the policy", policy_probs=probs, starts=start)], onto=figure)
plt.show()
