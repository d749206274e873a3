#!/bin/sh
# Believed: gradient boosting with small leaves and enough trees learns any table of values by heart, as a single tree does.
# True (scikit-learn 1.9.1, ensemble/_hist_gradient_boosting/binning.py; gymnasium 1.4.0): before the first tree every
# feature is cut into at most 255 bins, once and for all, and max_bins=255 is the largest there is. A state's number
# above 255 states shares its bin with neighbours, however long training is: of the best values of Taxi's 500 states
# 300 trees are 5 off, and the policy that is greedy in them is best from 28% of states. In four parts (row,
# column, passenger, destination) the same numbers are learned.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check gymnasium==1.4.0 scikit-learn==1.9.1 numpy==2.4.6
OMP_NUM_THREADS=1 "$folder/venv/bin/python" - <<'PYTHON'
import gymnasium as gym
import numpy as np
import sklearn
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.tree import DecisionTreeRegressor

print("gymnasium", gym.__version__, "scikit-learn", sklearn.__version__)
P = gym.make("Taxi-v4").unwrapped.P
rows = [[P[state][action][0] for action in range(6)] for state in range(500)]
after, rewards, over = (np.array([[row[i] for row in actions] for actions in rows]) for i in (1, 2, 3))


def backup(values):
    """What each action is worth when states are worth values (discount 0.99)."""
    return rewards + 0.99 * np.where(over, 0.0, values[after])


best, states = np.zeros(500), np.arange(500)
for _ in range(3000):
    best = backup(best).max(1)
number = states[:, None]
parts = np.stack(np.unravel_index(states, (5, 5, 5, 4)), axis=1)
boosting = HistGradientBoostingRegressor(max_iter=300, min_samples_leaf=1, max_leaf_nodes=None, early_stopping=False)
off, best_from = {}, {}
for name, learner, inputs in (
    ("one tree, states by number", DecisionTreeRegressor(), number),
    ("boosting, states by number", boosting, number),
    ("boosting, states in parts", boosting, parts),
):
    learned = learner.fit(inputs, best).predict(inputs)
    policy = backup(learned).argmax(1)
    worth = np.zeros(500)
    for _ in range(3000):
        worth = backup(worth)[states, policy]
    off[name], best_from[name] = np.abs(learned - best).max(), (worth > best - 0.1).mean()
    print(f"{name}: at most {off[name]:.3g} off, {len(set(learned.round(6)))} values, best from {best_from[name]:.0%} of states")
assert off["one tree, states by number"] < 1e-9
assert off["boosting, states by number"] > 3.0
assert best_from["boosting, states by number"] < 0.9
assert off["boosting, states in parts"] < 0.01
assert best_from["boosting, states in parts"] == 1.0
PYTHON
