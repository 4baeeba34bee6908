"""The map from the paper to the code, and the tags in the code."""

import ast
import importlib
import io
import re
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import safedrift as sd
from builders import BUDGETS, linear_world, small_world

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "safedrift"
TABULAR = SOURCE / "kernels" / "tabular" / "propd_ppo.py"
MEMORY = SOURCE / "kernels" / "tabular" / "memory.py"
LINEAR = SOURCE / "kernels" / "linear" / "propd_ppo.py"

# ---------------------------------------------------------------- docs/paper_map.md


class Row(NamedTuple):
    """Cells of a row of the map; rows without a first cell are joined to the one above."""

    what: str
    certificate: str
    code: str
    test: str


COLUMNS = {"In the paper": "what", "Certificate": "certificate", "Code": "code", "Test": "test"}


def tables(page):
    """Rows of all tables of a page, each a dict from the head of its column to the cell."""
    head = None
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            head = None
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if head is None:
            head = cells
        elif set("".join(cells)) != {"-"}:
            yield dict(zip(head, cells, strict=True))


def rows():
    found = []
    for row in tables("paper_map.md"):
        assert set(row) <= set(COLUMNS), row
        cells = Row(*(row.get(head, "") for head in COLUMNS))
        if cells.what:
            found.append(cells)
        else:
            found[-1] = Row(*(f"{a} {b}".strip() for a, b in zip(found[-1], cells, strict=True)))
    return found


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


CODE = sorted({name for row in rows() for name in quoted(row.code)})
TESTS = sorted({name for row in rows() for name in quoted(row.test)})


def resolve(path):
    """Import the longest module of a dotted path, then take attributes."""
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for name in parts[n:]:
            found = getattr(found, name)
        return found
    raise ModuleNotFoundError(path)


def test_map_has_rows_and_each_names_code():
    assert len(rows()) > 30
    for row in rows():
        assert quoted(row.code), row.what


def test_code_in_the_map_exists():
    missing = []
    for path in CODE:
        assert path.startswith("safedrift.")
        try:
            resolve(path)
        except (ModuleNotFoundError, AttributeError):
            missing.append(path)
    assert not missing


def test_a_path_that_does_not_exist_is_noticed():
    with pytest.raises(AttributeError):
        resolve("safedrift.kernels.tabular.propd_ppo.no_such_function")
    with pytest.raises(AttributeError):
        resolve("safedrift.no_such_room.thing")


@cache
def functions_of(file):
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_tests_in_the_map_exist():
    missing = []
    for name in TESTS:
        file, _, function = name.partition("::")
        assert function.startswith("test_")
        if not (ROOT / file).is_file() or function not in functions_of(file):
            missing.append(name)
    assert not missing


def test_tests_named_in_the_errata_exist():
    text = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) > 10
    for file, function in named:
        assert function in functions_of(file), f"{file}::{function}"


@pytest.mark.parametrize(("algorithm", "last"), [(1, 14), (2, 14), (3, 10)])
def test_map_covers_every_line_of_the_algorithms(algorithm, last):
    mapped = {line for row in rows() for line in tagged_lines(row.what, algorithm)}
    assert mapped == set(range(1, last + 1))


# ---------------------------------------------------------------- docs/paper_labels.txt

# Counted in the paper: environments (assumption, lemma, corollary, theorem), lines of the three
# listings (14 + 14 + 10) and one table; definitions and displays as chosen by us.
COUNTS = {
    "assumption": 3,
    "lemma": 37,
    "corollary": 1,
    "theorem": 4,
    "line": 38,
    "table": 1,
    "definition": 18,
    "display": 4,
}


def labels():
    """(kind, label) of every statement of the paper."""
    text = (ROOT / "docs" / "paper_labels.txt").read_text(encoding="utf-8")
    lines = [line.split(" | ") for line in text.splitlines() if not line.startswith("#")]
    for line in lines:
        assert len(line) == 3, line
        assert all(part == part.strip() != "" for part in line), line
    return [(kind, label) for kind, label, _ in lines]


def is_about(what, label):
    """Whether the first cell of a row names a label, or the lines of an algorithm around it."""
    line = re.fullmatch(r"Alg\. (\d), line (\d+)", label)
    if line:
        return int(line[2]) in tagged_lines(what, int(line[1]))
    named = re.sub(r"^(\(\d+\),? )+", "", what)  # numbers of equations
    return named.startswith(label) and named[len(label) :][:1] in ("", ":", ",")


def test_labels_name_a_statement_once_and_none_is_dropped():
    found = labels()
    assert Counter(kind for kind, _ in found) == COUNTS
    assert len(set(found)) == len(found)
    for algorithm, last in ((1, 14), (2, 14), (3, 10)):
        lines = [label for _, label in found if label.startswith(f"Alg. {algorithm},")]
        assert lines == [f"Alg. {algorithm}, line {n}" for n in range(1, last + 1)]
    for kind in ("Assumption", "Theorem"):
        named = [label for _, label in found if label.startswith(kind)]
        assert named == [f"{kind} {n + 1}" for n in range(COUNTS[kind.lower()])]


def test_every_statement_has_a_function_and_a_test():
    found = rows()
    for _, label in labels():
        about = [row for row in found if is_about(row.what, label)]
        assert any(quoted(row.code) for row in about), label
        assert any(quoted(row.test) for row in about), label


def test_every_lemma_has_a_certificate():
    found = rows()
    for kind, label in labels():
        if kind == "lemma":
            about = [row for row in found if is_about(row.what, label)]
            assert any(quoted(row.certificate) for row in about), label


