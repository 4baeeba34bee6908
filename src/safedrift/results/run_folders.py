"""A run as a folder: what it says of itself, and reading it back.

    manifest.json      state, settings, seeds, versions, timings, SHA-256 of every other file
    records.parquet    every number of every measured episode (`Run.to_parquet`)
    checkpoint-*.npz   the learner at two moments on the way (`experiments.checkpoints`)
    report.html, summary.json, certificates.json    where the command made them

The manifest is written last: its rename makes the run done. It holds the SHA-256 of its own text
(with zeros in that place), so a byte that changes in any file of the folder is found, and the file
is named. A run's id is a hash of its settings: the same experiment has the same id.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from safedrift import _check
from safedrift._files import file_digest, plain_file, write_text
from safedrift._version import __version__
from safedrift.results.folder_locks import in_use
from safedrift.results.manifest import Manifest, Record
from safedrift.results.run import Run
from safedrift.results.storage import from_parquet

__all__ = [
    "MANIFEST",
    "RECORDS",
    "FileEntry",
    "FolderManifest",
    "add_file",
    "check_files",
    "entry_of",
    "from_folder",
    "identity",
    "read_folder_manifest",
    "run_folders",
    "state_of",
    "write_folder_manifest",
]

FORMAT = 1
MANIFEST = "manifest.json"
RECORDS = "records.parquet"
REPLACEMENT = "replacement"  # folder of a run that replaces another one when it is done
LARGEST_MANIFEST = 2**24  # bytes

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CHECKSUM = re.compile(rb'("checksum": ")([0-9a-f]{64})"')
_BLANK = "0" * 64
_WANTED = "the manifest of a run, as safedrift wrote it"

State = Literal["running", "done", "failed", "interrupted"]


class FileEntry(Record):
    """A file of the folder."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)


class FolderManifest(Record):
    """What a run folder says of itself.

    Attributes
    ----------
    version : of safedrift
    state : "running" also of a run that was killed; `state_of` tells
    id : hash of `run` and `world`; None until the learner is set up
    request : what the command was asked for
    run : the settings of the run
    world : hash of the world's arrays; None for an environment
    seeds : entropy of the run's SeedSequence and the spawn keys of its children
    versions, platform, git : what it was played with
    host, pid : of the process that wrote this
    started, finished, seconds, sessions : when, how long, and in how many goes
    error : why it failed
    files : every other file, by name
    """

    format: int = FORMAT
    version: str = __version__
    state: State
    id: str | None = Field(default=None, pattern="^[0-9a-f]{16}$")
    request: dict[str, Any] = Field(default_factory=dict)
    run: Manifest | None = None
    world: str | None = None
    seeds: dict[str, Any] = Field(default_factory=dict)
    versions: dict[str, str] = Field(default_factory=dict)
    platform: str = ""
    git: str | None = None
    host: str = ""
    pid: int = 0
    started: str = ""
    finished: str | None = None
    seconds: float = Field(default=0.0, ge=0)
    sessions: int = Field(default=1, ge=1)
    error: str | None = None
    files: dict[str, FileEntry] = Field(default_factory=dict)
    checksum: str = Field(default=_BLANK, pattern="^[0-9a-f]{64}$")


