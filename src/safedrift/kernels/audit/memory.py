"""What an audit reads, remembers and writes: arrays, and what their columns mean.

A `Transcript` is what a learner did, `Truth` what was best, the `Ledger` what the audit carries
from episode to episode, `Findings` what it leaves behind.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from safedrift.kernels.types import FloatArray, jit_part

# Columns of `Findings.worst`. Identities hold the largest residual, inequalities the smallest
# slack; (printed, repaired) pairs stand side by side.
POLICY, DUAL, EVALUATION, PERFORMANCE, START, POSSIBLE, OBSERVATIONS = range(7)
DESCENT, PRIMAL, VISITATION, PREDICTION, OPTIMISM, TRANSITIONS, SIGNALS, ELLIPTICAL = (
    7,
    9,
    11,
    13,
    15,
    17,
    19,
    21,
)
PROJECTION, NORMALISED = 23, 24
COLUMNS = 25
RESIDUALS = 7  # so many columns are identities
TOLERANCE = -1e-9  # a slack below this is a failure
LOG_ROUNDING = 1e-12  # of the logarithm of a ratio of two recorded probabilities
SMALLEST = 1e-300  # smaller probabilities have too few digits for their logarithms

# Columns of `Findings.terms`, each for reward and K utilities.
VALUE, OPTIMAL, ESTIMATE, IOTA_PATH, IOTA_OPTIMAL, MARTINGALE, BLOCK_STEP, OWN_STEP = range(8)
TERMS = 8


class AuditedTables(NamedTuple):
    """What a learner with counts says it works with: `Hyperparameters`, and its periods."""

    alpha: float
    eta: float
    xi: float
    chi: float
    lagged: bool
    dual_signal: int
    lam: float
    bonus: int
    root: FloatArray  # (H,)
    shift: float
    tail: FloatArray  # (H,)
    c: float
    LV: FloatArray  # (windows, K, H)
    L: int  # policy restarts
    W: int  # window restarts


class AuditedLinear(NamedTuple):
    """What a least-squares learner says it works with: `LinearHyperparameters`, and its periods."""

    alpha: float
    eta: float
    xi: float
    chi: float
    lagged: bool
    dual_signal: int
    lam: float
    beta: FloatArray  # (H,)
    beta_r: FloatArray  # (H,)
    LV: FloatArray  # (windows, K, H)
    window_drift_P: FloatArray  # (windows, H)
    window_drift_g: FloatArray  # (windows, K, H)
    L: int  # policy restarts
    W: int  # window restarts


class Transcript(NamedTuple):
    """What a learner did in B consecutive episodes.

    Examples
    --------
    The shapes of two episodes with H = 3, S = 2, A = 2 and one constraint (C = 2 estimates):

    >>> import numpy as np
    >>> from safedrift.theory import Transcript
    >>> seen = Transcript(
    ...     policies=np.full((2, 3, 2, 2), 0.5),
    ...     q=np.zeros((2, 2, 3, 2, 2)),
    ...     v_start=np.zeros((2, 2)),
    ...     mu=np.zeros((2, 1)),
    ...     states=np.zeros((2, 3), int),
    ...     actions=np.zeros((2, 3), int),
    ...     values=np.zeros((2, 2, 3)),
    ... )
    >>> len(seen.policies)  # episodes
    2
    """

    policies: FloatArray  # (B, H, S, A)
    q: FloatArray  # (B, C, H, S, A) reward, K utilities, and K without bonus if the dual uses those
    v_start: FloatArray  # (B, C) V^m at the initial distribution
    mu: FloatArray  # (B, K) after the dual step
    states: NDArray[np.int64]  # (B, H)
    actions: NDArray[np.int64]  # (B, H)
    values: FloatArray  # (B, 1+K, H) observed


class Truth(NamedTuple):
    """Optimal policies and drift of the same B episodes."""

    place: NDArray[np.int64]  # (B,) which of the optimal policies is the episode's
    fresh: NDArray[np.bool_]  # (B,) whether the world differs from that of the episode before
    policies: FloatArray  # (n, H, S, A)
    change: FloatArray  # (B, 2, H) ‖ΔP_h‖: what the printed lemma multiplies, and l1
    local: bool  # whether the learner knows local budgets
    # What the lemmas add for the drift inside a W-block, due to P and to the signal.
    printed_P: FloatArray  # (blocks, H)
    printed: FloatArray  # (blocks, 1+K, H)
    repaired_P: FloatArray  # (blocks, H) largest |(P - P')V| between two episodes, V in [0, H-h]
    repaired: FloatArray  # (blocks, 1+K, H) largest change of the signal


class Ledger(NamedTuple):
    """What an audit remembers from one episode to the next."""

    logit: FloatArray  # (H, S, A)
    policy: FloatArray  # (H, S, A) played in the episode before,
    step: FloatArray  # (H, S, A) its Q_r + μ·Q_g,
    price: FloatArray  # (1,) and its 1 + Σ_k μ_k
    visits: FloatArray  # (H, S, A)
    last: NDArray[np.int64]  # (H, S, A) the successor seen last
    seen: NDArray[np.int64]  # (H, S, A) how many successors, at entries order[row + j]
    order: NDArray[np.int64]  # (entries,)
    counts: FloatArray  # (entries,) visits of each successor, in the order of the world's lists
    signal_sums: FloatArray  # (1+K, H, S, A)
    mu: FloatArray  # (K,)
    dual_signal: FloatArray  # (K,) V_g of the episode before, as the dual step takes it
    thresholds: FloatArray  # (K,)
    star: FloatArray  # (H, S, A) optimal policy of the episode before
    reach: FloatArray  # (2, H, S) its occupancy, and that of the first episode of the L-block
    least: FloatArray  # (COLUMNS,) smallest slack so far
    potential: FloatArray  # (4, 1+K, H) Σ‖φ‖², clipped sum, log det ratio, Σ φᵀΛ⁻¹φ
    # Regressions of Algorithm 2; empty with Algorithm 3.
    gram: FloatArray  # (C, H, d1, d1)
    moment: FloatArray  # (C, H, d1)
    noise: FloatArray  # (C, H, d1) Σ φ^τ (V^τ(x') - P^τ V^τ)
    gram_r: FloatArray  # (H, d2, d2)
    moment_r: FloatArray  # (1+K, H, d2)


class Work(NamedTuple):
    """Scratch of an audit."""

    p: FloatArray  # (entries,) or (0,)
    signal: FloatArray  # (1+K, H, S, A)
    V: FloatArray  # (C, H+1, S) V^m
    V_pi: FloatArray  # (1+K, H+1, S)
    V_star: FloatArray  # (1+K, 2, S)
    reach: FloatArray  # (H, S)
    # The step in work.
    mean: FloatArray  # (C, S, A) estimate of the signal
    ahead: FloatArray  # (C, S, A) estimate of P V
    bonus: FloatArray  # (C, S, A) all that is added but LV
    bonus_P: FloatArray  # (C, S, A) what of it is meant for the error of P V,
    bonus_S: FloatArray  # (C, S, A) and for that of the signal, as printed
    covered: FloatArray  # (C, S, A) the part of it that is meant for drift
    drift_P: FloatArray  # (C, S, A) what drift inside the window may add to the error of P V,
    drift: FloatArray  # (C, S, A) and to that of the signal
    stack: FloatArray  # (G, S, 4) functions of the next state, four side by side
    expected: FloatArray  # (G, S, A, 4) P of each of them
    slack: FloatArray  # (8, S*A)
    weight: FloatArray  # (A,)
    four: FloatArray  # (2, 4)
    chol: FloatArray  # (d, d)
    chol_r: FloatArray  # (d, d)
    x: FloatArray  # (d,)
    y: FloatArray  # (d,)
    w: FloatArray  # (3, d)


class Findings(NamedTuple):
    """What an audit finds in B episodes."""

    worst: FloatArray  # (B, COLUMNS)
    where: NDArray[np.int64]  # (B, COLUMNS) (h*S + x)*A + a of the worst place, or -1
    broken: NDArray[np.int64]  # (B, COLUMNS) places where an inequality fails
    terms: FloatArray  # (B, TERMS, 1+K)
    dual_signal: FloatArray  # (B, K) V_g^m as the dual step takes it
    star_change: FloatArray  # (B, H) max_x ‖π*_h - π*_h of the episode before‖₁
    evidence: FloatArray  # (B, 3) log wealth against actions, states and signals (`draws`)


@jit_part
def note(i, column, value, place, out):
    """Keep the largest residual or smallest slack of episode i."""
    note_within(i, column, value, TOLERANCE, place, out)


@jit_part
def note_within(i, column, value, tolerance, place, out):
    """`note` with a tolerance (at most 0) of its own: a slack below it is a failure."""
    identity = column < RESIDUALS
    kept = out.worst[i, column]
    if (not value <= kept) if identity else (not value >= kept):  # a nan is the worst there is
        out.worst[i, column] = value
        out.where[i, column] = place
    if not identity and not value >= tolerance:
        out.broken[i, column] += 1


# ---------------------------------------------------------------- room


def make_ledger(H: int, S: int, A: int, K: int, C: int, entries: int, d1: int, d2: int) -> Ledger:
    """Return an empty ledger; d1 = d2 = 0 with Algorithm 3, entries = 0 with Algorithm 2."""
    zeros = np.zeros
    return Ledger(
        zeros((H, S, A)),
        zeros((H, S, A)),
        zeros((H, S, A)),
        zeros(1),
        zeros((H, S, A)),
        zeros((H, S, A), np.int64),
        zeros((H, S, A), np.int64),
        zeros(entries, np.int64),
        zeros(entries),
        zeros((1 + K, H, S, A)),
        zeros(K),
        zeros(K),
        zeros(K),
        zeros((H, S, A)),
        zeros((2, H, S)),
        np.full(COLUMNS, np.inf),
        zeros((4, 1 + K, H)),
        zeros((C, H, d1, d1)),
        zeros((C, H, d1)),
        zeros((C, H, d1)),
        zeros((H, d2, d2)),
        zeros((1 + K, H, d2)),
    )


def make_work(H: int, S: int, A: int, K: int, C: int, entries: int, d: int) -> Work:
    """Return scratch for an audit; `entries` is 0 where no transitions are mixed."""
    zeros = np.zeros
    pairs, G = (C, S, A), -(-2 * C // 4)
    return Work(
        zeros(entries),
        zeros((1 + K, H, S, A)),
        zeros((C, H + 1, S)),
        zeros((1 + K, H + 1, S)),
        zeros((1 + K, 2, S)),
        zeros((H, S)),
        zeros(pairs),
        zeros(pairs),
        zeros(pairs),
        zeros(pairs),
        zeros(pairs),
        zeros(pairs),
        zeros(pairs),
        zeros(pairs),
        zeros((G, S, 4)),
        zeros((G, S, A, 4)),
        zeros((8, S * A)),
        zeros(A),
        zeros((2, 4)),
        zeros((d, d)),
        zeros((d, d)),
        zeros(d),
        zeros(d),
        zeros((3, d)),
    )


def make_findings(B: int, H: int, K: int) -> Findings:
    """Return room for the findings of B episodes."""
    return Findings(
        np.zeros((B, COLUMNS)),
        np.zeros((B, COLUMNS), np.int64),
        np.zeros((B, COLUMNS), np.int64),
        np.zeros((B, TERMS, 1 + K)),
        np.zeros((B, K)),
        np.zeros((B, H)),
        np.zeros((B, 3)),
    )
