"""Runs on disk at a glance: state and progress of every run folder, damaged ones too."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from safedrift.experiments.checkpoints import checkpoint_files, episodes_in_name
from safedrift.results.run_folders import FolderManifest, read_folder_manifest, state_of

__all__ = ["RunEntry", "entry_from", "run_entry"]


class RunEntry(NamedTuple):
    """A run folder as it is listed.

    Attributes
    ----------
    state : "running", "done", "failed", "interrupted", or "damaged"
    done, total : episodes played at the last checkpoint, and in all; None before it has begun
    error : why it failed, or what is damaged
    """

    path: Path
    state: str
    id: str | None = None
    problem: str | None = None
    learner: str | None = None
    done: int | None = None
    total: int | None = None
    seed: int | None = None
    error: str | None = None

    @property
    def episodes(self) -> str | None:
        """How many episodes are done, of how many."""
        if self.done is None or self.total is None:
            return None
        return f"{self.total:,}" if self.state == "done" else f"{self.done:,} of {self.total:,}"


def run_entry(folder: Path) -> RunEntry:
    """Return what is listed of a run folder; one that cannot be read is "damaged"."""
    try:
        manifest = read_folder_manifest(folder)
        return entry_from(folder, manifest, state_of(folder, manifest))
    except (ValueError, OSError) as error:
        return RunEntry(folder, "damaged", error=" ".join(str(error).split()))


def entry_from(folder: Path, manifest: FolderManifest, state: str) -> RunEntry:
    """Return what is listed of a run folder whose manifest was read."""
    run = manifest.run
    found = RunEntry(folder, state, id=manifest.id, error=manifest.error)
    if run is None:
        return found
    total = run.sizes.M
    known = [] if state == "done" else checkpoint_files(folder)
    done = total if state == "done" else min(episodes_in_name(known[0]) if known else 0, total)
    return found._replace(
        problem=run.problem or run.environment,
        learner=run.learner.name,
        done=done,
        total=total,
        seed=run.seed,
    )
