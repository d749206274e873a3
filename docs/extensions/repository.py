"""Links to the repository and to each page's source, from one address that may be empty.

`repository` in conf.py, or `make docs SPHINX="-D repository=https://github.com/OWNER/NAME"`, is the
address on GitHub, GitLab or Bitbucket. Without one the site has no such links.
"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

GENERATED = ("api/", "agents/", "gallery/", "project/")
"""Pages without a source of their own below docs/."""


def theme_options(address: str) -> dict[str, Any]:
    """Options of the theme for an address of a repository; none without one."""
    if not address:
        return {}
    return {
        "source_repository": address,
        "source_branch": "main",
        "source_directory": "docs/",
        "footer_icons": [{"name": "Repository", "url": address, "html": "Repository", "class": ""}],
    }


def _add_options(_: Sphinx, config: Config) -> None:
    config.html_theme_options = {**config.html_theme_options, **theme_options(config.repository)}


def _drop_edit_links(
    _app: Sphinx, page: str, _template: str, context: dict[str, Any], _doctree: object
) -> None:
    if page.startswith(GENERATED):
        context["theme_source_repository"] = ""


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the value `repository`, and the options that follow from it."""
    app.add_config_value("repository", "", "html", str)
    app.connect("config-inited", _add_options)
    app.connect("html-page-context", _drop_edit_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
