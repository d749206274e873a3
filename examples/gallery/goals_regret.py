"""
Every goal at first sight
=========================

The model that was learned without a reward plans for any goal at once. The map shows, for each
cell as a goal, how many steps longer the plan takes than the shortest way; half of the data is
not enough.
"""

import matplotlib.pyplot as plt
import numpy as np

import rover
from rover.envs import finite_dynamics, map_arrays
from rover.plots import GridMap, MapPanel, draw_panels, panel_size
from rover.solving import goal_regret, goal_states

panels = []
for steps in (350, 700):
    agent = rover.Rover("rover/MultiRooms-v0", seed=101).learn(steps)
    goals = rover.solve(agent, goals="all")  # one policy each, for all cells that were reached
    regret = goal_regret(goals, agent.env)
    longer = np.zeros(109)
    longer[goal_states(goals, agent.env)] = 1 + regret.best - regret.returns
    panels.append(MapPanel(f"after {steps} steps: {regret.solved} of 109 goals", values=longer))
    print(f"{steps} steps: {regret.solved} of {len(goals.tasks)} reached goals are solved exactly")

# %%
# One step stands for no regret, so that goals without any are coloured; a bare cell was never
# reached.
problem = finite_dynamics(agent.env)
grid = GridMap(**map_arrays(agent.env, problem.observations))
figure = plt.figure(figsize=panel_size(grid, rows=2), layout="constrained")
draw_panels(figure, panels, grid, scale="steps")
plt.show()
