"""Sphinx: the pages of this folder as a site. `make docs` builds it into docs/_build/html.

The pages are plain Markdown and read the same on GitHub. What only the site has is made here: the
navigation from the lists of index.md, and one page per world, learner and public name from their
docstrings (`site_pages.py`).
"""

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "src"))

import site_pages  # noqa: E402

from safedrift import __version__  # noqa: E402

project = "safedrift"
author = "The safedrift authors"
copyright = "the safedrift authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4  # links to headings work as on GitHub
suppress_warnings = ["myst.header"]

default_role = "code"  # single backticks in docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
nitpicky = True
nitpick_ignore_regex = [
    (r"py:.*", r"(?!safedrift\.).*"),  # other packages are not asked: no network is used
    (r"py:.*", r"safedrift\.(_|kernels\.|.*\._).*"),  # names that are not public
    (r"py:class", r"safedrift\..*\.(Limit|Shape|L|Plan|RunFolder|Block)"),  # nor are these
]

html_theme = "furo"
pygments_dark_style = "github-dark"  # the theme's own underlines modules, as if they were links
html_title = f"safedrift {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
html_copy_source = False


def setup(app: Any) -> None:
    """Write the pages of docstrings before reading, and add navigation while reading."""
    app.connect("builder-inited", lambda app: site_pages.write(HERE))
    app.connect("source-read", site_pages.add_navigation)
    app.connect("autodoc-process-docstring", site_pages.keep_formulas, priority=400)
    app.connect("autodoc-process-docstring", site_pages.shapes_are_text, priority=600)
