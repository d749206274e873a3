"""PPO and A2C of Stable-Baselines3 on Multi-Rooms with a far goal, pretrained or from scratch.

The goal (21, 4) is 27 steps away, every step costs 1, and an episode is cut after 300: the best
return is −26, and −300 says that the goal was not found.

    python examples/sb3_multi_rooms.py
    python examples/sb3_multi_rooms.py --policy policy.safetensors --algorithms ppo --steps 20000
"""

from __future__ import annotations

import argparse
import datetime
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecNormalize

import rover
from rover.envs import make_env
from rover.integrations.sb3 import rover_policy

ENV_ID, GOAL = "rover/MultiRooms-v0", (21, 4)
STARTS, N_ENVS = ("rover", "scratch"), 4

SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 600, "batch_size": 120},
    "a2c": {
        "n_steps": 50,
        "learning_rate": 3e-3,
        "gae_lambda": 0.95,
        "normalize_advantage": True,
        "use_rms_prop": False,
    },
}


def make_model(
    algorithm: str, start: str, policy: rover.CoveragePolicy, *, seed: int, normalise: bool
) -> BaseAlgorithm:
    """A model before its first step; `start` is one of ``STARTS``."""
    env_kwargs = {**policy.details["env_kwargs"], "goal": GOAL}
    env = make_vec_env(ENV_ID, n_envs=N_ENVS, seed=seed, env_kwargs=env_kwargs)
    if normalise:
        env = VecNormalize(env, norm_obs=False)
    common = {"seed": seed, "device": "cpu", **SETTINGS[algorithm]}
    kind = PPO if algorithm == "ppo" else A2C
    return kind("MlpPolicy" if start == "scratch" else rover_policy(policy), env, **common)


def returns(model: BaseAlgorithm, policy: rover.CoveragePolicy) -> tuple[float, float, float]:
    """Mean of the last 20 training episodes; greedy; mean of 20 episodes that sample actions."""
    env = Monitor(make_env(ENV_ID, {**policy.details["env_kwargs"], "goal": GOAL}))
    training = float(np.mean([episode["r"] for episode in list(model.ep_info_buffer)[-20:]]))
    greedy, _ = evaluate_policy(model, env, n_eval_episodes=1, deterministic=True)
    sampled, _ = evaluate_policy(model, env, n_eval_episodes=20, deterministic=False)
    return training, greedy, sampled


def main() -> None:
    """Print one line for each algorithm, start and seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--policy", type=Path, help="file of a policy; None: pretrain one")
    parser.add_argument("--algorithms", nargs="+", choices=list(SETTINGS), default=["ppo"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--normalise-rewards", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.policy is None:
        agent = rover.Rover(ENV_ID, env_kwargs={"observation": "onehot"}, seed=0)
        policy = agent.learn(3000, progress_bar=True).policy
    else:
        policy = rover.load_policy(arguments.policy)
        if policy.details["env_id"] != ENV_ID:
            parser.error(f"{arguments.policy} is of {policy.details['env_id']}, not of {ENV_ID}")
    print(f"{datetime.date.today()}, {platform.machine()}, torch {torch.__version__}, 1 thread")
    print(
        f"{arguments.steps} steps, rewards normalised: {arguments.normalise_rewards}; returns of:"
    )
    print("the last 20 training episodes, one greedy episode, 20 that sample actions")
    print(f"{'':6}{'start':18}{'seed':>4}{'training':>10}{'greedy':>8}{'sampled':>9}{'seconds':>9}")
    for algorithm in arguments.algorithms:
        for start in STARTS:
            for seed in range(arguments.seeds):
                begin = time.perf_counter()
                model = make_model(
                    algorithm, start, policy, seed=seed, normalise=arguments.normalise_rewards
                ).learn(arguments.steps)
                training, greedy, sampled = returns(model, policy)
                seconds = time.perf_counter() - begin
                print(
                    f"{algorithm:6}{start:18}{seed:4}{training:10.1f}{greedy:8.1f}{sampled:9.1f}"
                    f"{seconds:9.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
