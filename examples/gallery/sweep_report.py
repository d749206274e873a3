"""
A sweep and its report
======================

One command runs agents side by side over seeds and writes tables with intervals, pictures, and the
machine, versions and command that made them. ``rover sweep STUDY.toml`` does the same for any
study; a finished run is never repeated.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

folder = Path(tempfile.mkdtemp())
command = "compare rover/TwoRooms-v0 --agents rover,random --seeds 2 --steps 800"
subprocess.run([sys.executable, "-m", "rover", *command.split(), "--out", folder], check=True)

# %%
# The page is Markdown; its first table is what pretraining saw.
page = (folder / "comparison.md").read_text()
table = [line for line in page.splitlines() if line.startswith("|")][:5]
for line in table:
    print(" | ".join(cell.split("<br>")[0].strip() for cell in line.split("|")[1:6]))

# %%
# One of its pictures: means over seeds, with intervals.
figure, axes = plt.subplots(figsize=(11, 3.6), layout="constrained")
axes.imshow(plt.imread(folder / "pictures" / "learning_curves.png"))
axes.axis("off")
plt.show()
