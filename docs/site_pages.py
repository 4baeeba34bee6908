"""Pages of the site that are made from docstrings, and its navigation.

    write            one page per world, learner, public module and public name, in docs/generated
    add_navigation   hidden tables of contents: the lists of index.md, the generated pages
    keep_formulas    formulas that stand indented in docstrings keep their lines
    shapes_are_text  (H, S, A) after the name of an attribute is not looked up as a type

Nothing here needs Sphinx, so the tests read the same lists.
"""

from __future__ import annotations

import inspect
import itertools
import pkgutil
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import safedrift as sd

# Title of the page -> public modules and names on it. A name is documented once, under `safedrift`
# if it is there too.
ROOMS = {
    "Worlds": ("safedrift.models",),
    "Paths of drift": ("safedrift.models.drift",),
    "Continuous states": ("safedrift.models.box",),
    "Named worlds": ("safedrift.problems",),
    "Worlds from files": ("safedrift.worldfiles",),
    "Units and costs": ("safedrift.Scale", "safedrift.at_least", "safedrift.at_most"),
    "Gymnasium": (
        "safedrift.from_gymnasium",
        "safedrift.GymnasiumWorld",
        "safedrift.Transition",
        "safedrift.adapters.environment.DriftingEnv",
        "safedrift.adapters.third_party",
        "safedrift.adapters.toy_text.from_table",
    ),
    "What a learner is told": (
        "safedrift.Slater",
        "safedrift.LocalBudgets",
        "safedrift.Budgets",
        "safedrift.Sizes",
        "safedrift.ProblemSpec",
        "safedrift.__version__",
    ),
    "Learners": (
        "safedrift.learners",
        "safedrift.learners.files.header",
        "safedrift.learners.restart_bandit.over_restart_lengths",
    ),
    "Simulations and comparisons": (
        "safedrift.experiments",
        "safedrift.experiments.callbacks.TensorBoard",
        "safedrift.devices",
    ),
    "Results": ("safedrift.results",),
    "Pages of results": ("safedrift.reports",),
    "Exact truth": ("safedrift.oracles",),
    "Theory": ("safedrift.theory",),
}

ROOT_PAGES = ("CHANGELOG", "CONTRIBUTING", "SECURITY", "SUPPORT")  # of the repository


def public_names() -> dict[str, dict[str, Any]]:
    """Return title of a page -> {public path of a name: what it is}, every name once."""
    top = {id(getattr(sd, name)): f"safedrift.{name}" for name in sd.__all__}
    seen: set[str] = set()
    pages: dict[str, dict[str, Any]] = {}
    for title, entries in ROOMS.items():
        found = {
            top.get(id(value), path): value
            for path, value in _names_of(entries)
            if not isinstance(value, ModuleType)
        }
        pages[title] = {path: value for path, value in found.items() if path not in seen}
        seen |= found.keys()
    return pages


