"""
MountainCar's phase plane
=========================

In a continuous space ROVER plans on landmarks with a smooth dynamics model. It does not use the
reward of the flag; a plan for the flag is made afterwards, on the same transitions.
"""

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

import rover
from rover.plots import add_colour_bar, draw_phase_plane

env = gymnasium.make("MountainCar-v0")
agent = rover.Rover(env, seed=100).learn(1500)
states = agent.buffer.observations.rows  # (N, 2) in the order of their first visit

# %%
# Ten episodes of the returned policy.
rng = np.random.default_rng(0)
rollouts = np.full((10, 201, 2), np.nan)
for number, rollout in enumerate(rollouts):
    rollout[0], _ = env.reset(seed=number)
    for step in range(200):
        action = agent.policy.act(rollout[step].astype(np.float32), rng)
        rollout[step + 1], _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            break
seen = rollouts[~np.isnan(rollouts[:, :, 0])]
cells, _, _ = np.histogram2d(*seen.T, bins=20, range=[(-1.2, 0.6), (-0.07, 0.07)])
print(f"10 episodes visit {np.count_nonzero(cells)} of 400 cells of the phase plane")

# %%
# A plan for the flag on the stored transitions.
flag = rover.solve(agent, goal=lambda observations: observations[:, 0] >= 0.5)
arrivals = 0
for number in range(10):
    observation, _ = env.reset(seed=number)
    terminated = truncated = False
    while not (terminated or truncated):
        observation, _, terminated, truncated, _ = env.step(flag.act(observation, rng))
    arrivals += terminated
print(f"{arrivals} of 10 episodes reach the flag")

# %%
figure = plt.figure(figsize=(9.0, 3.8), layout="constrained")
left, right = figure.subplots(1, 2, sharex=True, sharey=True)
names = ("position", "velocity")
points = draw_phase_plane(left, states, names=names)
add_colour_bar(figure, points, [left], "order of the first visit")
left.set_title("states of 1,500 steps without reward")
draw_phase_plane(right, states, names=names, rollouts=rollouts)
right.set_title("10 episodes of the policy")
plt.show()
