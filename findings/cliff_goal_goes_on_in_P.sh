#!/bin/sh
# Believed: the matrix P of a toy text environment is one that any solver of finite problems takes.
# True (gymnasium 1.4.0, toy_text/cliffwalking.py; quantecon 0.11.4): the goal of FrozenLake leads to
# itself, that of CliffWalking leads on as any other cell does, and only the fourth entry of a row says that the
# episode was over. Without that entry the start is worth -100 (never at an end) in place of -12.2.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check gymnasium==1.4.0 quantecon==0.11.4
"$folder/venv/bin/python" - <<'PYTHON'
import gymnasium as gym
import numpy as np
import quantecon as qe


def start_value(name, start, *, ends):
    """The value of the start, with a further state for ends or without."""
    P = gym.make(name).unwrapped.P
    n, n_actions = len(P), len(P[0])
    rewards, outcomes = np.zeros((n + 1, n_actions)), np.zeros((n + 1, n_actions, n + 1))
    outcomes[n, :, n] = 1.0
    for state in P:
        for action in P[state]:
            for p, after, reward, over in P[state][action]:
                outcomes[state, action, n if ends and over else after] += p
                rewards[state, action] += p * reward
    return qe.markov.DiscreteDP(rewards, outcomes, 0.99).solve("policy_iteration").v[start]


print("gymnasium", gym.__version__, "quantecon", qe.__version__)
values = {}
for name, start in (("FrozenLake-v1", 0), ("CliffWalking-v1", 36)):
    values[name] = start_value(name, start, ends=True), start_value(name, start, ends=False)
    print(name, "with ends: %.3f, without: %.3f" % values[name])
assert abs(np.subtract(*values["FrozenLake-v1"])) < 1e-9
assert abs(values["CliffWalking-v1"][0] + 12.248) < 1e-3
assert abs(values["CliffWalking-v1"][1] + 100.0) < 1e-6
PYTHON