def _names_of(entries: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for entry in entries:
        value = pkgutil.resolve_name(entry)
        names = value.__all__ if isinstance(value, ModuleType) else ()
        yield from ((f"{entry}.{name}", getattr(value, name)) for name in names)
        if not names:
            yield entry, value


def slug(title: str) -> str:
    """Return the name of the file of a page."""
    return title.lower().replace(" ", "-")


# ---------------------------------------------------------------- writing


def write(docs: Path) -> None:
    """Write all generated pages below docs/generated."""
    shutil.rmtree(docs / "generated", ignore_errors=True)
    for path, text in pages(docs).items():
        file = docs / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def pages(docs: Path) -> dict[str, str]:
    """Return path below docs -> text of every generated page."""
    found = {f"generated/worlds/{name}.md": world_page(name, docs) for name in sd.problems.PROBLEMS}
    for name in sd.learners.LEARNERS:
        found[f"generated/learners/{name}.md"] = learner_page(name, docs)
    for title, names in public_names().items():
        found[f"generated/reference/{slug(title)}.md"] = room_page(title, names)
        for path, value in names.items():
            found[f"generated/reference/{path}.md"] = name_page(path, value)
    for name in ROOT_PAGES:
        text = (docs.parent / f"{name}.md").read_text(encoding="utf-8")
        found[f"generated/{name.lower()}.md"] = repository_page(text)
    return found


def world_page(name: str, docs: Path) -> str:
    """Return the page of a named world: picture, what one sees, sizes, description, options."""
    summary, *sections = re.split(r"\n(?=\S)", sd.problems.documentation(name))
    world = sd.problems.make(name, episodes=60)
    sizes = ", ".join(f"{size} = {getattr(world, size)}" for size in "HSAK" if hasattr(world, size))
    lines = [f"# {name}", markdown(summary), f"![{name}](../../problems/{name}.png)"]
    lines += [relative(seen_in_the_picture(name, docs)), f"By default {sizes}."]
    for section in sections:
        title, _, body = section.partition("\n")
        if body.strip():
            lines += [f"## {title.strip()}", markdown(inspect.cleandoc(body))]
    build = sd.problems.PROBLEMS[name].build
    lines += ["## Options", options_table(sd.problems.options(name), build)]
    lines += [
        "## Try it",
        "```python\nimport safedrift as sd\n\n"
        f'world = sd.problems.make("{name}", episodes=2000)\n'
        "print(sd.describe(world))\n```",
        f"```\nsafedrift problems {name}\nsafedrift run {name} -n 2000\n```",
        "[All worlds](../../problems.md), [what learners score in them](../../comparison.md).",
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


def seen_in_the_picture(name: str, docs: Path) -> str:
    """Return what docs/problems.md says below the picture of a world."""
    text = (docs / "problems.md").read_text(encoding="utf-8")
    below = re.search(rf"^## {name}\n\n!\[.*?\n\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return below[1].strip() if below else ""


def learner_page(name: str, docs: Path) -> str:
    """Return the page of a learner: what it is, its module's docstring, its options."""
    summary, _, rest = sd.learners.documentation(name).partition("\n\n")
    row = re.search(rf"^\| `{name}` \| (.*) \|$", (docs / "learners.md").read_text("utf-8"), re.M)
    linear = name in ("softmax-lsvi", "discounted-lsvi", "adaptive-linear-planner")
    lines = [f"# {name}", markdown(summary)]
    if row:
        lines.append(relative("In one line: " + row[1].replace(" | ", "; ") + "."))
    build = sd.learners.LEARNERS[name].build
    lines += [markdown(rest), "## Options", options_table(sd.learners.options(name), build)]
    world = {"dope": "dope_inventory"}.get(name, "blend" if linear else "maze")
    lines += [
        "## Try it",
        "```python\nimport safedrift as sd\n\n"
        f'world = sd.problems.make("{world}", episodes=2000)\n'
        + MUST_BE_TOLD.get(name, f'learner = sd.learners.make("{name}", world)\n')
        + "run = sd.simulate(world, learner, seed=0)\n"
        'print(run.summary()["positive_regret_per_episode"])\n```',
        f"```\nsafedrift learners {name}\nsafedrift run {world} -n 2000 --learner {name}\n```",
        "[All learners](../../learners.md), [their scores](../../comparison.md).",
    ]
    return "\n\n".join(line for line in lines if line) + "\n"


# Learners that do not play without being told something; the command finds it out by itself.
MUST_BE_TOLD = {
    "propd-ppo": 'learner = sd.learners.make("propd-ppo", world, gamma=0.45)  # the Slater gap\n',
    "dope": """\
today = world.at(0)
higher = today.thresholds + 1.0
safer = sd.TabularCMDP(today.transitions, today.rewards, today.utilities, higher, today.initial)
known = {"safe_policy": sd.solve(safer).policy, "safe_utility": higher}
learner = sd.learners.make("dope", world, **known)
""",
}


def room_page(title: str, names: dict[str, Any]) -> str:
    """Return the page of public modules: a table of their names."""
    first = pkgutil.resolve_name(ROOMS[title][0])
    lines = [f"# {title}"]
    if isinstance(first, ModuleType):
        lines.append(markdown(inspect.getdoc(first) or ""))
    rows = [f"| {_link(path)} | {first_sentence(path, names[path])} |" for path in names]
    lines.append("\n".join(["| name | what it is |", "|---|---|", *rows]))
    entries = "\n".join(f"{path.rpartition('.')[2]} <{path}>" for path in names)
    lines.append(f"```{{toctree}}\n:hidden:\n\n{entries}\n```")
    return "\n\n".join(line for line in lines if line) + "\n"


def _link(path: str) -> str:
    short = "sd." + path.removeprefix("safedrift.")
    return f"[`{short}`]({path}.md)"


def name_page(path: str, value: Any) -> str:
    """Return the page of one public name, for autodoc to fill."""
    short = path.rpartition(".")[2]
    if inspect.isclass(value):
        directive = f".. autoclass:: {path}\n   :members:"
    elif callable(value):
        directive = f".. autofunction:: {path}"
    else:
        directive = f".. py:data:: {path}\n\n   {first_sentence(path, value)}"
    return f"# {short}\n\n```{{eval-rst}}\n{directive}\n```\n"


DATA = {
    "safedrift.__version__": "The version of the package, as text.",
    "safedrift.learners.LEARNERS": "The learners by name: name -> module.",
    "safedrift.problems.PROBLEMS": "The named worlds: name -> module.",
    "safedrift.models.DriftingWorld": "A world of either kind: DriftingCMDP or LinearKernelCMDP.",
    "safedrift.theory.FOR_ANY_LEARNER": "Names of the statements that hold for every learner.",
}


def first_sentence(path: str, value: Any) -> str:
    """Return the first line of a docstring, for tables."""
    text = DATA.get(path) or (inspect.getdoc(value) or "").partition("\n\n")[0].replace("\n", " ")
    return markdown(text).replace("|", "\\|")


def options_table(options: dict[str, Any], build: Any) -> str:
    """Return options, their defaults and what the docstring of `build` says of them."""
    if not options:
        return "None."
    meanings = parameters(build)
    groups = itertools.groupby(options, key=lambda key: meanings.get(key, key))
    rows = []
    for meaning, members in groups:  # those that a docstring describes together stand together
        keys = list(members)
        names = ", ".join(f"`{key}`" for key in keys)
        defaults = ", ".join(f"`{options[key]!r}`" for key in keys)
        rows.append(f"| {names} | {defaults} | {meaning if keys[0] in meanings else ''} |")
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def parameters(function: Any) -> dict[str, str]:
    """Return name -> description of the parameters in a docstring of numpydoc's form."""
    text = inspect.getdoc(function) or ""
    body = re.search(r"Parameters\n-+\n(.*?)(?=\n\n\w+\n-+\n|\Z)", text, re.S)
    entries = re.findall(r"^(\S.*)\n((?:(?: {4}.*)?(?:\n|\Z))+)", body[1] if body else "", re.M)
    return {
        name.strip(): markdown(" ".join(words.split())).replace("|", "\\|")
        for names, words in entries
        for name in names.partition(" : ")[0].split(",")
    }


def markdown(text: str) -> str:
    """Return plain text of a docstring as Markdown: formulas stay code, stars stay stars."""
    parts = re.split(r"(`[^`]*`|^ {4,}.*$)", text, flags=re.M)
    return "".join(
        part if i % 2 else re.sub(r"([*<\[])", r"\\\1", part) for i, part in enumerate(parts)
    )


def relative(text: str) -> str:
    """Return text of a page in docs/ with its links as seen from docs/generated/x/."""
    return re.sub(r"\]\((?!https?://|#)", "](../../", text)


def repository_page(text: str) -> str:
    """Return a page of the repository's root with its links as seen from docs/generated/."""
    text = re.sub(r"\]\(docs/", "](../", text)
    for name in ROOT_PAGES:
        text = text.replace(f"]({name}.md)", f"](../generated/{name.lower()}.md)")
    return re.sub(r"\]\((?!https?://|#|\.\./)", "](../../", text)


# ---------------------------------------------------------------- while Sphinx reads


def add_navigation(app: Any, docname: str, source: list[str]) -> None:
    """Add hidden tables of contents to the pages that have children."""
    text = source[0]
    if docname == "index":
        text = in_both_schemes(text)
        for caption, pages in sections(text).items():
            text += _toctree([f"{title} <{page}>" for page, title in pages.items()], caption)
    elif docname == "problems":
        text = re.sub(r"^## (\w+)\n\n!", r"## [\1](generated/worlds/\1.md)\n\n!", text, flags=re.M)
        text += _toctree([f"generated/worlds/{name}" for name in sd.problems.PROBLEMS])
    elif docname == "learners":
        for name in sd.learners.LEARNERS:
            text = text.replace(f"| `{name}` |", f"| [`{name}`](generated/learners/{name}.md) |")
        text += _toctree([f"generated/learners/{name}" for name in sd.learners.LEARNERS])
    elif docname == "reference":
        text = _linked_names(text)
        text += _toctree([f"generated/reference/{slug(title)}" for title in ROOMS])
    for name in ROOT_PAGES:
        text = text.replace(f"](../{name}.md)", f"](generated/{name.lower()}.md)")
    source[0] = titled(text)


def in_both_schemes(text: str) -> str:
    """Let the picture of the demonstration be dark where the reader's screen is."""
    picture = re.compile(r"^\[!\[(.*?)\]\((demo\.png)\)\]\((\w+)\.md\)$", re.M)

    def both(found: re.Match[str]) -> str:
        alt, light, page = found.groups()
        files = {"light": light, "dark": "pages/demo-dark.png"}
        return "\n\n".join(
            f"```{{image}} {file}\n:class: only-{scheme}\n:alt: {alt}\n:target: {page}.html\n```"
            for scheme, file in files.items()
        )

    return picture.sub(both, text)


def _linked_names(text: str) -> str:
    for path in (path for names in public_names().values() for path in names):
        short = "sd." + path.removeprefix("safedrift.")
        text = text.replace(f"`{short}`", f"[`{short}`](generated/reference/{path}.md)")
    title, _, rest = text.partition("\n\n")
    pages = ", ".join(f"[{x}](generated/reference/{slug(x)}.md)" for x in ROOMS)
    return f"{title}\n\nEvery name has a page with an example: {pages}.\n\n{rest}"


def titled(text: str) -> str:
    """Let links whose words are the name of a page show the page's title instead."""
    return re.sub(r"\[(?:docs/)?([\w-]+\.md)\]\(((?:\.\./)*\1(?:#[\w-]+)?)\)", r"[](\2)", text)


def sections(index: str) -> dict[str, dict[str, str]]:
    """Return heading -> {page: title} of the list below it in index.md."""
    found: dict[str, dict[str, str]] = {}
    for part in re.split(r"^## ", index, flags=re.M)[1:]:
        title, _, body = part.partition("\n")
        links = re.findall(r"^- \[(.*?)\]\((\S+?)\.md\)", body, re.M)
        if links:
            found[title] = {_on_the_site(link): words for words, link in links}
    return found


def _on_the_site(link: str) -> str:
    return f"generated/{link[3:].lower()}" if link.startswith("../") else link


def _toctree(pages: list[str], caption: str = "") -> str:
    heading = f":caption: {caption}\n" if caption else ""
    return f"\n\n```{{toctree}}\n:hidden:\n{heading}\n" + "\n".join(pages) + "\n```\n"


def keep_formulas(
    app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Mark indented paragraphs before the first section of a docstring as literal blocks."""
    kept: list[str] = []
    for i, line in enumerate(lines):
        if re.fullmatch(r"-{3,}", line.strip()) and i:
            kept += lines[i:]
            break
        starts = line.startswith("    ") and kept and not kept[-1].strip()
        before = next((x for x in reversed(kept) if x.strip()), "")
        if starts and not before.startswith("    ") and not before.endswith("::"):
            kept += ["::", ""]
        kept.append(line)
    lines[:] = [_without_substitutions(line) for line in kept]


def _without_substitutions(line: str) -> str:
    if line.lstrip().startswith(">>>"):
        return line
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(x if i % 2 else x.replace("|", r"\|") for i, x in enumerate(parts))


def shapes_are_text(
    app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Join what stands after the colon of an attribute, often a shape, with its description."""
    types = {
        m[1]: m[2] for x in lines if (m := re.match(r":(?:var)?type ([^:]+): (.*)", x.strip()))
    }
    kept = [line for line in lines if not re.match(r":(?:var)?type [^:]+:", line.strip())]
    lines[:] = [each for line in kept for each in _with_type(line, types)]


def _with_type(line: str, types: dict[str, str]) -> list[str]:
    field = re.match(r"(\s*):(ivar|param) ([^:]+):(.*)", line)
    if field is None:
        return [line]
    space, kind, names, text = field.groups()
    words = ". ".join(x for x in (types.get(names, "").rstrip("."), text.strip()) if x)
    return [f"{space}:{kind} {name.strip()}: {words}" for name in names.split(",")]
