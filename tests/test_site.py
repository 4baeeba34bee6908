"""The site: every page in the navigation, every public name in the reference with an example."""

import importlib
import inspect
import re
import runpy
import types
from pathlib import Path

import pytest

import safedrift as sd

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SITE = types.SimpleNamespace(**runpy.run_path(str(DOCS / "site_pages.py")))
REFERENCE = SITE.public_names()
NAMES = {path: value for names in REFERENCE.values() for path, value in names.items()}
OBJECTS = {id(value) for value in NAMES.values()}

# Packages whose `__all__` is an interface for users.
PUBLIC = (
    "safedrift",
    "safedrift.models",
    "safedrift.models.box",
    "safedrift.models.drift",
    "safedrift.learners",
    "safedrift.oracles",
    "safedrift.problems",
    "safedrift.theory",
    "safedrift.results",
    "safedrift.experiments",
    "safedrift.reports",
    "safedrift.worldfiles",
)


def test_every_page_is_in_the_navigation_once():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    linked = [page for pages in SITE.sections(index).values() for page in pages]
    written = {
        path.relative_to(DOCS).with_suffix("").as_posix()
        for path in DOCS.rglob("*.md")
        if path.relative_to(DOCS).parts[0] not in ("generated", "_build")
        and path.name != "index.md"
    }
    pages = [page for page in linked if not page.startswith("generated/")]
    assert sorted(pages) == sorted(written), "docs/index.md must list every page, each once"
    others = {f"generated/{name}" for name in ("changelog", "contributing", "security", "support")}
    assert {page for page in linked if page.startswith("generated/")} == others


def test_sections_are_those_a_reader_expects():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    assert list(SITE.sections(index)) == [
        "Tutorials",
        "How-to",
        "Worlds",
        "Learners",
        "Explanation",
        "Reference",
        "Results",
        "Project",
    ]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_in_the_reference(name):
    module = importlib.import_module(name)
    public = {x: getattr(module, x) for x in module.__all__}
    missing = [x for x, value in public.items() if not _is_there(value)]
    assert missing == []


def test_what_the_pages_import_is_in_the_reference():
    for page in (ROOT / "README.md", *DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md")):
        text = page.read_text(encoding="utf-8")
        for module, names in re.findall(r"^from (safedrift\S*) import (.*)", text, re.M):
            values = [getattr(importlib.import_module(module), x) for x in names.split(", ")]
            assert all(map(_is_there, values)), f"{page.name}: from {module} import {names}"


def _is_there(value):
    if isinstance(value, types.ModuleType):  # sd.theory: the names in it
        return all(_is_there(getattr(value, x)) for x in value.__all__)
    return id(value) in OBJECTS


def test_every_name_is_documented_once_and_where_it_can_be_imported():
    assert len(OBJECTS) == len(NAMES)
    for path, value in NAMES.items():
        module, _, name = path.rpartition(".")
        assert getattr(importlib.import_module(module), name) is value


@pytest.mark.parametrize("path", NAMES)
def test_public_names_have_an_example(path):
    """Constants have none; they are described in `site_pages.DATA`."""
    value = NAMES[path]
    if inspect.isclass(value) or inspect.isroutine(value):
        assert ">>>" in (value.__doc__ or ""), f"the docstring of {path} must have an example"
    else:
        assert path in SITE.DATA


def test_worlds_and_learners_have_pages_with_their_facts():
    text = SITE.learner_page("opt-cmdp", DOCS)
    assert "Efroni, Mannor and Pirotta 2020" in text
    assert "| `bonus_scale` |" in text
    world = SITE.world_page("maze", DOCS)
    for part in ("![maze](../../problems/maze.png)", "## Drift", "H = 12", "| `slip` | `0.1` |"):
        assert part in world
    for name in sd.problems.PROBLEMS:
        assert SITE.seen_in_the_picture(name, DOCS), name
        assert (DOCS / "problems" / f"{name}.png").is_file()


# ---------------------------------------------------------------- the code on generated pages


def tried(page):
    (python,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return python


@pytest.mark.parametrize("name", sd.learners.LEARNERS)
def test_learners_are_made_as_their_pages_say(name):
    python, played, _ = tried(SITE.learner_page(name, DOCS)).partition("run = sd.simulate(")
    assert played
    exec(python, {})


@pytest.mark.slow
@pytest.mark.parametrize("name", sd.learners.LEARNERS)
def test_code_of_the_pages_of_learners_runs(name):
    exec(tried(SITE.learner_page(name, DOCS)).replace("episodes=2000", "episodes=60"), {})


@pytest.mark.slow
@pytest.mark.parametrize("name", sd.problems.PROBLEMS)
def test_code_of_the_pages_of_worlds_runs(name):
    exec(tried(SITE.world_page(name, DOCS)).replace("episodes=2000", "episodes=60"), {})


# ---------------------------------------------------------------- text


def test_the_picture_of_the_front_page_is_there_in_both_schemes():
    text = SITE.in_both_schemes((DOCS / "index.md").read_text(encoding="utf-8"))
    pictures = re.findall(r"^```\{image\} (\S+)\n:class: only-(light|dark)$", text, re.M)
    assert [scheme for _, scheme in pictures] == ["light", "dark"]
    assert all((DOCS / file).is_file() for file, _ in pictures)
    assert "](demo.png)" not in text


def test_formulas_and_stars_survive_the_way_to_markdown():
    text = "V* of [x] is `a*b`:\n\n    V*[m] <= 1\n\nend"
    assert SITE.markdown(text) == "V\\* of \\[x] is `a*b`:\n\n    V*[m] <= 1\n\nend"


def test_indented_formulas_of_docstrings_become_literal_blocks():
    lines = ["Sum.", "", "    a = b", "    c = d", "", "Parameters", "----------", "x", "    y"]
    SITE.keep_formulas(None, "", "", None, None, lines)
    assert lines[:5] == ["Sum.", "", "::", "", "    a = b"]
    assert lines[-2:] == ["x", "    y"]


def test_links_in_the_navigation_of_generated_pages_are_relative_to_them():
    assert SITE.relative("[a](b.md) [c](https://x)") == "[a](../../b.md) [c](https://x)"
    assert re.search(r"\]\(\.\./errata\.md\)", SITE.repository_page("[e](docs/errata.md)"))


def test_links_that_show_the_name_of_a_page_show_its_title_on_the_site():
    assert (
        SITE.titled("[a.md](../a.md#x) [b](b.md) [c.md](d.md)")
        == "[](../a.md#x) [b](b.md) [c.md](d.md)"
    )


def test_meanings_of_options_come_from_the_docstring():
    def build(a=1, b=2):
        """Return it.

        Parameters
        ----------
        a, b
            What they
            mean.
        """

    table = SITE.options_table({"a": 1, "b": 2, "c": 3}, build).splitlines()
    assert table[2:] == ["| `a`, `b` | `1`, `2` | What they mean. |", "| `c` | `3` |  |"]
