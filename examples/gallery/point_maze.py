"""
PointMaze: a physical agent in a maze
=====================================

One of nine forces pushes a ball for four frames. The agent observes position and velocity and no
goal. It needs the extra ``arenas`` (gymnasium-robotics and MuJoCo).
"""

import gymnasium
import gymnasium_robotics
import matplotlib.pyplot as plt

import rover
from rover.plots import add_colour_bar
from rover.wrappers import DiscreteActions

gymnasium.register_envs(gymnasium_robotics)


class FromACorner(gymnasium.ObservationWrapper):
    """Position and velocity of a ball that always begins in the same corner."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = env.observation_space["observation"]

    def reset(self, **_):
        options = {"reset_cell": [1, 1], "goal_cell": [6, 6]}
        observation, info = self.env.reset(seed=0, options=options)
        return self.observation(observation), info

    def observation(self, observation):
        return observation["observation"]


maze = gymnasium.make("PointMaze_Medium-v3", max_episode_steps=1200, continuing_task=True)
env = gymnasium.wrappers.RepeatAction(DiscreteActions(FromACorner(maze)), 4)
agents = [rover.make_agent(name, env, seed=100) for name in ("rover", "random")]

# %%
figure = plt.figure(figsize=(9.0, 4.0), layout="constrained")
panels = figure.subplots(1, 2, sharex=True, sharey=True)
for axes, agent in zip(panels, agents, strict=True):
    agent.learn(600)
    places = agent.buffer.observations.rows[:, :2]
    points = axes.scatter(*places.T, c=range(len(places)), s=6)
    axes.set(title=f"{agent.label}: 600 decisions", xlabel="x", ylabel="y", aspect="equal")
add_colour_bar(figure, points, list(panels), "order of the first visit")
plt.show()
