#!/bin/sh
# Believed: a data set returns the observations that were recorded.
# True (minari 0.5.4, dataset/minari_storage.py): images of at least 32 pixels a side, uint8 from 0 to 255,
# are stored as JPEG unless jpeg_encoding=False is given, in both formats: pixels come back up to
# 250 off. Smaller images and other bounds are exact. Who counts states by their pixels, or compares them, counts others.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "minari[create,hdf5]==0.5.4" pillow==13.0.0
"$folder/venv/bin/python" - <<'PYTHON'
import os
import tempfile

os.environ["MINARI_DATASETS_PATH"] = tempfile.mkdtemp()
import gymnasium as gym
import minari
import numpy as np
from gymnasium import spaces


class Noise(gym.Env):
    """Images of random pixels, the same in every episode."""

    action_space = spaces.Discrete(2)

    def __init__(self, side):
        self.observation_space = spaces.Box(0, 255, (side, side, 3), np.uint8)

    def image(self):
        return np.random.default_rng(self.t).integers(0, 256, self.observation_space.shape, dtype=np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.image(), {}

    def step(self, action):
        self.t += 1
        return self.image(), 0.0, self.t == 5, False, {}


print("minari", minari.__version__)
off = {}
for side, options in ((16, {}), (64, {}), (64, {"jpeg_encoding": False})):
    collector = minari.DataCollector(Noise(side), **options)
    seen = [collector.reset(seed=0)[0]] + [collector.step(0)[0] for _ in range(5)]
    name = f"noise/side{side}{len(options)}-v0"
    collector.create_dataset(name)
    stored = next(minari.load_dataset(name).iterate_episodes()).observations
    off[side, len(options)] = int(np.abs(np.stack(seen).astype(int) - np.asarray(stored)).max())
    print(f"{side} pixels a side, {options}: at most {off[side, len(options)]} off")
assert off[16, 0] == 0
assert off[64, 0] > 20
assert off[64, 1] == 0
PYTHON
