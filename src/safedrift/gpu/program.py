"""The program for a card: its source, what it is compiled with, and where the state of a run lies.

Who plays a run, and where its state is, follows from its size:

    teams     a lane has a state with all its actions, a warp 32 // S runs, their states are in
              shared memory (S <= 8, A <= 8)
    small     a run has 8, 16 or 32 lanes, a block several runs, states are in shared memory
    middle    a run has a block; what is looked up at random (policy, counts) is in shared memory,
              where two blocks fit beside each other
    large     a run has a block, its state is in the card's main memory
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
LARGE = 96  # lanes of a group of more than a warp
FEW_PAIRS = 128  # of a step at most, for which 64 lanes are enough
HOT_SLOTS = 7  # successors of a pair, at most, in the hot part: eight runs fit at (20, 5, 10)
UNSIGNED = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}
TEAM_STATES = TEAM_ACTIONS = 8  # at most, for teams
MOST_TEAMS = 4  # of a block
TEAM_BYTES = 56 * 1024  # of the states of a team at most: four teams on a multiprocessor
NOTHING, HOT, ALL, MOST = 0, 1, 2, 3  # of a state that is in shared memory
TEAM_STATE = MOST  # all but sums of signals, which leaves room for a third more teams than ALL


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
    def next_bits(self) -> int:
        """Bits of the number of a state."""
        return (self.S - 1).bit_length()

    @property
    def slot_bytes(self) -> int:
        """Bytes of the number of a state and a count."""
        return _bytes_for(self.next_bits + self.longest.bit_length())

    @property
    def pair_bytes(self) -> int:
        """Bytes of a number up to A S."""
        return _bytes_for((self.A * self.S).bit_length())

    @property
    def draws(self) -> int:
        """Uniforms that an episode uses."""
        return 2 * self.H + (self.H * (1 + self.K) if self.noisy else 0)


def _bytes_for(bits: int) -> int:
    """Bytes of the smallest unsigned integer with so many bits."""
    return next(size for size in UNSIGNED if 8 * size >= bits)


def _group_bytes(shape: Shape, lanes: int) -> tuple[int, int]:
    """Bytes of the hot part and of the whole state of a run of a group (groups.cu)."""
    H, S, A, K, C = shape[:5]
    pairs, logits = H * S * A, H * S * (A - 1)
    ahead = H * S if lanes <= 32 and 4 * lanes >= H * S else 0
    doubles = C * (A * S + 2 * S) + pairs + shape.draws + 3 * K + (1 + K) * H
    words = 2 * shape.draws + 5
    slots = (H - 1) * S * A * shape.slot_bytes  # for one successor of every pair
    listed = min(S, HOT_SLOTS)
    hot = (
        8 * (doubles + words) + _eights(4 * (2 * H + ahead)) + _eights(slots * listed)
        + _eights(shape.count_bytes * pairs) + 2 * _eights(shape.pair_bytes * pairs)
        + _eights(shape.pair_bytes * H * S) + H * S
    )  # fmt: skip
    cold = (
        8 * (1 + K) * pairs + 16 * logits + _eights(4 * logits) + _eights(slots * (S - listed))
        + _eights(shape.pair_bytes * pairs)
    )  # fmt: skip
    return _whole(hot), _whole(hot) + _whole(cold)


def _team_bytes(shape: Shape, team: int, shared: int = ALL) -> tuple[int, int]:
    """Bytes of the hot part and of the whole state of a team (teams.cu)."""
    H, S, A, K, C = shape[:5]
    row, width = team * S, (C + 1 + K + 1) // 2 * 2
    in_a_word = 4 // shape.count_bytes
    logits = 12 * (A - 1) * row
    hot_logits, cold_logits = (logits, 0) if shared == MOST else (0, logits)
    counts = 4 * A * row * ((S + in_a_word) // in_a_word)
    hot_step = _whole(8 * A * row + hot_logits) + _whole(counts)
    cold_step = _whole(8 * A * row * (1 + K) + cold_logits)
    doubles = 2 * row * width + (3 * shape.draws + 4 + 3 * K + (1 + K) * H + H + 1) * team
    hot = H * hot_step + _whole(8 * doubles + 4 * H * team)
    return hot, hot + H * cold_step


def _eights(size: int) -> int:
    """The next multiple of 8."""
    return -(-size // 8) * 8


def _whole(size: int) -> int:
    """The next multiple of 16."""
    return -(-size // 16) * 16


class Layout(NamedTuple):
    """Lanes of a run, runs of a block, and what of a state is in shared memory."""

    lanes: int
    runs: int
    shared: int  # NOTHING, HOT, MOST or ALL
    team: int = 0  # runs of a warp whose lanes have a state each, or 0: groups

    def state_bytes(self, shape: Shape) -> tuple[int, int]:
        """Bytes of the hot part and of the whole state of a run, or of the runs of a team."""
        if self.team:
            return _team_bytes(shape, self.team, self.shared)
        return _group_bytes(shape, self.lanes)

    def memory_bytes(self, shape: Shape, runs: int) -> int:
        """Bytes of the states of so many runs."""
        return -(-runs // (self.team or 1)) * self.state_bytes(shape)[1]

    def shared_bytes(self, shape: Shape) -> int:
        """Bytes of shared memory of a block."""
        hot, whole = self.state_bytes(shape)
        return self.runs // (self.team or 1) * (0, hot, whole, hot)[self.shared]

    def world_doubles(self, shape: Shape, entries: int) -> int:
        """Numbers of the mixed transitions of an episode (`WORLD_P` of teams)."""
        H, S, A = shape[:3]
        return max(2, (H - 1) * ((A * S + 1) // 2) * 2 * S) if self.team else entries

    @property
    def threads(self) -> int:
        """Threads of a block: beside large groups a warp has the states, and another one acts."""
        if self.team:
            return self.runs // self.team * 32
        return self.lanes * self.runs + (64 if self.lanes > 32 else 0)

    def blocks(self, shape: Shape, shared: int = SHARED) -> int:
        """Blocks that should fit on a multiprocessor, so that registers are limited for them."""
        fitting = (shared + RESERVED) // (self.shared_bytes(shape) + RESERVED)
        return max(1, min(fitting, REGISTERS // (FEWEST * max(32, self.threads))))


def layout_for(shape: Shape, shared: int = SHARED) -> Layout:
    """Return the layout for runs of this shape.

    Examples
    --------
    >>> from safedrift.gpu.program import Shape, layout_for
    >>> kind = {"J_P": 1, "J_R": 1, "J_G": 1, "noisy": False, "bernstein": False, "lv": False,
    ...         "dense": True, "longest": 400}
    >>> layout_for(Shape(H=5, S=5, A=3, K=1, C=2, **kind))
    Layout(lanes=5, runs=24, shared=3, team=6)
    >>> layout_for(Shape(H=5, S=10, A=4, K=1, C=2, **kind))
    Layout(lanes=32, runs=4, shared=2, team=0)
    >>> layout_for(Shape(H=10, S=20, A=5, K=1, C=2, **kind))
    Layout(lanes=64, runs=1, shared=1, team=0)
    >>> layout_for(Shape(H=10, S=100, A=5, K=1, C=2, **kind))
    Layout(lanes=96, runs=1, shared=0, team=0)
    """
    if shape.S <= TEAM_STATES and shape.A <= TEAM_ACTIONS:
        team = 32 // shape.S
        size = Layout(shape.S, team, TEAM_STATE, team).shared_bytes(shape)
        if size <= min(TEAM_BYTES, shared):
            room = shared + RESERVED
            fitting = {n: n * (room // (n * size + RESERVED)) for n in range(1, MOST_TEAMS + 1)}
            teams = max(fitting, key=lambda n: (fitting[n], n))  # of a block
            return Layout(shape.S, team * teams, TEAM_STATE, team)
    lanes = next((n for n in (8, 16) if n >= shape.A * shape.S), 32)
    size = _group_bytes(shape, lanes)[1]
    if size <= min(SMALL, shared):
        return Layout(lanes, min(THREADS // lanes, max(1, shared // (2 * size))), ALL)
    lanes = 64 if shape.A * shape.S <= FEW_PAIRS else LARGE
    hot = _group_bytes(shape, lanes)[0]
    return Layout(lanes, 1, HOT if 2 * (hot + RESERVED) <= shared + RESERVED else NOTHING)


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
def source(teams: bool) -> str:
    """Return the source, which is CUDA C++ and plain C++ alike, for teams or for groups."""
    folder = files("safedrift.gpu")
    names = ("common.cu", "teams.cu" if teams else "groups.cu", "measuring.cu")
    return "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


def definitions(shape: Shape, layout: Layout) -> dict[str, str]:
    """Return what the source wants to have defined."""
    numbers = {
        **{name: getattr(shape, name) for name in ("H", "S", "A", "K", "C", "J_P", "J_R", "J_G")},
        "NOISY": int(shape.noisy),
        "BERNSTEIN": int(shape.bernstein),
        "HAS_LV": int(shape.lv),
        "DENSE": int(shape.dense),
        "NEXT_BITS": shape.next_bits,
        "HOT_SLOTS": min(shape.S, HOT_SLOTS),
        "LANES": layout.lanes,
        "TEAM": layout.team,
        "RUNS": layout.runs,
        "BLOCKS": layout.blocks(shape),
        "SHARED_STATE": layout.shared,
    }
    types = {"COUNT": shape.count_bytes, "SLOT": shape.slot_bytes, "PAIR": shape.pair_bytes}
    jumps = [word for n in draws(shape) for word in jump_words(n)]
    return (
        {name: str(value) for name, value in numbers.items()}
        | {name: UNSIGNED[size] for name, size in types.items()}
        | {f"JUMP_{i}": f"{word}ull" for i, word in enumerate(jumps)}
    )


@cache
def task_fields() -> tuple[str, ...]:
    """Return the names of the fields of `struct Task`, in the order of the source."""
    body = source(True).partition("struct Task {")[2].partition("};")[0]
    body = re.sub(r"//.*", "", body)
    return tuple(
        re.sub(r".*[ *]", "", name.strip())
        for statement in body.split(";")
        for name in statement.split(",")
        if name.strip()
    )
