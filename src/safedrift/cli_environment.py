"""`safedrift run my_env.py:make` where `make` returns a Gymnasium environment."""

from __future__ import annotations

from typing import Any

__all__ = ["run_environment"]


def run_environment(
    world: Any,
    gamma: float | None,
    knowledge: str,
    mode: str,
    seed: int,
    measure_every: int,
    noisy: bool,
    overrides: dict[str, Any],
) -> Any:
    """Learn in a `GymnasiumWorld`: nothing is known of it but what the user tells."""
    import safedrift as sd
    from safedrift import _check
    from safedrift.cli import bars

    where = "in a Gymnasium environment, whose drift and gap nobody knows"
    if knowledge != "slater":
        _check.fail("--knowledge", f"slater {where}", knowledge)
    if mode != "practical":
        _check.fail("--mode", f"practical {where}", mode)
    if gamma is None:
        raise TypeError(f"--gamma must be given {where}; got None")
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(gamma), noisy=noisy, **overrides)
    with bars("learner.end") as shown:
        return sd.simulate(
            world, agent, seed, measure_every=measure_every,
            progress=shown.stage("learning", world.M),
        )  # fmt: skip
