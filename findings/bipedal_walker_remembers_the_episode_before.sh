#!/bin/sh
# Believed: reset(seed=s) and the same actions give the same episode.
# True (gymnasium 1.4.0, envs/box2d/bipedal_walker.py): for a new BipedalWalker only. Its reset empties the Box2D world, which
# lives as long as the environment, and what solves contacts keeps something of the episode before: the first observation
# agrees, the second does not, and an episode of 1600 steps becomes one of 83. LunarLander, which builds a new
# world at every reset for this reason, repeats itself. An evaluation on fixed seeds therefore depends on what was evaluated before.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check gymnasium==1.4.0 box2d==2.3.10 pygame==2.6.1 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import warnings

import gymnasium as gym
import numpy as np

warnings.simplefilter("ignore")


def episode(env, seed):
    """The observations of an episode with actions at random, all from one seed."""
    env.action_space.seed(seed)
    seen, over = [env.reset(seed=seed)[0]], False
    while not over:
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        seen.append(observation)
        over = terminated or truncated
    return np.array(seen)


print("gymnasium", gym.__version__)
differ = {}
for name in ("LunarLander-v3", "BipedalWalker-v3"):
    lengths = []
    for seed in range(12):
        used, other = gym.make(name), gym.make(name)
        first = episode(used, seed)
        assert np.array_equal(first, episode(other, seed))
        episode(used, seed + 1000)
        again = episode(used, seed)
        assert np.array_equal(first[0], again[0])
        if not np.array_equal(first, again):
            lengths.append((len(first) - 1, len(again) - 1))
    differ[name] = lengths
    print(f"{name}: {len(lengths)} of 12 seeds differ; steps before and after: {lengths}")
assert not differ["LunarLander-v3"]
assert len(differ["BipedalWalker-v3"]) > 6
assert any(first != again for first, again in differ["BipedalWalker-v3"])
PYTHON
