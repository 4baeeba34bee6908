"""What a user should know about a run of PROPD-PPO, in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from safedrift.learners.forgetting import Forgetting
from safedrift.learners.propd_ppo.parameters import Parameters

__all__ = ["notes_on"]

RESIDUAL = 1e-6  # relative error of the least-squares factors, above which a user should know


def notes_on(
    parameters: Parameters,
    forgetting: Forgetting,
    episodes: int | None,
    trace: Mapping[str, NDArray[Any]],
    residual: float,
) -> list[str]:
    """Return notes on a finished run.

    Parameters
    ----------
    episodes
        M, or None.
    trace
        Columns of the learner's trace, first axis the recorded episodes.
    residual
        How far the least-squares factors had moved between two exact refreshes; 0 with counts.
    """
    found = list(parameters.remarks)
    last = slice(-max(1, len(trace["at_cap"]) // 10), None)
    share = float(np.mean(trace["at_cap"][last]))
    if share > 0.95:
        found.append(
            f"The bonus is vacuous: {share:.0%} of the estimates along the last tenth of the "
            "episodes sit at their cap, so they carry no information and the policy stays "
            f"(nearly) uniform. {_advice(parameters, forgetting)}"
        )
    if parameters.improvement.alpha == 0 and not any(x.startswith("alpha = 0") for x in found):
        found.append(
            "alpha is 0, as Theorems 3 and 4 print it for zero budgets: the policy never "
            "moves. Use mode 'repaired' or 'practical', or set alpha."
        )
    if getattr(forgetting, "L", None) == 1 and episodes != 1:
        found.append(
            "L is 1: the policy restarts in every episode and is always uniform. Set L "
            "larger, or use mode 'practical'."
        )
    chi = float(parameters.dual.chi)
    hits = float((trace["mu"] >= chi).mean())
    if hits > 0.05:
        found.append(
            f"The multiplier was at its upper bound chi = {chi:g} in {hits:.0%} of the "
            "episodes: the learner could not meet the constraint in time. The world may drift "
            "faster than W episodes can follow (set W and L smaller), or there are too few "
            "episodes."
        )
    if residual > RESIDUAL:
        found.append(
            f"The least-squares factors had moved by {residual:.1e} (relative) between two exact "
            "refreshes: the Gram matrices are close to singular. Set lam larger."
        )
    return found


def _advice(parameters: Parameters, forgetting: Forgetting) -> str:
    if getattr(forgetting, "W", None) == 1:
        return "A window of one episode holds no data: set W larger, or use mode 'practical'."
    if parameters.mode == "practical":
        return "There are too few episodes to learn from, or the windows are too short."
    return (
        "Use mode 'practical', or scale the bonus down (bonus_scale=0.005 and lam=0.002 learn "
        "where the printed constants do not)."
    )
