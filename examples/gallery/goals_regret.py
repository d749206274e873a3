"""
Zero-shot policies for every goal
=================================

One reward-free run gives a policy for every goal. For each cell as a goal the map shows the regret,
the steps of an episode beyond the shortest path; it is 300 where the data never reached the goal.
The policy reaches every visited cell by nearly the shortest path.
"""

import matplotlib.pyplot as plt
import numpy as np

import rover
from rover.envs import finite_dynamics, map_arrays
from rover.plots import GridMap, MapPanel, map_figure
from rover.solving import goal_regret, goal_states

panels = []
for name in ("rover", "random"):
    agent = rover.make_agent(name, "rover/MultiRooms-v0", seed=101).learn(700)
    goals = rover.solve(agent, goals="all")  # one policy each, for all cells that were reached
    regret = goal_regret(goals, agent.env)
    lost = np.full(109, 300.0)  # a goal that was never reached costs the whole episode
    lost[goal_states(goals, agent.env)] = 1 + regret.best - regret.returns  # 1: of no regret
    panels.append(MapPanel(f"{agent.label}, 700 steps: {regret.solved} of 109 goals", values=lost))
    mean = np.mean(regret.best - regret.returns)
    print(f"{agent.label}: mean regret of a reached goal {mean:.2f} steps")

# %%
problem = finite_dynamics(agent.env)
grid = GridMap(**map_arrays(agent.env, problem.observations))
figure = plt.figure(layout="constrained")
map_figure(grid, panels, columns=1, scale="visits", onto=figure)
figure.axes[-1].set_ylabel("1 + regret in steps (log scale)")
plt.show()
