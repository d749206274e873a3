#!/bin/sh
# Believed: the last observation of MaxAndSkipObservation is of the frames in which the episode ended.
# True (gymnasium 1.4.0, wrappers/stateful_observation.py): frames are kept for the last two steps of a
# skip alone. An episode that ends earlier in a skip returns the frames of the skip before, or
# zeros in the first one: a learner that bootstraps there, and a model of where actions lead, see a state that was not there.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check gymnasium==1.4.0
"$folder/venv/bin/python" - <<'PYTHON'
import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import MaxAndSkipObservation


class Countdown(gym.Env):
    """Shows 200 less ten times the steps, and ends after some."""

    observation_space = spaces.Box(0, 255, (1,), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self, last):
        self.last = last

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.array([200], np.uint8), {}

    def step(self, action):
        self.t += 1
        return np.array([200 - 10 * self.t], np.uint8), 1.0, self.t >= self.last, False, {}


print("gymnasium", gym.__version__)
env = MaxAndSkipObservation(Countdown(6), skip=4)
env.reset()
first, second = env.step(0), env.step(0)
print("frames 160 and 170, then 150 and 140 with the end:", first[0][0], "then", second[0][0], second[2])
short = MaxAndSkipObservation(Countdown(2), skip=4)
short.reset()
only = short.step(0)
print("frames 190 and 180 with the end:", only[0][0], only[2])
assert first[0][0] == second[0][0] == 170
assert second[2]
assert only[0][0] == 0
assert only[2]
PYTHON
