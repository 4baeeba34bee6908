"""How numbers, units and constraints are written, in the terminal and on pages."""

from __future__ import annotations

from safedrift.results.run import Run

__all__ = [
    "ROUNDING",
    "close_numbers",
    "constraint_subject",
    "episodes_label",
    "is_cost",
    "number",
    "percent",
    "reward_unit",
    "utility_unit",
]

ROUNDING = 1e-9  # a shortfall up to this counts as zero


def number(value: float | list[float]) -> str:
    """Return a figure, or several, as they are shown: three digits, thousands in full.

    Examples
    --------
    >>> from safedrift.results.wording import number
    >>> number(11786.4), number(-0.01519), number([15.0, 0.25])
    ('11,786', '−0.0152', '15; 0.25')
    """
    if isinstance(value, list):
        return "; ".join(map(number, value))
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value + 0.0:.3g}"
    return text.replace("-", "−")


def percent(share: float) -> str:
    """Return a share in percent, with three digits."""
    return f"{100 * share:.3g}%"


def close_numbers(one: float, other: float) -> tuple[str, str]:
    """Return two numbers with enough digits to tell them apart."""
    for digits in range(3, 9):
        texts = (f"{one:.{digits}g}", f"{other:.{digits}g}")
        if texts[0] != texts[1]:
            break
    return texts


def constraint_subject(run: Run, k: int) -> str:
    """Return a constraint as the first words of a sentence."""
    if run.manifest.constraints is not None:
        return f"The constraint “{run.constraint(k)}”"
    return "The constraint" if run.manifest.sizes.K == 1 else f"Constraint {k + 1}"


def reward_unit(run: Run) -> str:
    """Return what rewards are counted in."""
    return "reward" if run.scale is None else run.scale.reward_unit or "reward"


def is_cost(run: Run, k: int) -> bool:
    """Return whether constraint k is a cost in the world's own units."""
    return run.scale is not None and run.scale.limits[k].at_most


def utility_unit(run: Run, k: int) -> str:
    """Return what constraint k is counted in."""
    named = "" if run.scale is None else run.scale.limits[k].unit
    return named or ("cost" if is_cost(run, k) else "utility")


def episodes_label(run: Run) -> str:
    """Return what the episodes are called that shares and means are taken over."""
    manifest = run.manifest
    all_measured = manifest.measure_every == 1 and manifest.measure_log is None
    return "episodes" if all_measured else "measured episodes"
