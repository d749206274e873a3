#!/bin/sh
# Believed: `model.jnt_type[0] in (mjtJoint.mjJNT_FREE, mjtJoint.mjJNT_BALL)` finds a free joint, as it did since 2021.
# True (mujoco 4.0.0, and from 3.12.0 on; until 3.11.0 it did): a number of NumPy equals a member of an enumeration, and
# the member does not equal the number. `in` asks the member, so that it is False without an error, and
# gymnasium-robotics 1.4.2 ends in a bare AssertionError in each of its Fetch and hand environments.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 3.9.0 4.0.0; do
    python3 -m venv "$folder/$version"
    "$folder/$version/bin/python" -m pip install --quiet --disable-pip-version-check "mujoco==$version"
    "$folder/$version/bin/python" - <<'PYTHON'
import mujoco
import numpy as np

model = mujoco.MjModel.from_xml_string(
    "<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
)
kind, free = model.jnt_type[0], mujoco.mjtJoint.mjJNT_FREE
found = bool(kind == free), bool(free == kind), kind in (free, mujoco.mjtJoint.mjJNT_BALL)
print("mujoco", mujoco.__version__, "numpy", np.__version__)
print("number == member: %s, member == number: %s, number in members: %s" % found)
assert free == int(kind) and int(kind) == free  # of Python's own numbers both hold
assert found == ((True, True, True) if mujoco.__version__ == "3.9.0" else (True, False, False))
PYTHON
done
