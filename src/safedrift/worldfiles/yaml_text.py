"""A YAML file as words, lists and mappings, each with its place in the file.

PyYAML's safe loader reads the file, so it cannot run code. The context decides what a word means:
`on`, `no`, `7` and `2024-05-01` are names where a name is expected, and `1e-3` and `1/3` are
numbers where a number is expected. Duplicate keys, aliases and deep nesting are errors.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import yaml

from safedrift import _check

__all__ = [
    "Entry",
    "fraction",
    "integer",
    "keyed",
    "listed",
    "names",
    "number",
    "one_of",
    "read",
    "refuse",
    "word",
]

LARGEST = 1_000_000  # bytes; use an .npz for larger worlds
DEEPEST = 16  # levels
LONGEST = 100  # characters of a name
MOST_NAMES = 10_000


class Entry(NamedTuple):
    """An entry of a file: a word, a list of entries or a mapping to entries."""

    file: str
    place: str
    value: str | list[Entry] | dict[str, Entry]


def refuse(entry: Entry, allowed: str, got: object = None) -> NoReturn:
    """Raise an error that names the entry, its value and what is allowed."""
    name = f"{entry.place} in {entry.file}" if entry.place else entry.file
    _check.fail(name, allowed, _shown(entry.value) if got is None else got)


# ---------------------------------------------------------------- what an entry means


def keyed(
    entry: Entry, allowed: Collection[str], needed: Collection[str] = (), what: str = "the keys"
) -> dict[str, Entry]:
    """Return a mapping with all keys of `needed` and no others than `allowed`."""
    if not isinstance(entry.value, dict):
        refuse(entry, f"a mapping with {what} {_several(allowed)}")
    for key in entry.value:
        if key not in allowed:
            refuse(entry, f"a mapping with {what} {_several(allowed)}", f"the key {_short(key)}")
    for key in needed:
        if key not in entry.value:
            refuse(entry, f"a mapping with {what} {_several(needed)}", f"one without {key}")
    return entry.value


def listed(entry: Entry, length: int, of: str) -> list[Entry]:
    """Return a list of `length` entries."""
    if not isinstance(entry.value, list) or len(entry.value) != length:
        refuse(entry, f"a list of {length} {of}")
    return entry.value


def names(entry: Entry) -> dict[str, int]:
    """Return distinct names and their indices; "0", "1", ... if only their number is given."""
    if isinstance(entry.value, str):
        return {str(i): i for i in range(integer(entry, MOST_NAMES, "a list of names or "))}
    if not isinstance(entry.value, list) or not 1 <= len(entry.value) <= MOST_NAMES:
        refuse(entry, f"a list of 1 to {MOST_NAMES} names, or how many")
    found: dict[str, int] = {}
    for item in entry.value:
        name = word(item, "a name")
        if name in found:
            refuse(item, "a name that was not given before")
        found[name] = len(found)
    return found


def word(entry: Entry, allowed: str) -> str:
    """Return a word, or several on one line."""
    if not isinstance(entry.value, str) or not _is_word(entry.value):
        refuse(entry, allowed)
    return entry.value


def one_of(entry: Entry, allowed: Collection[str], what: str) -> str:
    """Return a word among the allowed ones."""
    words = f"{what} ({_several(allowed) or 'there is none'})"
    if word(entry, words) not in allowed:
        refuse(entry, words)
    return str(entry.value)


def integer(entry: Entry, upper: int = _check.LARGEST, words: str = "") -> int:
    """Return an integer from 1 to `upper`."""
    limited = words + f"an integer in [1, {upper}]"
    allowed = words + "an integer >= 1" if upper == _check.LARGEST else limited
    try:
        value = int(word(entry, allowed))
    except ValueError:
        refuse(entry, allowed)
    if not 1 <= value <= upper:
        refuse(entry, allowed if value < 1 else limited)
    return value


def fraction(text: str) -> float:
    """Return a number such as 0.25, 1e-3 or 1/3."""
    over, slash, under = text.partition("/")
    return float(over) / (float(under) if slash else 1.0)


def number(entry: Entry, upper: float = math.inf, *, zero: bool = True) -> float:
    """Return a number in [0, upper], or in (0, upper] without `zero`; may be a fraction."""
    allowed = f"a number in {'[' if zero else '('}0, {upper:g}]"
    try:
        value = fraction(word(entry, allowed))
    except (ValueError, ZeroDivisionError):
        refuse(entry, allowed)
    if not (0 <= value <= upper) or (value == 0 and not zero):
        refuse(entry, allowed)
    return value


def _is_word(text: str) -> bool:
    return 1 <= len(text) <= LONGEST and text.isprintable()


def _several(words: Collection[str]) -> str:
    more = f", ... ({len(words)} in all)" if len(words) > 12 else ""
    return ", ".join(list(words)[:12]) + more


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _shown(value: str | list[Entry] | dict[str, Entry]) -> str:
    if isinstance(value, dict):
        return f"a mapping with {_short(', '.join(value))}" if value else "an empty mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    try:
        float(value)
    except ValueError:
        return _short(value) if value else "nothing"
    return value[:40]


# ---------------------------------------------------------------- reading


def read(path: Path) -> Entry:
    """Read a file; malformed YAML raises one error."""
    file = str(path)
    if not path.is_file():
        _check.fail("problem", "the name of a world or an existing file", path)
    with path.open("rb") as stream:
        raw = stream.read(LARGEST + 1)
    if len(raw) > LARGEST:
        _check.fail(file, f"a YAML file of at most {LARGEST:,} bytes (or an .npz)", "a larger one")
    try:
        loader = _Loader(raw.decode("utf-8"))
        loader.name = file
        node = loader.get_single_node()
    except UnicodeDecodeError as error:
        _check.fail(file, "text in UTF-8", f"another byte at index {error.start}")
    except yaml.MarkedYAMLError as error:
        line = 1 + error.problem_mark.line if error.problem_mark else 1
        if "'\\t'" in str(error.problem):
            _check.fail(f"line {line} of {file}", "indented with spaces", "a tab")
        said = " ".join(word for word in (error.context, error.problem) if word)
        _check.fail(f"line {line} of {file}", "YAML", f"this: {said}")
    except yaml.YAMLError as error:  # a character that YAML does not allow
        _check.fail(file, "YAML", " ".join(str(error).split()))
    if node is None:
        _check.fail(file, "a mapping", "an empty file")
    return _entry(node, file, "")


class _Loader(yaml.SafeLoader):
    """The safe loader, without types for plain words, aliases and deep nesting."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (as in the parent)
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Compose a node one level deeper; too deep nesting and aliases are errors."""
        event = self.peek_event()
        place = f"line {event.start_mark.line + 1} of {self.name}"
        if isinstance(event, yaml.AliasEvent):
            allowed = "written without aliases, like copies a scenario"
            _check.fail(place, allowed, f"*{event.anchor or ''}"[:40])
        if self.depth == DEEPEST:
            _check.fail(place, f"nested at most {DEEPEST} levels deep", "a deeper one")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


_YAML = "tag:yaml.org,2002:"
_WORD = _YAML + "str"
_PLAIN = (_WORD, _YAML + "seq", _YAML + "map")


def _entry(node: yaml.Node, file: str, place: str) -> Entry:
    """Convert nodes to entries with their places."""
    if node.tag not in _PLAIN:
        refuse(
            Entry(file, place, ""), "written without tags", _short(node.tag.replace(_YAML, "!!"))
        )
    if isinstance(node, yaml.ScalarNode):
        return Entry(file, place, node.value)
    if isinstance(node, yaml.SequenceNode):
        items = [_entry(item, file, f"{place}[{i}]") for i, item in enumerate(node.value)]
        return Entry(file, place, items)
    found: dict[str, Entry] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.tag != _WORD or not _is_word(key.value):
            allowed = f"a mapping with words of at most {LONGEST} characters as keys"
            refuse(Entry(file, place, ""), allowed, f"another in line {line}")
        inside = f"{place}.{key.value}" if place else key.value
        if key.value in found:
            refuse(Entry(file, inside, ""), "given once", f"it again in line {line}")
        found[key.value] = _entry(value, file, inside)
    return Entry(file, place, found)
