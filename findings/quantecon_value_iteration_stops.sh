#!/bin/sh
# Believed: DiscreteDP.solve("value_iteration") returns values within epsilon / 2 of the optimum, or
# says that it did not converge.
# True (quantecon 0.11.4, markov/ddp.py): it stops at max_iter = 250 sweeps without a word, which is
# enough for a discount of 0.9 alone. At 0.999 values are off by 586; the only sign
# is that num_iter equals max_iter. Modified policy iteration, with the same limits, converges.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check quantecon==0.11.4
"$folder/venv/bin/python" - <<'PYTHON'
import warnings

import numpy as np
import quantecon as qe

warnings.simplefilter("error")
rng = np.random.default_rng(0)
rewards, outcomes = rng.random((20, 3)), rng.dirichlet(np.ones(20), size=(20, 3))
print("quantecon", qe.__version__)
errors = {}
for discount in (0.9, 0.99, 0.999):
    problem = qe.markov.DiscreteDP(rewards, outcomes, discount)
    exact = problem.solve("policy_iteration").v
    found = problem.solve("value_iteration")
    modified = problem.solve("modified_policy_iteration")
    errors[discount] = np.abs(found.v - exact).max()
    print(f"discount {discount}: error {errors[discount]:.4g} after {found.num_iter} of {found.max_iter}")
    assert np.abs(modified.v - exact).max() < 1e-6
assert errors[0.9] < 1e-3
assert errors[0.99] > 1.0
assert errors[0.999] > 100.0
PYTHON
