#!/bin/sh
# Believed: `pip install --upgrade mujoco` from 3.17.0 gives 4.0.0, as an installation in an empty environment does.
# True (pip as Python has it): 4.0.0 is three distributions, and pip removes the files of 3.17.0, of the same names,
# behind the installation of the new core. The import fails; only --force-reinstall mends it.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
pip="-m pip install --quiet --disable-pip-version-check"
for first in 3.17.0 4.0.0; do
    python3 -m venv "$folder/$first"
    "$folder/$first/bin/python" $pip "mujoco==$first"
    "$folder/$first/bin/python" $pip --upgrade "mujoco==4.0.0"
    if "$folder/$first/bin/python" -c "import mujoco" 2>"$folder/error"; then imported=yes; else imported=no; fi
    echo "4.0.0 after $first: imported: $imported; $(tail -n 1 "$folder/error")"
    [ "$imported" = "$([ "$first" = 4.0.0 ] && echo yes || echo no)" ]
done
"$folder/3.17.0/bin/python" $pip --force-reinstall --no-deps mujoco==4.0.0 mujoco-core==4.0.0 mujoco-studio==4.0.0
"$folder/3.17.0/bin/python" -c "import mujoco; print('mended:', mujoco.__version__)"
