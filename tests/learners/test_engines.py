"""Learners refuse features and boxes that are not theirs, in one sentence."""

import re
from dataclasses import replace

import numpy as np
import pytest

import safedrift as sd
from builders import box_world, small_world


def parts(world, **overrides):
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.4), **overrides)
    return agent.sizes, agent.parameters, sd.Slater(0.4)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"A": 7}, "rows of features.psi must be S*A = 28 or H*S*A = 84; got 36"),
     ({"H": 2}, "rows of features.psi must be S*A = 12 or H*S*A = 24; got 36")],
)  # fmt: skip
def test_features_of_other_sizes_are_refused(change, message):
    world = small_world(M=20).as_linear_kernel()
    sizes, parameters, told = parts(world)
    with pytest.raises(ValueError, match="^" + re.escape(message) + "$"):
        sd.PROPDPPO(
            sizes._replace(**change), world.initial, parameters, told, features=world.features
        )


def test_reward_features_of_other_steps_are_refused():
    world = small_world(M=20).as_linear_kernel()
    sizes, parameters, told = parts(world)
    broken = world.features._replace(phi=world.features.phi[:2])
    with pytest.raises(ValueError, match=r"^features.phi must be of shape \(1 or 3, d2, S\*A = 12"):
        sd.PROPDPPO(sizes, world.initial, parameters, told, features=broken)


def test_a_box_needs_features_and_a_box_world_a_learner_with_a_box():
    world = box_world(M=5)
    sizes, parameters, told = parts(world)
    with pytest.raises(TypeError, match="features must be given with box"):
        sd.PROPDPPO(sizes, world.initial, parameters, told, box=world.box)
    blind = sd.PROPDPPO(sizes, world.initial, parameters, told, features=world.features)
    with pytest.raises(ValueError, match="made for this world's features"):
        sd.simulate(world, blind)


def test_counts_and_features_do_not_mix():
    table = small_world(M=20)
    world = table.as_linear_kernel()
    sizes, counting, told = parts(table)
    with pytest.raises(TypeError, match="LeastSquaresEvaluation"):
        sd.PROPDPPO(sizes, world.initial, counting, told, features=world.features)
    _, regressing, _ = parts(world)
    with pytest.raises(TypeError, match="CountEvaluation"):
        sd.PROPDPPO(sizes, world.initial, regressing, told)


def test_a_ridge_that_leaves_gram_matrices_singular_is_refused():
    world = small_world(M=20).as_linear_kernel()
    with pytest.raises(ValueError, match=r"^lam must be >= 1e-12"):
        parts(world, lam=1e-13)


def test_the_smallest_ridge_gives_finite_estimates():
    world = small_world(M=300).as_linear_kernel()
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.4), lam=1e-12, W=300, L=100)
    run = sd.simulate(world, agent)
    assert np.isfinite(run.trace["estimated_reward"]).all()
    assert np.isfinite(run.learner.memory.window.residual[0])


def test_constants_of_other_sizes_are_refused():
    world = small_world(M=20).as_linear_kernel()
    sizes, parameters, told = parts(world)
    part = parameters.evaluation
    longer = replace(
        part, beta=np.zeros(4), beta_r=np.zeros(4), LV=np.zeros((1, 1, 4)),
        window_drift_P=np.zeros((1, 4)), window_drift_g=np.zeros((1, 1, 4)),
    )  # fmt: skip
    for changed in (replace(part, W=7), longer):  # 3 blocks of 7 episodes; 4 steps instead of 3
        with pytest.raises(ValueError, match=r"^(LV|beta) must be of shape"):
            sd.PROPDPPO(
                sizes, world.initial, replace(parameters, evaluation=changed), told,
                features=world.features,
            )  # fmt: skip


def test_a_step_size_of_zero_is_told_beside_other_notes():
    world = small_world(M=40, drift="stationary")
    zero = sd.Budgets(0, 0, 0, 0)
    agent = sd.PROPDPPO.for_problem(world, sd.Slater(0.4), mode="printed", budgets=zero)
    notes = sd.simulate(world, agent).notes()
    assert len(notes) > 1
    assert any(note.startswith("alpha is 0") for note in notes)
