#!/bin/sh
# Believed: after action_space.seed(s) and reset(seed=s) an episode of sampled actions is the same in every run.
# True (highway-env 1.12.1, envs/common/abstract.py): reset makes a new action space, twice, and the seed goes with the
# old one. Sampled actions differ from run to run, those of a data set of random play included; with actions from a
# generator of one's own the same environments repeat themselves to the last bit. Seeding after the reset helps.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check highway-env==1.12.1 gymnasium==1.4.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import importlib.metadata

import gymnasium as gym
import highway_env
import numpy as np

gym.register_envs(highway_env)


def episode(name, how):
    """The first 10 observations of an episode of random actions, all from seed 0."""
    env = gym.make(name)
    env.action_space.seed(0)
    seen = [env.reset(seed=0)[0]]
    if how == "seeded after the reset":
        env.action_space.seed(0)
    generator, over = np.random.default_rng(0), False
    while not over and len(seen) < 10:
        action = generator.integers(env.action_space.n) if how == "generator" else env.action_space.sample()
        observation, _, terminated, truncated, _ = env.step(action)
        seen.append(observation)
        over = terminated or truncated
    return np.array(seen)


print("highway-env", importlib.metadata.version("highway-env"), "gymnasium", gym.__version__)
for name in ("highway-v0", "merge-v1"):
    kinds = {how: [] for how in ("seeded before the reset", "seeded after the reset", "generator")}
    for how, episodes in kinds.items():
        episodes += [episode(name, how).tobytes() for _ in range(4)]
    print(f"{name}:", {how: f"{len(set(episodes))} kinds of 4 episodes" for how, episodes in kinds.items()})
    assert len(set(kinds["seeded before the reset"])) > 1
    assert len(set(kinds["seeded after the reset"])) == 1
    assert len(set(kinds["generator"])) == 1
    spaces = gym.make(name)
    before = spaces.action_space
    spaces.reset(seed=0)
    assert spaces.action_space is not before
PYTHON
