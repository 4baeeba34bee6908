"""Watch a run while it plays: `simulate(..., callbacks=[...])`.

    class Callback:
        on_start(settings, done)     # before the first episode; done > 0 where a run is resumed
        on_rows(rows)                # after every chunk: its measured episodes
        on_end(run)                  # after the last episode

`rows` has columns of one length n: "episodes" (n,), "reward" (n,), "utility" (n, K), "observed"
(n, 1+K), "regret" (n,), "shortfall" (n, K) and "trace.NAME" of what the learner shows. How many
episodes make a chunk is up to the engine; the numbers do not depend on it, nor on callbacks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedrift._check import IntArray
from safedrift.experiments.journals import Rows
from safedrift.results import Manifest, Run, Truth

__all__ = ["Callback", "TensorBoard", "check_callbacks", "seen_rows"]


class Callback:
    """Does nothing; override what you need.

    Examples
    --------
    >>> import safedrift as sd
    >>> class Worst(sd.Callback):
    ...     regret = 0.0
    ...     def on_rows(self, rows):
    ...         self.regret = max(self.regret, rows["regret"].max())
    >>> world = sd.problems.make("stationary", episodes=100)
    >>> worst = Worst()
    >>> run = sd.simulate(world, sd.learners.make("uniform", world), callbacks=[worst])
    >>> bool(worst.regret == run.regret.max())
    True
    """

    def on_start(self, settings: Manifest, done: int) -> None:
        """Before the first episode; `done` episodes were played before, where a run is resumed."""

    def on_rows(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """After a chunk in which at least one episode was measured."""

    def on_end(self, run: Run) -> None:
        """After the last episode."""


class TensorBoard(Callback):
    """Scalars for TensorBoard: means over each chunk, one folder per learner, world and seed.

    Runs that differ only in their seed lie side by side in a folder named after world, learner and
    settings, so that TensorBoard groups them. Needs the extra `tensorboard`
    (``pip install 'safedrift[tensorboard]'``).

    Parameters
    ----------
    folder
        What ``tensorboard --logdir`` is given.

    Examples
    --------
    >>> import safedrift as sd
    >>> from safedrift.experiments.callbacks import TensorBoard
    >>> world = sd.problems.make("stationary", episodes=100)
    >>> learner = sd.learners.make("uniform", world)
    >>> run = sd.simulate(world, learner, callbacks=[TensorBoard("logs")])  # doctest: +SKIP
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ImportError(
                "TensorBoard must have the extra 'tensorboard' installed "
                "(pip install 'safedrift[tensorboard]'); got no module tensorboardX"
            ) from None
        self.folder = Path(folder)
        self._make = SummaryWriter
        self._writer: Any = None

    def on_start(self, settings: Manifest, done: int) -> None:
        """Open the folder of this run."""
        world = settings.problem or settings.environment or "world"
        group = _file_name(f"{world}-{settings.learner.name}")
        self._writer = self._make(str(self.folder / group / f"seed-{settings.seed}"))

    def on_rows(self, rows: Mapping[str, NDArray[Any]]) -> None:
        """Write the means of the chunk at its last measured episode."""
        step = int(rows["episodes"][-1])
        for name, values in rows.items():
            if name == "episodes":
                continue
            mean = np.atleast_1d(np.asarray(values, float).mean(axis=0))
            for k, value in enumerate(mean):
                tag = name.replace("trace.", "trace/")
                self._writer.add_scalar(tag if mean.size == 1 else f"{tag}/{k}", value, step)

    def on_end(self, run: Run) -> None:
        """Close the folder."""
        self._writer.close()


def _file_name(text: str) -> str:
    """A text as the name of a file in a folder."""
    return re.sub(r"[^\w.-]+", "_", text).lstrip(".") or "run"


def check_callbacks(callbacks: object) -> tuple[Callback, ...]:
    """Return callbacks as a tuple; refuse what has not their methods."""
    if isinstance(callbacks, str | bytes) or not isinstance(callbacks, Sequence):
        raise TypeError(f"callbacks must be a list of callbacks; got {type(callbacks).__name__}")
    for i, item in enumerate(callbacks):
        for name in ("on_start", "on_rows", "on_end"):
            if not callable(getattr(item, name, None)):
                raise TypeError(
                    f"callbacks[{i}] must have {name} (see safedrift.Callback); "
                    f"got {type(item).__name__}"
                )
    return tuple(callbacks)


def seen_rows(truth: Truth, episodes: IntArray, rows: Rows) -> Rows:
    """Return the rows of the listed measured episodes, as callbacks see them: nobody else's."""
    at = np.searchsorted(truth.episodes, episodes)
    return {
        "episodes": episodes.copy(),
        **{name: values.copy() for name, values in rows.items()},
        "regret": truth.optimal_reward[at] - rows["reward"],
        "shortfall": truth.thresholds[at] - rows["utility"],
    }
