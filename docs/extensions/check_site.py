"""Look at every built page as a reader does, from the file system.

    python docs/extensions/check_site.py site [--pictures DIR]

Every internal link leads to a page, file or anchor that exists, and nothing is fetched from
elsewhere; every public name has an anchor in the reference; pictures have texts, and no thumbnail
of the gallery is a placeholder or mostly margin. In headless Chromium, where there is one: no error
in the console, formulas have a size, no page scrolls sideways at 390 pixels, a table that does
shows it, commands and printed output are seen to their ends, no table and no code is cut at 1280
pixels, and no name in a table is broken.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from shutil import which
from urllib.parse import unquote, urlsplit

from PIL import Image, ImageChops
from reference import homes

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
FORMULA_PAGES = {"primer.html": 20, "transition_model.html": 10}
"""Pages that have at least so many formulas."""
LEAST_THUMBNAIL, LEAST_FILLED = 200, 0.9
"""Pixels in width, and share of width and height without white margins."""
BROKEN_TABLES = """() => [...document.querySelectorAll('article table.docutils')].flatMap(table => {
  const box = table.closest('.table-wrapper') || table.parentElement, faults = [];
  const wide = box.scrollWidth - box.clientWidth;
  const name = table.innerText.replace(/\\s+/g, ' ').slice(0, 30);
  if (wide > 0 && innerWidth > 1000) faults.push(`a table is cut by ${wide} pixels: ${name}`);
  if (wide > 0 && !getComputedStyle(box).backgroundImage.includes('gradient'))
    faults.push(`a table does not show that it scrolls: ${name}`);
  for (const code of table.querySelectorAll('td code, th code'))
    if (code.getClientRects().length > 1 && /^[\\w.]+$/.test(code.textContent))
      faults.push(`${code.textContent} is broken in a table`);
  return faults;
}).concat([...document.querySelectorAll(
    innerWidth > 1000 ? '[class*=highlight-] pre' : '.highlight-bash pre, .highlight-text pre')]
  .filter(pre => pre.scrollWidth > pre.clientWidth)
  .map(pre => `the end of a line is not seen: ${pre.textContent.slice(0, 30)}`))"""
SHOWN = ("index", "first_result", "primer", "gallery/index", "api/rover.operators", "api/settings")


class Page(HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.silent: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Collect what a tag points to, how it can be pointed to, and pictures without a text."""
        if tag == "img" and not dict(attributes).get("alt"):
            self.silent.append(str(dict(attributes).get("src")))
        for name, value in attributes:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name == "href" and value and tag == "a":
                self.links.append(value)
            elif name in ("src", "href") and value and tag != "a":
                self.loaded.append(value)


def wrong_links(site: Path) -> Iterator[str]:
    """Links and included files that lead nowhere."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        where = path.relative_to(site.resolve())
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded and parts.scheme != "data":
                    yield f"{where} loads {link}"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{where} → {link}: no such file"
            elif target in pages and unquote(parts.fragment) not in {"", *pages[target].anchors}:
                yield f"{where} → {link}: no such anchor"


def missing_names(site: Path) -> Iterator[str]:
    """Public names that the reference does not describe."""
    anchors = {anchor for path in (site / "api").glob("*.html") for anchor in Page(path).anchors}
    for (_, name), home in homes().items():
        if f"{home}.{name}" not in anchors:
            yield f"{home}.{name} is not in the reference"


def wrong_pictures(site: Path) -> Iterator[str]:
    """Pictures without a text, and thumbnails that do not show enough at the size of a stamp."""
    for path in sorted(site.rglob("*.html")):
        yield from (f"{path.relative_to(site)}: {name} has no text" for name in Page(path).silent)
    scripts = [path.stem for path in (site / "gallery").glob("*.html") if path.stem != "index"]
    for name in scripts:
        if name == "sg_execution_times":
            continue
        image = Image.open(site / "_images" / f"sphx_glr_{name}_thumb.png").convert("RGB")
        ground = Image.new("RGB", image.size, "white")
        box = ImageChops.difference(image, ground).getbbox() or (0, 0, 0, 0)
        filled = min((box[2] - box[0]) / image.width, (box[3] - box[1]) / image.height)
        if image.width < LEAST_THUMBNAIL or filled < LEAST_FILLED:
            yield f"the thumbnail of {name} has {image.width} pixels and is filled to {filled:.0%}"
        if "no_image" in (site / "gallery" / f"{name}.html").read_text("utf-8"):
            yield f"{name} shows a placeholder"


def seen_wrong(site: Path, chromium: str, pictures: Path | None) -> Iterator[str]:
    """Complaints of a browser, and what it shows badly."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(viewport=PHONE)
        tab = context.new_page()
        heard: list[str] = []
        tab.on("console", lambda said: heard.append(said.text) if said.type == "error" else None)
        tab.on("pageerror", lambda error: heard.append(str(error)))
        tab.on("requestfailed", lambda request: heard.append(f"cannot load {request.url}"))
        for path in sorted(site.rglob("*.html")):
            where = str(path.relative_to(site))
            tab.goto(path.resolve().as_uri())
            wide, math, blank = tab.evaluate(
                "() => [document.documentElement.scrollWidth - innerWidth,"
                " document.querySelectorAll('math').length, [...document.querySelectorAll('math')]"
                ".filter(m => !m.getBoundingClientRect().width).length]"
            )
            if wide > 0:
                yield f"{where} is {wide} pixels wider than a phone"
            if blank or math < FORMULA_PAGES.get(where, 0):
                yield f"{where}: {blank} of {math} formulas are not drawn"
            yield from (f"{where}, phone: {line}" for line in tab.evaluate(BROKEN_TABLES))
            tab.set_viewport_size(DESKTOP)
            yield from (f"{where}, desktop: {line}" for line in tab.evaluate(BROKEN_TABLES))
            tab.set_viewport_size(PHONE)
            yield from (f"{where}: {line}" for line in heard)
            heard.clear()
        if pictures is not None:
            pictures.mkdir(parents=True, exist_ok=True)
            for name in SHOWN:
                for scheme in ("light", "dark"):
                    for kind, size in {"phone": PHONE, "desktop": DESKTOP}.items():
                        tab.set_viewport_size(size)
                        tab.emulate_media(color_scheme=scheme)
                        tab.goto((site / f"{name}.html").resolve().as_uri())
                        file = f"{name.replace('/', '-')}-{kind}-{scheme}.png"
                        tab.screenshot(path=pictures / file)
        browser.close()


def main() -> int:
    """Entry point; the exit code says whether anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--pictures", type=Path, help="folder for screenshots of a few pages")
    options = parser.parse_args()
    site = options.site
    wrong = [*wrong_links(site), *missing_names(site), *wrong_pictures(site)]
    chromium = os.environ.get("CHROMIUM") or which("chromium") or which("google-chrome")
    if chromium is None:
        print("no Chromium is installed: links and names were checked, pages not looked at")
    else:
        wrong += seen_wrong(options.site, chromium, options.pictures)
    for line in wrong:
        print(line, file=sys.stderr)
    n_pages = len(list(options.site.rglob("*.html")))
    print(f"{n_pages} pages, {len(wrong)} faults")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
