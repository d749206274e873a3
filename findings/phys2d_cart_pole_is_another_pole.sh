#!/bin/sh
# Believed: phys2d/CartPole-v1 is CartPole-v1, written for JAX.
# True (gymnasium 1.4.0, envs/phys2d/cartpole.py): polemass_length is the sum of the mass and the length of the pole
# (0.6), where envs/classic_control/cartpole.py has the product (0.05). A push gives the cart 1.7 times the
# speed; the pole falls alike in the first steps, so that rewards look familiar.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "gymnasium==1.4.0" jax==0.10.2 jaxlib==0.10.2 flax==0.12.8
"$folder/venv/bin/python" - <<'PYTHON'
import gymnasium as gym
import numpy as np

print("gymnasium", gym.__version__)
pole, other = gym.make("CartPole-v1").unwrapped, gym.make("phys2d/CartPole-v1").unwrapped
for env in (pole, other):
    env.reset(seed=0)
    env.state = np.full(4, 0.01, np.float32)
classic, functional = (np.asarray(env.step(1)[0]) for env in (pole, other))
print("classic   ", classic)
print("functional", functional)
print("polemass_length:", pole.polemass_length, "and the sum of mass and length:", pole.masspole + pole.length)
assert np.allclose(classic[[0, 2, 3]], functional[[0, 2, 3]], atol=1e-5)
assert functional[1] > 1.6 * classic[1]
PYTHON