def test_rows_with_a_certificate_name_a_test_and_no_test_is_left_open():
    for row in rows():
        assert "@" not in row.test, row
        if row.certificate:
            assert quoted(row.test), row.what


def test_labels_are_told_apart():
    regularised = "(9), (10) regularised Lagrangian, through its dual step"
    assert is_about(regularised, "regularised Lagrangian")
    assert not is_about(regularised, "Lagrangian")
    assert is_about("Lemma 1: mu* <= H/gamma", "Lemma 1")
    assert not is_about("Lemma 10: other", "Lemma 1")
    assert not is_about("Lemma: bounds on iota, tabular", "Lemma: bounds on iota, tab")
    assert is_about("Alg. 1, lines 4 to 6: policy restart", "Alg. 1, line 5")
    assert not is_about("Alg. 2, lines 4 to 6", "Alg. 1, line 5")


# ---------------------------------------------------------------- certificates


@cache
def produced():
    """The certificates of tiny runs, one with each algorithm."""
    told = sd.Slater(0.4)
    runs = (small_world(M=4), linear_world(M=4))
    return [
        sd.certify(world, sd.PROPDPPO.for_problem(world, told, mode="repaired", budgets=BUDGETS))
        for world in runs
    ]


def test_map_has_the_certificates_that_exist_and_no_others():
    mapped = {id for row in rows() for id in quoted(row.certificate)}
    for found in produced():
        assert mapped == {item.id for item in found}


def test_guide_has_the_certificates_that_exist_with_kind_and_erratum():
    told = [row for row in tables("certificates.md") if "Erratum" in row]
    shown = {row["Id"].strip("`"): (row["Kind"], row["Erratum"]) for row in told}
    assert len(shown) == len(told)
    for found in produced():
        assert shown == {item.id: (item.kind, item.erratum) for item in found}


def test_errata_named_by_certificates_exist():
    text = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    entries = re.findall(r"^## (E\d+)\.", text, re.MULTILINE)
    assert entries == [f"E{n}" for n in range(1, 15)]
    listed = [row["Entry"] for row in tables("errata.md") if "Entry" in row]
    assert listed == entries
    named = {part for found in produced() for item in found for part in item.erratum.split(", ")}
    assert named - {""} <= set(entries)


def test_example_of_the_guide_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "certificates.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) >= 2
    exec("\n".join(blocks), {})
    assert "policy-step" in capsys.readouterr().out


# ---------------------------------------------------------------- tags: "Alg. 1, lines 3 and 4"

TAG = re.compile(r"Alg\. (\d+), lines? (\d+(?:(?:, | and | to )\d+)*)")


def parse_lines(text):
    """Turn "3", "3 and 4", "5, 7 and 8" or "3 to 5" into numbers."""
    numbers = []
    for part in re.split(r", | and ", text):
        first, *last = (int(number) for number in part.split(" to "))
        numbers += range(first, last[0] + 1) if last else [first]
    return numbers


def tagged_lines(text, algorithm):
    """Lines of an algorithm that are tagged in a text, in order of appearance."""
    flat = re.sub(r"\s+", " ", text)
    return [n for a, lines in TAG.findall(flat) if int(a) == algorithm for n in parse_lines(lines)]


def comments_and_strings(file):
    """(place, is a comment, text) of everything that may hold a tag, in order."""
    read = io.StringIO(file.read_text(encoding="utf-8")).readline
    for token in tokenize.generate_tokens(read):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start, token.type == tokenize.COMMENT, token.string


def first_tags(file, algorithm):
    """Where each line is first tagged. A comment counts before what docstrings explain of it."""
    first = {}
    for place, is_comment, text in comments_and_strings(file):
        for line in tagged_lines(text, algorithm):
            rank = (not is_comment, place)
            first[line] = min(first.get(line, rank), rank)
    return {line: place for line, (_, place) in first.items()}


def test_parser_of_tags():
    assert tagged_lines("# Alg. 1, line 8. Differences", 1) == [8]
    assert tagged_lines("(Alg. 3, lines 3 and\n    4: the denominators)", 3) == [3, 4]
    assert tagged_lines("# Alg. 3, lines 5, 7 and 8", 3) == [5, 7, 8]
    assert tagged_lines("# Alg. 3, lines 3 to 5", 3) == [3, 4, 5]
    assert tagged_lines("# Alg. 3, lines 1, 3 to 5 and 8", 3) == [1, 3, 4, 5, 8]
    assert tagged_lines("# Alg. 3, line 5", 1) == []


# The other lines only open and close loops and branches.
DOING = {
    1: [1, 3, 4, 5, 7, 8, 9, 10, 12, 13],
    2: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14],
    3: [1, 2, 3, 4, 5, 6, 7, 8, 10],
}
# Files with the tags of each algorithm; in the first one they are in order.
TAGGED = {1: (TABULAR, MEMORY), 2: (LINEAR,), 3: (TABULAR,)}


@pytest.mark.parametrize("algorithm", DOING)
def test_every_line_that_does_something_is_tagged(algorithm):
    tagged = {line for file in TAGGED[algorithm] for line in first_tags(file, algorithm)}
    assert set(DOING[algorithm]) <= tagged


@pytest.mark.parametrize("algorithm", DOING)
def test_tags_are_in_the_order_of_the_listing(algorithm):
    first = first_tags(TAGGED[algorithm][0], algorithm)
    order = sorted(first, key=first.get)
    assert order == sorted(order)
