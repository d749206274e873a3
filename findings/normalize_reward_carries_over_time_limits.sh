#!/bin/sh
# Believed: NormalizeReward divides by the spread of the returns of episodes, in whatever way a vector resets itself.
# True (gymnasium 1.4.0, wrappers/vector/stateful_reward.py): in the mode that is the default (next-step) the return is set
# back by terminations alone, and goes on over a time limit into the next episode; in the same-step mode, and where resets
# are one's own, every episode begins at 0. Pendulum ends by time limits only: the same rewards are divided
# by 117 or by 172. The wrapper of single environments (wrappers/stateful_reward.py) carries over as well.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check gymnasium==1.4.0 pygame==2.6.1 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import NormalizeReward


def spread(mode, episodes=20):
    """The number that rewards are divided by, and the return that is kept just after a first time limit."""
    envs = NormalizeReward(SyncVectorEnv([lambda: gym.make("Pendulum-v1")] * 4, autoreset_mode=mode), gamma=0.99)
    envs.reset(seed=0)
    rng, ended, after = np.random.default_rng(0), 0, None
    actions = rng.uniform(-2.0, 2.0, (episodes, 200, 4, 1)).astype(np.float32)
    for episode in actions:
        for action in episode:
            _, _, terminated, truncated, _ = envs.step(action)
            assert not terminated.any()
        assert truncated.all()
        if mode == AutoresetMode.NEXT_STEP:
            envs.step(episode[0])
        elif mode == AutoresetMode.DISABLED:
            envs.reset(options={"reset_mask": truncated})
        after = envs.accumulated_reward.copy() if after is None else after
    return float(np.sqrt(envs.return_rms.var)), after


print("gymnasium", gym.__version__)
found = {mode: spread(mode) for mode in AutoresetMode}
for mode, (divisor, after) in found.items():
    print(f"{mode.name}: rewards are divided by {divisor:.1f}, returns after a time limit: {after.round(1)}")
assert np.all(found[AutoresetMode.NEXT_STEP][1] < -1.0)
assert not found[AutoresetMode.SAME_STEP][1].any()
assert not found[AutoresetMode.DISABLED][1].any()
assert abs(found[AutoresetMode.SAME_STEP][0] / found[AutoresetMode.DISABLED][0] - 1.0) < 1e-6
assert abs(found[AutoresetMode.NEXT_STEP][0] / found[AutoresetMode.SAME_STEP][0] - 1.0) > 0.1
single = gym.wrappers.NormalizeReward(gym.make("Pendulum-v1"), gamma=0.99)
for _ in range(2):
    single.reset(seed=0)
    for _ in range(200):
        single.step(np.zeros(1, np.float32))
    print(f"single environment, no torque: return {float(np.ravel(single.discounted_reward)[0]):.1f} after an episode")
PYTHON
