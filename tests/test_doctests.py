"""The examples in docstrings run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import safedrift


def modules_with_examples():
    """All modules of the package whose docstrings contain examples, by name."""
    found = {}
    names = [module.name for module in pkgutil.walk_packages(safedrift.__path__, "safedrift.")]
    for name in ["safedrift", *names]:
        if name.endswith("__main__"):
            continue
        module = importlib.import_module(name)
        tests = doctest.DocTestFinder(exclude_empty=True).find(module)
        tests = [test for test in tests if test.examples]
        if tests:
            found[name] = tests
    return found


EXAMPLES = modules_with_examples()

WITH_EXAMPLES = (
    "TabularCMDP", "DriftingCMDP", "LinearKernelCMDP", "Slater", "LocalBudgets", "Sizes", "Budgets",
    "from_gymnasium", "from_costs", "PROPDPPO", "Run", "Trajectory", "simulate", "check_learner",
    "solve", "optima", "evaluate", "budgets", "variation",
    "local_budgets", "describe", "problems.make", "theory.bounds", "drift.abrupt",
    "drift.alternating", "drift.bursts", "drift.linear", "drift.periodic", "drift.random_walk",
    "drift.stationary",
)  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_of_a_module(name):
    report = []
    runner = doctest.DocTestRunner()
    for test in EXAMPLES[name]:
        runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_public_names_have_examples(name):
    value = safedrift
    for part in name.split("."):
        value = getattr(value, part)
    assert ">>>" in value.__doc__
