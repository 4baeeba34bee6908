"""The command `safedrift theory`: constants of the four theorems, what their bounds are worth."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from safedrift.cli.shared import friendly_errors


def theory(
    M: Annotated[int, typer.Option("--M", help="Episodes.")] = 100_000,
    H: Annotated[int, typer.Option("--H", help="Steps of an episode.")] = 5,
    S: Annotated[int, typer.Option("--S", help="States.")] = 5,
    A: Annotated[int, typer.Option("--A", help="Actions.")] = 3,
    K: Annotated[int, typer.Option("--K", help="Constraints.")] = 1,
    d1: Annotated[int, typer.Option(help="Dimension of psi (Theorems 1 and 2).")] = 8,
    d2: Annotated[int, typer.Option(help="Dimension of phi (Theorems 1 and 2).")] = 8,
    gamma: Annotated[float, typer.Option(help="Slater gap (Theorems 2 and 4).")] = 0.5,
    b_p: Annotated[float, typer.Option("--B-P", help="Budget of the transitions.")] = 4.0,
    b_r: Annotated[float, typer.Option("--B-r", help="Budget of the rewards.")] = 2.0,
    b_g: Annotated[float, typer.Option("--B-g", help="Budget of the utilities.")] = 1.0,
    b_star: Annotated[
        float, typer.Option("--B-star", help="Budget of the optimal policies.")
    ] = 20.0,
    rho: Annotated[float, typer.Option(help="Theorem 3's trade-off, in [1/3, 1/2].")] = 0.5,
    p: Annotated[float, typer.Option(help="Failure probability.")] = 0.05,
    only: Annotated[
        int | None, typer.Option("--theorem", help="One theorem only, 1 to 4.", min=1, max=4)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Print the constants of Theorems 1 to 4 in every mode, and their bounds term by term.

    Each bound is the last explicit inequality of its proof, before the paper hides constants and
    logarithms, at the printed constants with C_1 = ... = C_6 = 1. A bound is non-vacuous once it is
    below H*M, which no learner exceeds; the crossover is the number of episodes where that begins,
    budgets held fixed. Local budgets are spread evenly over episodes and steps.
    """
    with friendly_errors():
        found = [
            _theorem(number, M, H, S, A, K, d1, d2, gamma, (b_p, b_r, b_g, b_star), rho, p)
            for number in ([only] if only else (1, 2, 3, 4))
        ]
        if as_json:
            sys.stdout.write(json.dumps(found) + "\n")
        else:
            _print_theorems(found, H * M)


def _theorem(
    number: int,
    M: int,
    H: int,
    S: int,
    A: int,
    K: int,
    d1: int,
    d2: int,
    gamma: float,
    drift: tuple[float, float, float, float],
    rho: float,
    p: float,
) -> dict[str, Any]:
    """Everything about one theorem, as plain data."""
    from safedrift import _check
    from safedrift import theory as t
    from safedrift.knowledge import Budgets, LocalBudgets, Sizes, Slater
    from safedrift.learners import Dimensions, tune

    sizes, budgets = Sizes(M, H, S, A, K), Budgets(*drift)
    for name, size in sizes._asdict().items():
        _check.integer(name, size)
    for name, value in budgets._asdict().items():
        if not 0 <= value < float("inf"):
            _check.fail(f"B_{name}", "finite and >= 0", value)
    slater = Slater(gamma)
    even = LocalBudgets(budgets.P / (M * H), budgets.g / (M * H * K))
    knowledge = slater if number % 2 == 0 else even
    features = Dimensions(d1, d2)
    features.check()
    dimensions = features if number <= 2 else None
    modes = {
        mode: tune(sizes, knowledge, budgets, dimensions=dimensions, mode=mode, rho=rho, p=p)
        for mode in ("printed", "repaired", "practical")
    }
    answer: dict[str, Any] = {
        "theorem": number,
        "constants": {mode: _constants(chosen) for mode, chosen in modes.items()},
        "remarks": list(modes["printed"].remarks),
        "bounds": [],
    }
    for bound in t.bounds(sizes, knowledge, budgets, modes["printed"], dimensions=dimensions, p=p):
        common: dict[str, Any] = {
            "quantity": bound.quantity,
            "dimensions": dimensions,
            "rho": rho,
        }
        rate = t.rate(sizes, knowledge, budgets, **common)
        crossover = {
            form: t.crossover(sizes, knowledge, budgets, form=form, p=p, **common)
            for form in ("printed", "repaired")
        }
        answer["bounds"].append(
            {
                "quantity": bound.quantity,
                "rows": [row._asdict() for row in t.table(bound)],
                "vacuous": bound.vacuous,
                "rate": rate.formula,
                "crossover": {k: v if v < float("inf") else None for k, v in crossover.items()},
                "unproved": list(bound.reasons),
            }
        )
    return answer


def _constants(found: Any) -> dict[str, float | None]:
    """alpha, L, eta, xi, chi, W and the scale of the bonus at the first step."""
    step, dual, part = found.improvement, found.dual, found.evaluation
    bonus = getattr(part, "bonus", None)
    if bonus is None:
        scale = float(part.beta[0])
    else:
        scale = float(bonus.root[0]) if hasattr(bonus, "root") else float(bonus.c)
    chi = float(dual.chi)
    return {
        "alpha": float(step.alpha),
        "L": int(step.L),
        "eta": float(dual.eta),
        "xi": float(dual.xi),
        "chi": chi if chi < float("inf") else None,
        "W": int(part.W),
        "bonus": scale,
    }


def _print_theorems(found: list[dict[str, Any]], ceiling: int) -> None:
    console = Console()
    table = Table("theorem", "mode", *found[0]["constants"]["printed"], box=None)
    for answer in found:
        for mode, constants in answer["constants"].items():
            numbers = ("inf" if value is None else f"{value:.4g}" for value in constants.values())
            table.add_row(str(answer["theorem"]), mode, *numbers)
    console.print(table)
    console.print(
        "bonus: its scale at the first step (printed 2 beta for counts, beta for least squares; "
        "practical c)",
        style="dim",
    )
    for answer in found:
        for remark in answer["remarks"]:
            console.print(f"\nTheorem {answer['theorem']}, printed: {remark}", style="yellow")
        for bound in answer["bounds"]:
            title = f"Theorem {answer['theorem']}, {bound['quantity']}: Õ({bound['rate']})"
            console.print(f"\n{title}", style="bold", markup=False, highlight=False)
            table = Table("term", "value", "share", "formula", box=None, header_style="dim")
            for row in bound["rows"][:-1]:
                share = f"{100 * row['share']:.3g}%"
                table.add_row(row["term"], f"{row['value']:.4g}", share, row["formula"])
            console.print(table)
            total = bound["rows"][-2]["value"]
            verdict = "vacuous" if bound["vacuous"] else "non-vacuous"
            console.print(
                f"{verdict}: {total / ceiling:.3g} times H*M = {ceiling:,}; below it from "
                + ", ".join(
                    f"M = {'never' if m is None else f'{m:.2g}'} ({form})"
                    for form, m in bound["crossover"].items()
                ),
                highlight=False,
            )
            for reason in bound["unproved"]:
                console.print(f"not proved: {reason}", style="dim", markup=False, highlight=False)
