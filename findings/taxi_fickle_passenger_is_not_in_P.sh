#!/bin/sh
# Believed: env.unwrapped.P of Taxi holds the dynamics of the environment that was made.
# True (gymnasium 1.4.0, envs/toy_text/taxi.py): it holds the rain (probabilities 0.8 and 0.1) and not the
# passenger who changes the destination: with fickle_passenger=True all probabilities stay 1, and
# steps lead to states that P excludes. Whoever solves P exactly solves another problem.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check gymnasium==1.4.0
"$folder/venv/bin/python" - <<'PYTHON'
import gymnasium as gym

print("gymnasium", gym.__version__)
rainy = gym.make("Taxi-v4", is_rainy=True).unwrapped.P
print("rainy:", sorted({p for state in rainy.values() for action in state.values() for p, *_ in action}))
env = gym.make("Taxi-v4", fickle_passenger=True)
P = env.unwrapped.P
print("fickle:", sorted({p for state in P.values() for action in state.values() for p, *_ in action}))
env.action_space.seed(0)
steps = outside = 0
for seed in range(200):
    state, _ = env.reset(seed=seed)
    over = False
    while not over:
        action = env.action_space.sample()
        after, _, terminated, truncated, _ = env.step(action)
        steps += 1
        outside += int(after) not in {int(row[1]) for row in P[state][action]}
        state, over = int(after), terminated or truncated
print(f"{outside} of {steps} steps lead where P says that nothing does")
assert {p for state in P.values() for action in state.values() for p, *_ in action} == {1.0}
assert outside > 0
PYTHON
