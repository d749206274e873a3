"""
Unseen layouts in MiniGrid
==========================

MiniGrid draws new rooms in every episode and shows 7 × 7 cells. ROVER explores each episode on its
own graph; the returned policy remembers the episode. It needs the extra ``arenas``.
"""

import gymnasium
import matplotlib.pyplot as plt
import minigrid
import numpy as np
from minigrid.wrappers import ImgObsWrapper

import rover

gymnasium.register_envs(minigrid)


def make_env():
    """Four rooms with three doors, seen as what lies before the agent."""
    return ImgObsWrapper(gymnasium.make("MiniGrid-MultiRoom-N4-S5-v1", render_mode="rgb_array"))


agent = rover.Rover(make_env(), seed=100, contexts=True).learn(4000)

# %%
# One episode in fresh rooms, by the returned policy and by random actions.
figure = plt.figure(figsize=(9.0, 3.3), layout="constrained")
for axes, name in zip(figure.subplots(1, 2), ("ROVER", "random actions"), strict=True):
    env, rng = make_env(), np.random.default_rng(1)
    seen, _ = env.reset(seed=10_000)
    agent.policy.reset()
    positions, over = [env.unwrapped.agent_pos], False
    while not over:
        uniform = int(rng.integers(env.action_space.n))
        action = agent.policy.act(seen, rng) if name == "ROVER" else uniform
        seen, _, terminated, truncated, _ = env.step(action)
        positions.append(env.unwrapped.agent_pos)
        over = terminated or truncated
    path = np.array(positions)
    axes.imshow(env.unwrapped.get_frame(highlight=False, tile_size=16))
    y, x = np.divmod(np.flatnonzero([cell is not None for cell in env.unwrapped.grid.grid]), 25)
    axes.set(xlim=(16 * x.min(), 16 * x.max() + 16), ylim=(16 * y.max() + 16, 16 * y.min()))
    jitter = rng.uniform(-3, 3, size=path.shape)
    axes.plot(*(16 * path + 8 + jitter).T, color="#E69F00", linewidth=1.2)
    count = len(np.unique(path, axis=0))
    axes.set(title=f"{name}: {count} cells in {len(path) - 1} steps", xticks=[], yticks=[])
plt.show()
