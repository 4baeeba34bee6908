"""The state of a random generator as an array, for checkpoints, and draws beyond uniforms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from safedrift import _check
from safedrift._check import FloatArray
from safedrift.kernels.gammas import standard_gammas

__all__ = ["generator_state", "restore_generator", "standard_gamma"]

_WORD = 2**64 - 1


def generator_state(generator: np.random.Generator) -> NDArray[np.uint64]:
    """Return the state of a PCG64 generator as six words.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> sd.learners.generator_state(np.random.default_rng(0)).shape
    (6,)
    """
    found = generator.bit_generator.state
    state, increment = found["state"]["state"], found["state"]["inc"]
    words = [state & _WORD, state >> 64, increment & _WORD, increment >> 64]
    return np.array([*words, found["has_uint32"], found["uinteger"]], np.uint64)


def restore_generator(generator: np.random.Generator, words: NDArray[np.uint64]) -> None:
    """Set a PCG64 generator to a state from `generator_state`.

    Examples
    --------
    >>> import numpy as np
    >>> import safedrift as sd
    >>> rng = np.random.default_rng(0)
    >>> words = sd.learners.generator_state(rng)
    >>> first = rng.random()
    >>> sd.learners.restore_generator(rng, words)
    >>> rng.random() == first
    True
    """
    given = np.asarray(words)
    if given.shape != (6,) or given.dtype != np.uint64:
        wanted = "six words from generator_state"
        _check.fail("the generator's state", wanted, f"{given.dtype} of shape {given.shape}")
    low, high, inc_low, inc_high, has, last = (int(word) for word in given)
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": low | high << 64, "inc": inc_low | inc_high << 64},
        "has_uint32": has,
        "uinteger": last,
    }


def standard_gamma(shapes: FloatArray, generator: np.random.Generator) -> FloatArray:
    """Return independent draws from Gamma(shape, 1), one for each positive shape (n,)."""
    state = generator.integers(2**64, size=1, dtype=np.uint64)
    drawn = np.empty(shapes.size)
    standard_gammas(shapes, state, drawn)
    return drawn
