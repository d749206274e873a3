#!/bin/sh
# Believed: gym.make_vec(name, num_envs=n) is n copies of gym.make(name).
# True (ale-py 0.12.1, registration.py and vector_env.py): an Atari name has an entry for vectors too, which make_vec prefers, and
# that one has further defaults: rewards are cut to -1, 0 and 1, observations are four grey frames of 84 by 84, and an
# episode begins with up to 30 idle frames. MsPacman, at random, returns 23 in place of 250, and statistics of
# episodes wrapped around it count pellets, not points. vectorization_mode="sync" makes the copies.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check gymnasium==1.4.0 ale-py==0.12.1 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import ale_py
import gymnasium as gym
import numpy as np
from gymnasium.wrappers.vector import RecordEpisodeStatistics

gym.register_envs(ale_py)
print("gymnasium", gym.__version__, "ale-py", ale_py.__version__)
name = "ALE/MsPacman-v5"
single = gym.make(name)
rewards, returns, shapes = {}, {}, {}
for mode in (None, "sync"):
    envs = RecordEpisodeStatistics(gym.make_vec(name, num_envs=2, vectorization_mode=mode))
    rng = np.random.default_rng(0)
    rewards[mode], returns[mode], shapes[mode] = set(), [], envs.single_observation_space.shape
    envs.reset(seed=0)
    for _ in range(2500):
        _, reward, _, _, info = envs.step(rng.integers(0, 9, 2))
        rewards[mode] |= set(reward.tolist())
        if "episode" in info:
            returns[mode] += info["episode"]["r"][info["_episode"]].tolist()
    print(f"vectorization_mode={mode}: observations {shapes[mode]}, rewards {sorted(rewards[mode])},")
    print(f"    mean return {np.mean(returns[mode]):.1f} of {len(returns[mode])} episodes")
    envs.close()
print("one environment: observations", single.observation_space.shape)
assert shapes["sync"] == single.observation_space.shape
assert shapes[None] == (4, 84, 84)
assert max(rewards[None]) == 1
assert max(rewards["sync"]) >= 10
assert np.mean(returns["sync"]) > 5.0 * np.mean(returns[None])
PYTHON
