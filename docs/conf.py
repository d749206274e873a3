"""The site: `make docs` builds it into site/, with every warning an error and without a network."""

import os
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "extensions"), str(HERE.parent)]
os.environ.setdefault("OMP_NUM_THREADS", "1")

import rover  # noqa: E402

project = "ROVER"
author = "The ROVER contributors"
project_copyright = author
version = release = rover.__version__
html_title = f"ROVER {version}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "reference",
    "mathml",
]
exclude_patterns = ["package.md", "gallery/**.ipynb", "gallery/**.py", "gallery/**.md5"]
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!rover\.).*"),  # no network: no pages of other projects
    (r"py:(class|obj|func)", r"rover\..*"),  # what is not public
]
suppress_warnings = ["config.cache", "myst.strikethrough"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

default_role = "code"  # `name` in a docstring is what it is in Markdown
autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
napoleon_use_rtype = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_math_renderer = "mathml"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0072B2", "color-brand-content": "#0072B2"},
    "dark_css_variables": {"color-brand-primary": "#56B4E9", "color-brand-content": "#56B4E9"},
}
copybutton_exclude = ".linenos, .gp, .go"

needs = {
    "point_maze": "gymnasium_robotics",
    "minigrid_rooms": "minigrid",
    "changing_rooms": "minigrid",
}
left_out = [name for name, module in needs.items() if find_spec(module) is None]
for name in left_out:
    print(f"{name} is shown without running: it needs the extra 'arenas'")

# Warnings of the gallery's scripts, without folders of the machine that builds the site.
warnings.formatwarning = lambda message, category, *_: f"{category.__name__}: {message}\n"

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "filename_pattern": rf"gallery/(?!({'|'.join(left_out) or '-'})\.py)\w+\.py$",
    "backreferences_dir": None,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "image_scrapers": ("matplotlib",),
    "thumbnail_size": (400, 280),
    "remove_config_comments": True,
}
