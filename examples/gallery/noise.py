"""
Noise in the observations
=========================

Four dimensions of uniform noise beside MountainCar's two make every observation new. ROVER ignores
dimensions whose successive values do not correlate, so it explores as it does without noise.
"""

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

import rover
from rover.plots import draw_phase_plane


class Noise(gymnasium.ObservationWrapper):
    """Observations with further dimensions of uniform noise."""

    def __init__(self, env, noise):
        super().__init__(env)
        self.noise = noise
        low, high = env.observation_space.low, env.observation_space.high
        self.observation_space = gymnasium.spaces.Box(
            np.append(low, np.zeros(noise, np.float32)), np.append(high, np.ones(noise, np.float32))
        )

    def observation(self, observation):
        drawn = self.unwrapped.np_random.random(self.noise, np.float32)
        return np.append(observation, drawn)


# %%
figure = plt.figure(figsize=(9.0, 3.8), layout="constrained")
panels = figure.subplots(1, 2, sharex=True, sharey=True)
for axes, noise in zip(panels, (0, 4), strict=True):
    agent = rover.Rover(Noise(gymnasium.make("MountainCar-v0"), noise), seed=100).learn(1000)
    states = agent.buffer.observations.rows[:, :2]
    cells = {tuple(cell) for cell in np.floor(states / [0.09, 0.007]).astype(int)}
    print(f"{noise} dimensions of noise: {len(cells)} of 20×20 cells")
    draw_phase_plane(axes, states, names=("position", "velocity"))
    axes.set_title(f"{noise} dimensions of noise")
plt.show()
