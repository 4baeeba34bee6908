"""`safedrift learners`."""

from typer.testing import CliRunner

from safedrift.cli import app
from safedrift.learners import LEARNERS


def test_every_learner_is_listed():
    result = CliRunner().invoke(app, ["learners"])
    assert result.exit_code == 0
    for name in LEARNERS:
        assert name in result.output


def test_one_learner_with_its_options():
    result = CliRunner().invoke(app, ["learners", "opt-cmdp"])
    assert result.exit_code == 0
    assert "2003.02189" in result.output
    assert "replan_every = 25" in result.output
    assert "window = chosen by the learner" in result.output


def test_unknown_learner():
    result = CliRunner().invoke(app, ["learners", "optcmdp"])
    assert result.exit_code == 2
    assert "did you mean 'opt-cmdp'?" in " ".join(result.output.split())
