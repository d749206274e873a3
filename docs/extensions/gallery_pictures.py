"""Pictures of the gallery: committed ones where a script did not run, thumbnails, and their texts.

    python docs/extensions/gallery_pictures.py

copies the pictures of the last full build to docs/pictures/gallery/, where they are committed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from sphinx.application import Sphinx

DOCS = Path(__file__).parents[1]
COMMITTED = DOCS / "pictures" / "gallery"
BUILT = DOCS / "gallery" / "images"
THUMBNAIL = (400, 280)
"""Pixels: sharp at the 160 to 200 that are shown, on screens of two pixels for one."""


class Picture(NamedTuple):
    """A picture of the gallery.

    Attributes:
        shows: its text for those who do not see it.
        part: left, top, right and bottom of the thumbnail, as shares of the picture.
    """

    shows: str
    part: tuple[float, float, float, float]


PICTURES = {
    "adapt_or_finetune": Picture(
        "Returns by steps: adapting is at the best return at once, fine-tuning after 2,500 steps, "
        "learning from scratch not by 4,000",
        (0.56, 0.02, 1.0, 0.87),
    ),
    "goals_regret": Picture(
        "Two maps of regrets: ROVER reaches every cell by the shortest way, random actions only "
        "those of the first two rooms",
        (0.27, 0.56, 0.88, 0.93),
    ),
    "maze": Picture(
        "A maze with arrows in each cell, as long as the policy takes that way",
        (0.5, 0.48, 1.0, 0.96),
    ),
    "middle_room": Picture(
        "Visits in two maps: ROVER's reach the far corners, those of random actions stay near the "
        "start",
        (0.0, 0.1, 0.89, 0.93),
    ),
    "minigrid_rooms": Picture(
        "Visits in a room of six by six cells, by ROVER and by random actions",
        (0.04, 0.09, 0.9, 0.97),
    ),
    "mountain_car": Picture(
        "Spirals in the plane of position and velocity, from the valley out to the flag",
        (0.07, 0.08, 0.475, 0.9),
    ),
    "multi_rooms": Picture(
        "Paths of twenty episodes through a corridor into each of five rooms",
        (0.0, 0.16, 0.37, 0.83),
    ),
    "noise": Picture(
        "States of MountainCar without noise and with four dimensions of it: the same spirals",
        (0.55, 0.08, 1.0, 0.9),
    ),
    "one_page": Picture(
        "Five rooms coloured by the step of the first visit, and J falling to its least value",
        (0.2, 0.085, 0.6, 0.57),
    ),
    "operators_alone": Picture(
        "J over its optimum falls to one in the first ten steps of mirror descent",
        (0.14, 0.0, 1.0, 0.87),
    ),
    "optimum": Picture(
        "Occupancy of four rooms under random actions, which stay at the start, ROVER and the "
        "optimum, which look alike",
        (0.0, 0.1, 0.58, 0.89),
    ),
    "pixels": Picture(
        "An image of two rooms as the agent sees it, and the even occupancy of its policy",
        (0.015, 0.08, 0.33, 0.94),
    ),
    "point_maze": Picture(
        "Places of a ball in a maze in the order of their visits, by ROVER and by random actions",
        (0.195, 0.08, 0.445, 0.86),
    ),
    "sink": Picture(
        "Occupancy of a maze: even with the sink, without it drawn to what is unknown",
        (0.0, 0.08, 0.86, 0.9),
    ),
    "sweep_report": Picture(
        "Learning curves of two agents with intervals over seeds",
        (0.045, 0.16, 0.33, 0.8),
    ),
    "transition_model": Picture(
        "A maze with places coloured by novelty, and from one of them an arrow for each of four "
        "actions, with rings around the places that it leads to",
        (0.04, 0.1, 0.43, 0.75),
    ),
}


def keep_pictures() -> None:
    """Copy each picture of the last build to where it is committed, in 128 colours."""
    COMMITTED.mkdir(exist_ok=True)
    for name in PICTURES:
        built = BUILT / f"sphx_glr_{name}_001.png"
        if built.exists():
            image = Image.open(built).convert("RGB").quantize(128, dither=Image.Dither.NONE)
            image.save(COMMITTED / f"{name}.png", optimize=True)


def write_thumbnails(app: Sphinx) -> None:
    """Cut each thumbnail from the committed picture, in place of what the gallery made."""
    for name, picture in PICTURES.items():
        image = Image.open(COMMITTED / f"{name}.png").convert("RGB")
        left, top, right, bottom = picture.part
        box = (left * image.width, top * image.height, right * image.width, bottom * image.height)
        cut = image.crop(tuple(map(round, box)))
        cut.thumbnail(THUMBNAIL, Image.Resampling.LANCZOS)
        cut.save(BUILT / "thumb" / f"sphx_glr_{name}_thumb.png")


def describe_pictures(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give pictures their texts; show the committed one where the script did not run."""
    if docname == "gallery/index":
        source[0] = re.sub(
            r"(sphx_glr_(\w+)_thumb\.png\n +:alt:).*",
            lambda match: f"{match[1]} {PICTURES[match[2]].shows}",
            source[0],
        )
    elif (name := docname.removeprefix("gallery/")) in PICTURES and docname != name:
        shows = PICTURES[name].shows
        if f"sphx_glr_{name}_001.png" in source[0]:
            source[0] = re.sub(r"( +:alt:).*", rf"\1 {shows}", source[0])
            return
        note = (
            ".. note:: This build did not run the script. The picture is the one of an earlier "
            f"run.\n\n.. image:: /pictures/gallery/{name}.png\n   :alt: {shows}\n\n"
        )
        source[0] = source[0].replace(
            ".. GENERATED FROM PYTHON", f"{note}.. GENERATED FROM PYTHON", 1
        )


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the events; thumbnails are cut after the gallery has made its own."""
    app.connect("builder-inited", write_thumbnails, priority=900)
    app.connect("source-read", describe_pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    keep_pictures()
