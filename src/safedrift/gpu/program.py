"""The program for a card: its source, what it is compiled with, and where the state of a run lies.

A run is played by a group of lanes. How many, and where its state is, follows from its size:

    small     8, 16 or 32 lanes, several runs in a block, state in shared memory
    middle    a block for each run; what is looked up at random (policy, counts) in shared memory
    large     a block for each run, state in the card's main memory
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

__all__ = [
    "SHARED",
    "Layout",
    "Shape",
    "definitions",
    "draws",
    "jump_words",
    "layout_for",
    "source",
    "task_fields",
]

SHARED = 227 * 1024  # bytes of shared memory that a block can have (compute capability 9.0)
RESERVED = 1024  # bytes that each block takes beside them
REGISTERS = 65536  # of a multiprocessor
FEWEST = 64  # registers of a thread that it should have at least
SMALL = 24 * 1024  # bytes of a state of which several share a block
THREADS = 128  # of a block
FILES = ("state.cu", "playing.cu", "measuring.cu")
NOTHING, HOT, ALL = 0, 1, 2  # of a state that is in shared memory


class Shape(NamedTuple):
    """What the program is compiled for: sizes, and what kind of learner and world."""

    H: int
    S: int
    A: int
    K: int
    C: int  # channels: 1+K, or 1+2K where the dual signal has no bonus
    J_P: int  # scenarios that are mixed in an episode
    J_R: int
    J_G: int
    noisy: bool
    bernstein: bool
    lv: bool  # estimates of utility are raised by LV
    dense: bool  # every pair lists all states as successors
    longest: int  # episodes in a window at most

    @property
    def count_bytes(self) -> int:
        """Bytes of a count: two where that is enough."""
        return 2 if self.longest < 2**16 else 4

    @property
    def fused(self) -> bool:
        """Exact values are found while playing, and no policy is written (`FUSED`)."""
        return self.dense and self.S <= 8

    @property
    def hot_bytes(self) -> int:
        """Bytes of a state that are looked up at random (`HOT_BYTES` in the source)."""
        H, S, A, K, C = self[:5]
        pairs, draws = H * S * A, 2 * H + (H * (1 + K) if self.noisy else 0)
        channels = C + (1 + K if self.fused else 0)
        doubles = pairs + channels * (A * S + 2 * S) + draws + 3 * K + (1 + K) * H
        words = 2 * draws + 5
        marks = (H - 1) * -(-S // 32) * S * A if S > 8 else 0
        counts = pairs + (H - 1) * S * A * S
        integers = 2 * H + H * S + marks
        found = 8 * (doubles + words) + 4 * integers + self.count_bytes * counts + H * S
        return _whole(found)

    @property
    def state_bytes(self) -> int:
        """Bytes of the state of a run (`STATE_BYTES` in the source)."""
        pairs = self.H * self.S * self.A
        logits = pairs - self.H * self.S
        return self.hot_bytes + _whole(8 * (1 + self.K) * pairs + 12 * logits)


def _whole(size: int) -> int:
    """The next multiple of 16."""
    return -(-size // 16) * 16


class Layout(NamedTuple):
    """Lanes of a run, runs of a block, and what of a state is in shared memory."""

    lanes: int
    runs: int
    shared: int  # NOTHING, HOT or ALL

    def shared_bytes(self, shape: Shape) -> int:
        """Bytes of shared memory of a block."""
        return self.runs * (0, shape.hot_bytes, shape.state_bytes)[self.shared]

    @property
    def threads(self) -> int:
        """Threads of a block: beside large groups another warp acts."""
        return self.lanes * self.runs + (32 if self.lanes > 32 else 0)

    def blocks(self, shape: Shape, shared: int = SHARED) -> int:
        """Blocks that should fit on a multiprocessor, so that registers are limited for them."""
        fitting = (shared + RESERVED) // (self.shared_bytes(shape) + RESERVED)
        return max(1, min(fitting, REGISTERS // (FEWEST * self.threads)))


def layout_for(shape: Shape, shared: int = SHARED) -> Layout:
    """Return the layout for runs of this shape.

    Examples
    --------
    >>> from safedrift.gpu.program import Shape, layout_for
    >>> kind = {"J_P": 1, "J_R": 1, "J_G": 1, "noisy": False, "bernstein": False, "lv": False,
    ...         "dense": True, "longest": 400}
    >>> layout_for(Shape(H=5, S=5, A=3, K=1, C=2, **kind))
    Layout(lanes=16, runs=8, shared=2)
    >>> layout_for(Shape(H=10, S=20, A=5, K=1, C=2, **kind))
    Layout(lanes=128, runs=1, shared=1)
    >>> layout_for(Shape(H=10, S=100, A=5, K=1, C=2, **kind))
    Layout(lanes=128, runs=1, shared=0)
    """
    size = shape.state_bytes
    if size <= min(SMALL, shared):
        lanes = next((n for n in (8, 16) if n >= shape.A * shape.S), 32)
        return Layout(lanes, min(THREADS // lanes, max(1, shared // (2 * size))), ALL)
    return Layout(THREADS, 1, HOT if shape.hot_bytes <= shared else NOTHING)


MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645  # of PCG64
MODULUS = 2**128
WORD = 2**64 - 1


def draws(shape: Shape) -> tuple[int, int]:
    """Uniforms of an episode: for actions, and for states and noise (`kernels.stepping`)."""
    return shape.H, shape.H + shape.H * (1 + shape.K)


def jump_words(draws: int) -> list[int]:
    """Return what a jump over so many draws multiplies state and increment by."""
    power, total = 1, 0
    for _ in range(draws):
        total = (total + power) % MODULUS
        power = power * MULTIPLIER % MODULUS
    return [power & WORD, power >> 64, total & WORD, total >> 64]


@cache
def source() -> str:
    """Return the source, which is CUDA C++ and plain C++ alike."""
    folder = files("safedrift.gpu")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in FILES)


def definitions(shape: Shape, layout: Layout) -> dict[str, str]:
    """Return what the source wants to have defined."""
    numbers = {
        **{name: getattr(shape, name) for name in ("H", "S", "A", "K", "C", "J_P", "J_R", "J_G")},
        "NOISY": int(shape.noisy),
        "BERNSTEIN": int(shape.bernstein),
        "HAS_LV": int(shape.lv),
        "DENSE": int(shape.dense),
        "LANES": layout.lanes,
        "RUNS": layout.runs,
        "BLOCKS": layout.blocks(shape),
        "SHARED_STATE": layout.shared,
    }
    count = "unsigned short" if shape.count_bytes == 2 else "unsigned"
    jumps = [word for n in draws(shape) for word in jump_words(n)]
    return (
        {name: str(value) for name, value in numbers.items()}
        | {"COUNT": count}
        | {f"JUMP_{i}": f"{word}ull" for i, word in enumerate(jumps)}
    )


@cache
def task_fields() -> tuple[str, ...]:
    """Return the names of the fields of `struct Task`, in the order of the source."""
    body = source().partition("struct Task {")[2].partition("};")[0]
    body = re.sub(r"//.*", "", body)
    return tuple(
        re.sub(r".*[ *]", "", name.strip())
        for statement in body.split(";")
        for name in statement.split(",")
        if name.strip()
    )
