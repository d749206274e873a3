#!/bin/sh
# Believed: the axis along a colour bar, whichever way it is drawn, is colorbar.long_axis, as the documentation has it,
# in every matplotlib of these years.
# True: of these two it is public in 3.10.0 alone. 3.9.0 has a private method, colorbar._long_axis(), so that code written
# with a newer release fails with an AttributeError on the line that draws a map. In both, colorbar.ax.xaxis or .yaxis is
# that axis, and the caller has to know which.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
for version in 3.9.0 3.10.0; do
    "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "matplotlib==$version" numpy==2.2.6
    MPLBACKEND=agg "$folder/venv/bin/python" - <<'PYTHON'
import matplotlib
import matplotlib.pyplot as plt

figure, axes = plt.subplots()
bar = figure.colorbar(axes.imshow([[0.0, 1.0]]))
names = [name for name in dir(bar) if "long_axis" in name]
print("matplotlib", matplotlib.__version__, "has", *names)
if matplotlib.__version__ == "3.9.0":
    assert names == ["_long_axis"]
    assert bar._long_axis() is bar.ax.yaxis
else:
    assert names == ["long_axis"]
    assert bar.long_axis is bar.ax.yaxis
PYTHON
done
