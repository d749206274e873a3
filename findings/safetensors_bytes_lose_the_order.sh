#!/bin/sh
# Believed: load(save(parameters)) and load_file(save_file(parameters)) return one dictionary, in one order.
# True (safetensors 0.8.0, numpy.py): the file comes back ordered by width of its type, then by name; bytes
# come back in an order that changes from one call to the next. Nobody notices by name. A learner that lays its parameters
# end to end (natural gradients, evolution strategies, distances between policies) gets another vector every time.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check safetensors==0.8.0 numpy==2.4.6
FOLDER="$folder" "$folder/venv/bin/python" - <<'PYTHON'
import os

import numpy as np
import safetensors
from safetensors.numpy import load, load_file, save, save_file

print("safetensors", safetensors.__version__)
policy = {f"layer{i}": np.full(2, float(i), np.float32) for i in (0, 1, 2, 10)}
policy["log_std"] = np.full(2, 5.0, np.float64)
path = os.path.join(os.environ["FOLDER"], "policy.safetensors")
save_file(policy, path)
data = save(policy)
print("saved:      ", list(policy))
print("from a file:", list(load_file(path)))
orders = {tuple(load(data)) for _ in range(50)}
vectors = {np.concatenate(list(load(data).values())).tobytes() for _ in range(50)}
print("from bytes: ", *map(list, sorted(orders)[:3]), f"and {len(orders) - 3} more")
print(len(vectors), "vectors of parameters from 50 loads of the same bytes")
assert all(np.array_equal(load(data)[name], policy[name]) for name in policy)
assert {tuple(load_file(path)) for _ in range(50)} == {("log_std", "layer0", "layer1", "layer10", "layer2")}
assert len(orders) > 3
assert len(vectors) > 3
PYTHON
