#!/bin/sh
# Believed: pip gives a release of TensorBoard a NumPy with which it works, since the release names NumPy among its
# requirements.
# True (tensorboard 2.16.2): its requirement has no upper bound, so that NumPy 2 is installed, and pip check finds
# nothing. Writing a scalar through tensorboard.summary and importing its readers then fail: np.string_ is gone. Files written by
# the lower writer, which torch uses, cannot be read back. 2.18.0 does both.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
for version in 2.16.2 2.18.0; do
    "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "tensorboard==$version" numpy==2.2.6 "setuptools<81"
    "$folder/venv/bin/python" -m pip check
    FOLDER="$folder" "$folder/venv/bin/python" - <<'PYTHON'
import importlib
import os
from importlib.metadata import version

import numpy as np

fails = version("tensorboard") == "2.16.2"


def outcome(act):
    try:
        act()
    except AttributeError as error:
        return str(error).splitlines()[0]
    return "works"


def write():
    writer = importlib.import_module("tensorboard.summary").Writer(os.environ["FOLDER"])
    writer.add_scalar("value", 1.0, 0)
    writer.close()


reader = "tensorboard.backend.event_processing.event_accumulator"
writing, reading = outcome(write), outcome(lambda: importlib.import_module(reader))
print("tensorboard", version("tensorboard"), "numpy", np.__version__)
print("writing:", writing)
print("reading:", reading)
assert ("np.string_" in writing and "np.string_" in reading) if fails else writing == reading == "works"
PYTHON
done
