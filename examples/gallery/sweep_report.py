"""
A sweep and its report
======================

One command runs several agents over seeds and writes tables with intervals, figures, and the
machine, versions and command. ``rover sweep STUDY.toml`` does the same for any study; finished runs
are not repeated.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

folder = Path(tempfile.mkdtemp())
command = "compare rover/TwoRooms-v0 --agents rover,random --seeds 2 --steps 800"
words = [sys.executable, "-m", "rover", *command.split(), "--out", folder]
_ = subprocess.run(words, check=True)

# %%
# The page is Markdown; its first table shows the coverage by pretraining.
page = (folder / "comparison.md").read_text()
table = [line for line in page.splitlines() if line.startswith("|")][:5]
for line in table:
    print(" | ".join(cell.split("<br>")[0].strip() for cell in line.split("|")[1:6]))

# %%
# One of its figures: means over seeds, with intervals.
figure, axes = plt.subplots(figsize=(11, 3.6), layout="constrained")
axes.imshow(plt.imread(folder / "pictures" / "learning_curves.png"))
axes.axis("off")
plt.show()
