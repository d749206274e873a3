"""PPO in one file of plain PyTorch, from a pretrained policy: the actor is the file that is loaded.

rover pretrain rover/MultiRooms-v0 --steps 3000 --run-dir runs/rooms
python examples/cleanrl_ppo.py runs/rooms/policy.safetensors
"""

from __future__ import annotations

import argparse
from collections import deque

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import rover

ENV_ID, GOAL = "rover/MultiRooms-v0", (21, 4)


def train(policy_file: str, steps: int, seed: int, n_envs: int = 4, n_steps: int = 600) -> float:
    """Fine-tune on Multi-Rooms with a goal; returns the mean return of the last 20 episodes."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    actor = rover.load_policy(policy_file)  # a torch module: raw observations in, logits out
    if actor.details["env_id"] != ENV_ID:
        raise SystemExit(f"{policy_file} is of {actor.details['env_id']}: pretrain on {ENV_ID}")
    observation = actor.details["env_kwargs"].get("observation", "state")
    envs = gym.make_vec(
        ENV_ID,
        num_envs=n_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP},
        observation=observation,
        goal=GOAL,
    )
    for encoder in actor.children():  # exact states have none
        encoder.requires_grad_(False)
    critic = nn.Sequential(nn.LazyLinear(64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(
        [
            # The weights of the logits are as large as logits: they need larger steps.
            {"params": [actor.weights], "lr": 1e-2},
            {"params": critic.parameters(), "lr": 1e-3},
        ]
    )
    obs = torch.as_tensor(envs.reset(seed=seed)[0])
    running, returns = np.zeros(n_envs), deque(maxlen=20)
    for update in range(steps // (n_envs * n_steps)):
        batch_obs, batch_actions, rewards, ends = [], [], [], []
        for _ in range(n_steps):
            with torch.no_grad():
                action = Categorical(logits=actor(obs)).sample()
            batch_obs.append(obs)
            batch_actions.append(action)
            next_obs, reward, terminated, truncated, _ = envs.step(action.numpy())
            obs, end = torch.as_tensor(next_obs), terminated | truncated
            rewards.append(torch.as_tensor(reward / 100, dtype=torch.float32))
            ends.append(torch.as_tensor(end, dtype=torch.float32))
            running += reward
            returns.extend(running[end])
            running[end] = 0.0
        x, a = torch.cat([*batch_obs, obs]), torch.cat(batch_actions)
        inputs = x.float() if x.ndim > 1 else torch.eye(envs.single_observation_space.n)[x]
        with torch.no_grad():
            values = critic(inputs).view(n_steps + 1, n_envs)
            x, inputs = x[: len(a)], inputs[: len(a)]
            old = Categorical(logits=actor(x)).log_prob(a)
            advantages, carried = torch.zeros(n_steps, n_envs), torch.zeros(n_envs)
            for t in reversed(range(n_steps)):
                delta = rewards[t] + 0.99 * (1 - ends[t]) * values[t + 1] - values[t]
                carried = delta + 0.99 * 0.95 * (1 - ends[t]) * carried
                advantages[t] = carried
            targets, adv = (advantages + values[:-1]).view(-1), advantages.view(-1)
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        for _ in range(10):
            for part in np.array_split(generator.permutation(len(x)), 20):
                ratio = (Categorical(logits=actor(x[part])).log_prob(a[part]) - old[part]).exp()
                clipped = torch.minimum(ratio * adv[part], ratio.clamp(0.8, 1.2) * adv[part])
                error = (critic(inputs[part]).squeeze(1) - targets[part]).square().mean()
                optimizer.zero_grad()
                (0.5 * error - clipped.mean()).backward()
                optimizer.step()
        mean = float(np.mean(returns)) if returns else float("nan")
        print(f"step {(update + 1) * n_envs * n_steps:6}  return {mean:7.1f}", flush=True)
    return mean


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", help="file of a policy that rover made on Multi-Rooms")
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    train(arguments.policy, arguments.steps, arguments.seed)
