"""Pictures of the gallery: committed ones where a script did not run, thumbnails, and their texts.

    python docs/extensions/gallery_pictures.py

copies the pictures of the last full build to docs/pictures/gallery/, where they are committed.
"""

from __future__ import annotations

import re
import tomllib
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
    part: list[float]


PICTURES = {
    name: Picture(**picture)
    for name, picture in tomllib.loads(
        Path(__file__).with_suffix(".toml").read_text("utf-8")
    ).items()
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
