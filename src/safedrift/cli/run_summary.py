"""What `safedrift run` prints in the end: figures with their definitions, changes, notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

MOST_EVENTS = 8  # that are printed


def print_summary(summary: dict[str, Any], folder: Path) -> None:
    """Print the figures of a run, the changes it noticed, its notes, and where its page is."""
    console = Console()

    def say(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    sizes = ", ".join(f"{name} = {value}" for name, value in summary["sizes"].items())
    say(f"{summary['learner']} in {summary['problem']}, {_constants(summary)}{sizes}\n")
    say(f"{summary['verdict']}\n", style="bold")
    table = Table("", "per episode", "", box=None, header_style="dim", pad_edge=False)
    table.columns[1].justify = "right"
    for name, value, meaning in _summary_rows(summary):
        table.add_row(name, f"{value:.4f}", Text(meaning, style="dim"))
    console.print(table)
    _print_events(summary["events"], say)
    for note in summary["notes"]:
        say(f"\nNote. {note}", style="yellow")
    say(f"\nLook at {folder / 'report.html'}")


def _print_events(events: list[str], say: Callable[[str], None]) -> None:
    """Print the last changes that the learner noticed."""
    if events:
        say(f"\nThe learner noticed {len(events)} change{'s' * (len(events) > 1)} of the world:")
    if len(events) > MOST_EVENTS:
        say(f"  ... (the last {MOST_EVENTS}; all are in the report)")
    for event in events[-MOST_EVENTS:]:
        say(f"  {event}")


def _constants(summary: dict[str, Any]) -> str:
    """Which constants the learner used, where it says so."""
    mode = summary["settings"].get("parameters", {}).get("mode")
    return "" if mode is None else f"{mode} constants; "


def _summary_rows(summary: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    """Rows of the summary table: name, figure per episode, definition."""
    if not summary["truth_known"]:
        yield from _observed_rows(summary)
        return
    if summary["strict_score"] is not None:
        yield (
            "strict score",
            summary["strict_score"],
            "positive parts over the uniform policy's; 0 is best",
        )
        yield "  last tenth", summary["last_tenth_strict_score"], "over the last M/10 episodes"
    yield "regret", summary["dynamic_regret_per_episode"], "DR(M)/M, DR = Σ (V_r* - V_r)"
    yield "  last tenth", summary["last_tenth_regret_per_episode"], "over the last M/10 episodes"
    yield "  uniform policy", summary["uniform_regret_per_episode"], "for comparison"
    yield "  positive part", summary["positive_regret_per_episode"], "Σ [V_r* - V_r]_+ / M"
    for k, violation in enumerate(summary["violation_per_episode"]):
        late = summary["last_tenth_shortfall_per_episode"][k]
        positive = summary["positive_violation_per_episode"][k]
        yield (
            _named("violation", summary, k),
            violation,
            "CV(M)/M, CV = [Σ (b - V_g)]_+",
        )
        yield "  last tenth", late, "mean of b - V_g; negative is safe"
        yield "  positive part", positive, "Σ [b - V_g]_+ / M"
        yield from _levels(summary, k)
    cost = summary["discretisation"]
    if cost is not None:
        coarse, fine = cost["nodes"]
        yield (
            "grid error",
            cost["regret"],
            f"largest change of V_r* - V_r, {coarse} to {fine} nodes",
        )
        yield "", cost["utility"], "likewise of V_g"


def _observed_rows(summary: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    """The rows of a world without a model."""
    unit = "scaled to [0, 1] per step"
    if summary["scale"] is not None:
        unit = summary["scale"]["reward_unit"] or "in its own units"
    yield "observed reward", summary["reward_per_episode"], unit
    yield "  last tenth", summary["last_tenth_reward_per_episode"], "over the last M/10 episodes"
    for k, violation in enumerate(summary["violation_per_episode"]):
        name = _named("observed violation", summary, k)
        yield name, violation, "CV(M)/M, CV = [Σ (b - observed utility)]_+"
        late = summary["last_tenth_shortfall_per_episode"][k]
        yield "  last tenth", late, "mean of b - observed utility; negative is safe"
        yield from _levels(summary, k)


def _levels(summary: dict[str, Any], k: int) -> Iterator[tuple[str, float, str]]:
    """The level of a constraint that has a name, and what is required of it."""
    if summary["constraints"] is None:
        return
    limit = {} if summary["scale"] is None else summary["scale"]["constraints"][k]
    side = "at most" if limit.get("at_most") else "at least"
    required = f"{side} {summary['threshold_per_episode'][k]:.4g} {limit.get('unit', '')}".strip()
    late = summary["last_tenth_utility_per_episode"][k]
    yield f"  {summary['constraints'][k]}", late, f"over the last M/10 episodes; {required}"


def _named(figure: str, summary: dict[str, Any], k: int) -> str:
    """A figure of constraint k: with its name, or its number where there are several."""
    if summary["constraints"] is not None:
        return f"{figure}, {summary['constraints'][k]}"
    return f"{figure} {k + 1}" if len(summary["violation"]) > 1 else figure
