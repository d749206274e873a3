"""
TopoGym: a large world and the plan to its goal
===============================================

A maze of 1,151 cells is explored without a reward. The agent sees (x, y); afterwards it plans the
way to the goal. It needs the extra ``topogym``.
"""

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
import topogym  # noqa: F401  (registers its worlds)

import rover
from rover.plots import add_colour_bar

env = gymnasium.make(
    "TopoGym/Maze-50-v0",
    seed=100,
    reward_mode="none",
    actions="fourway",
    obs_mode="vector",
)
agent = rover.Rover(env, seed=100).learn(6000)
cells = agent.buffer.observations.rows[:, :2]

# %%
goal = np.array(env.unwrapped.layout.goal)
seen = agent.buffer.observations.rows[(cells == goal).all(axis=1)][0]
plan = rover.solve(agent, goal=seen)
observation, _ = env.reset(seed=100)
rng, path = np.random.default_rng(100), [observation[:2]]
while (path[-1] != goal).any() and len(path) < 1500:
    observation = env.step(plan.act(observation, rng))[0]
    path.append(observation[:2])
print(f"{len(cells):,} cells seen in 6,000 steps; {len(path) - 1} steps to the goal")

# %%
figure, axes = plt.subplots(figsize=(6.0, 5.0), layout="constrained")
points = axes.scatter(*cells.T, c=range(len(cells)), s=9, marker="s")
axes.plot(*np.transpose(path), color="black", linewidth=1.5)
axes.plot(*goal, "*", color="black", markersize=12)
axes.set(title="Maze-50", xlabel="x", ylabel="y", aspect="equal")
axes.invert_yaxis()
add_colour_bar(figure, points, [axes], "order of the first visit")
plt.show()
