"""
Five rooms in a row
===================

Multi-Rooms has 109 states, and the last room is 26 steps away. After 800 steps without a reward
the policy visits every room in nearly every episode.
"""

import matplotlib.pyplot as plt
import numpy as np

import rover
from rover.envs import finite_dynamics, map_arrays
from rover.plots import GridMap, MapPanel, map_figure

agent = rover.Rover("rover/MultiRooms-v0", seed=100).learn(800)

# %%
# The environment is a finite problem with known dynamics, so episodes of a policy can be drawn
# from it without stepping the environment. The agent never sees these dynamics.
from rover.evaluation import PolicyChain

problem = finite_dynamics(agent.env)
probs = agent.policy.probs(problem.observations)  # (109, 4)
chain = PolicyChain(problem.dynamics, probs)
episodes = chain.trajectories(20, horizon=300, rng=np.random.default_rng(0))
share = len(np.unique(episodes)) / len(probs)
print(f"20 episodes visit {share:.0%} of the states")

# %%
grid = GridMap(**map_arrays(agent.env, problem.observations))
figure = plt.figure(layout="constrained")
map_figure(grid, [MapPanel("20 episodes of the policy", trajectories=episodes)], onto=figure)
plt.show()