def identity(run: Manifest, world: str | None) -> str:
    """Return the id of a run: a hash of what its numbers depend on, versions apart."""
    plain = run.model_dump(mode="json")
    for name in ("format", "version", "discretisation"):
        del plain[name]
    del plain["learner"]["notes"], plain["learner"]["events"]
    text = json.dumps({"run": plain, "world": world}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---------------------------------------------------------------- the manifest


def write_folder_manifest(folder: Path, manifest: FolderManifest) -> None:
    """Write the manifest of a folder, with its checksum, whole or not at all."""
    plain = manifest.model_copy(update={"checksum": _BLANK}).model_dump(mode="json")
    text = json.dumps(plain, indent=1) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    head, sign, tail = text.rpartition(f'"checksum": "{_BLANK}"')
    if not sign:
        raise RuntimeError("a manifest has no checksum")
    write_text(folder / MANIFEST, f'{head}"checksum": "{digest}"{tail}')


def read_folder_manifest(folder: str | os.PathLike[str]) -> FolderManifest:
    """Return the manifest of a run folder; one sentence says what is wrong with it."""
    path = Path(folder) / MANIFEST
    if not plain_file(path):
        if (path.parent / REPLACEMENT / MANIFEST).is_file():
            being = "one whose run was being replaced; 'safedrift run ... --resume' goes on"
            _check.fail(str(folder), "the folder of a run", being)
        got = "one without it" if path.parent.is_dir() else "no folder of that name"
        _check.fail(str(folder), f"the folder of a run, with {MANIFEST}", got)
    if path.stat().st_size > LARGEST_MANIFEST:
        _check.fail(str(path), _WANTED, "a file that is too long")
    data = path.read_bytes()
    marks = list(_CHECKSUM.finditer(data))
    if not marks:
        _check.fail(str(path), _WANTED, "one that is damaged: it has no checksum")
    start, stop = marks[-1].span(2)
    blank = data[:start] + _BLANK.encode() + data[stop:]
    if hashlib.sha256(blank).hexdigest().encode() != marks[-1][2]:
        _check.fail(str(path), _WANTED, "one that was changed or damaged: its checksum differs")
    try:
        found = FolderManifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        _check.fail(str(path), _WANTED, f"one whose {place!r} is wrong ({first['msg']})")
    if found.format != FORMAT:
        _check.fail(str(path), f"of format {FORMAT}", f"format {found.format}")
    for name in found.files:
        if not _NAME.fullmatch(name) or name == MANIFEST:
            _check.fail(str(path), _WANTED, f"one that lists a file {name[:80]!r}")
    return found


def state_of(folder: Path, manifest: FolderManifest) -> State:
    """Return the state of a run: one that says "running", but has no process, was interrupted."""
    if manifest.state == "running" and not in_use(folder):
        return "interrupted"
    return manifest.state


# ---------------------------------------------------------------- its files


def entry_of(path: Path) -> FileEntry:
    """Return size and SHA-256 of a file."""
    return FileEntry(sha256=file_digest(path), bytes=path.stat().st_size)


def check_files(folder: Path, manifest: FolderManifest, only: str | None = None) -> list[str]:
    """Compare files with the manifest; return one sentence for each that is wrong."""
    found = []
    for name, entry in manifest.files.items():
        path = folder / name
        if only is not None and name != only:
            continue
        if path.is_symlink() or (path.exists() and not path.is_file()):
            found.append(f"{path} must be a plain file; got a link or a folder")
        elif not path.exists():
            found.append(f"{path} must be there, as {MANIFEST} says; got nothing")
        elif path.stat().st_size != entry.bytes:
            size = path.stat().st_size
            found.append(f"{path} must have {entry.bytes} bytes, as {MANIFEST} says; got {size}")
        elif file_digest(path) != entry.sha256:
            found.append(f"{path} must be as it was written; got one whose SHA-256 differs")
    return found


def add_file(path: Path) -> None:
    """Enter a file that was made or changed after the run was done into the manifest beside it."""
    folder = path.parent
    if not plain_file(folder / MANIFEST):
        return
    manifest = read_folder_manifest(folder)
    files = manifest.files | {path.name: entry_of(path)}
    write_folder_manifest(folder, manifest.model_copy(update={"files": files}))


def from_folder(folder: str | os.PathLike[str]) -> Run:
    """Return the run in a folder; refuse one that is not done, or whose records were changed.

    Examples
    --------
    >>> import tempfile
    >>> import safedrift as sd
    >>> world = sd.problems.make("stationary", episodes=50)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = sd.simulate(world, sd.learners.make("uniform", world), out=f"{folder}/run")
    ...     again = sd.Run.from_folder(f"{folder}/run")
    >>> again.digest == run.digest
    True
    """
    path = Path(folder)
    manifest = read_folder_manifest(path)
    state = state_of(path, manifest)
    if state != "done":
        why = f" ({manifest.error})" if manifest.error else ""
        _check.fail(str(path), "the folder of a finished run", f"one that is {state}{why}")
    if RECORDS not in manifest.files:
        _check.fail(str(path / MANIFEST), f"one that lists {RECORDS}", "one that does not")
    for sentence in check_files(path, manifest, RECORDS):
        raise ValueError(sentence)
    run = from_parquet(path / RECORDS)
    if manifest.run is None or run.manifest.model_dump_json() != manifest.run.model_dump_json():
        wanted = f"the settings that {RECORDS} has"
        _check.fail(str(path / MANIFEST), wanted, "others")
    return run


Run.from_folder = staticmethod(from_folder)


def run_folders(parent: Path) -> Iterator[Path]:
    """Yield the run folders in a folder, by name; links are not followed."""
    if plain_file(parent / MANIFEST):
        yield parent
        return
    for path in sorted(parent.iterdir()):
        if path.is_dir() and not path.is_symlink() and plain_file(path / MANIFEST):
            yield path
