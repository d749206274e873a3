"""Draw docs/pictures/method.png: the loop of the method in four boxes."""

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

STEPS = [
    ("1  Collect", "go to the nearest\nunknown part\nof the model"),
    ("2  Represent", "states as they are,\nscaled quantities,\nor features"),
    ("3  Estimate", "dynamics from data;\nthe unknown leads\nto a sink"),
    ("4  Improve", "make visits\nmore even,\nin closed form"),
]
LABELS = ["transitions", "features", "dynamics model", "policy, and what is still unknown"]


def main() -> None:
    """Write the picture."""
    figure, axes = plt.subplots(figsize=(9.0, 2.5), dpi=150)
    axes.set(xlim=(0.0, 4.0), ylim=(0.0, 1.0))
    axes.axis("off")
    for number, (title, words) in enumerate(STEPS):
        left = number + 0.08
        axes.add_patch(
            FancyBboxPatch(
                (left, 0.42), 0.68, 0.46, boxstyle="round,pad=0.03", fc="#E8F1F8", ec="#0072B2"
            )
        )
        axes.text(left + 0.34, 0.8, title, ha="center", weight="bold", fontsize=10)
        axes.text(left + 0.34, 0.57, words, ha="center", va="center", fontsize=8)
        if number < 3:
            start, end = (left + 0.72, 0.65), (left + 0.96, 0.65)
            axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=12))
            axes.text(left + 0.84, 0.93, LABELS[number], ha="center", fontsize=6.5)
    axes.add_patch(
        FancyArrowPatch(
            (3.42, 0.38),
            (0.42, 0.38),
            connectionstyle="arc3,rad=-0.18",
            arrowstyle="-|>",
            mutation_scale=12,
        )
    )
    axes.text(1.92, 0.02, LABELS[3], ha="center", fontsize=7)
    folder = Path(__file__).resolve().parents[1] / "pictures"
    figure.savefig(folder / "method.png", bbox_inches="tight", metadata={"Software": None})


if __name__ == "__main__":
    main()
