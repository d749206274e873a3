"""
A sweep and its report
======================

A study is data: what is run, with which seeds, and what is shown. ``rover sweep STUDY.toml`` does
the same; a finished run is never repeated.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from rover.sweeps import comparison, run_study

agents = [("rover", None), ("rmax", None), ("random", None)]
study = comparison("rover/TwoRooms-v0", {}, agents, steps=1200, n_seeds=3)

# %%
folder = Path(tempfile.mkdtemp())
report = run_study(
    study, jobs=1, runs_dir=folder / "runs", out=folder / "report", say=lambda line: None
)
page = next((folder / "report").glob("*.md")).read_text()
print(page[page.index("## The final policy") :][:900])

# %%
# One of its pictures: means over seeds, with intervals.
figure, axes = plt.subplots(figsize=(11, 3.6))
axes.imshow(plt.imread(folder / "report" / "pictures" / "learning_curves.png"))
axes.axis("off")
figure.tight_layout()
plt.show()
