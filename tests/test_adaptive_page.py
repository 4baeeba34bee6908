"""The page of scores in random worlds: what its script plays, counts and writes."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import safedrift as sd
from safedrift.experiments import evaluation
from safedrift.results.comparison import ComparisonManifest, LearnerEntry, WorldEntry
from safedrift.results.scores import RunScore

ROOT = Path(__file__).parents[1]
WORLDS = ("abrupt 1", "linear 1", "stationary 1")
SIZES = {"M": 9, "H": 3, "S": 4, "A": 2, "K": 1}


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("adaptive", ROOT / "studies" / "adaptive.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def comparison(scores):
    """Comparison of learners with given strict scores (W, N) each."""
    learners = [LearnerEntry(label=label) for label in scores]
    rows = [
        RunScore("key", world, label, seed, "done", strict_score=float(values[i][seed]))
        for i, world in enumerate(WORLDS)
        for label, values in scores.items()
        for seed in range(4)
        if not np.isnan(values[i][seed])
    ]
    worlds = [WorldEntry(label=label, sizes=SIZES) for label in WORLDS]
    manifest = ComparisonManifest(worlds=worlds, learners=learners, seeds=[0, 1, 2, 3])
    return sd.Comparison(manifest, tuple(rows))


def test_significant_differences_in_drifting_worlds_are_counted(study):
    luck = np.array([0.01, -0.01, 0.02, -0.02])
    own = 0.2 + np.stack([luck, luck, luck])
    rival = own + np.array([[0.1], [-0.1], [0.5]]) + 0.001 * luck[::-1]
    same = own + 0.01 * np.array([1, -1, -1, 1])
    same[1, 2] = np.nan  # a run that is missing
    found = comparison({"own": own, "rival": rival, "same": same})
    assert study.verdicts(found) == {
        "abrupt 1": {"rival": "better", "same": ""},
        "linear 1": {"rival": "worse"},
    }
    text = study.section(found, "exact")
    assert "| `rival` | 0.300 | 0.367 | 0.700 | 1 of 2 | 1 of 2 |" in text
    assert "| `same` | 0.200 | 0.200 | 0.200 | 0 of 1 | 0 of 1 |  | 1 worlds missing |" in text
    assert "better than each of 2 rivals in 0 of 2 drifting worlds" in text
    assert "| linear 1 | 4, 2, 3 | 0.200 | 0.180 | 0.220 | 0.100 `rival` |" in text
    alone = comparison({"own": own, "rival": own + 0.1 + 0.001 * luck[::-1]})
    assert "better than the rival in 2 of 2 drifting worlds" in study.sentence(alone)
    ours = comparison({"own": own, study.OURS[0]: rival})
    assert study.sentence(ours) == "No rival was played here.\n"


def test_script_plays_stores_and_writes(study, tmp_path, monkeypatch):
    monkeypatch.setattr(study, "MEASURE_EVERY", {"short": 5})
    monkeypatch.setitem(evaluation.EPISODES, "short", 20)
    given = ["--out", str(tmp_path), "--work", str(tmp_path / "work"), "--kinds", "short",
             "--worlds", "abrupt 2", "stationary 1", "--workers", "1"]  # fmt: skip
    study.main([*given, "--learners", "uniform", "opt-cmdp", "--seeds", "2"])
    path = tmp_path / "adaptive-scores.md"
    text = path.read_text(encoding="utf-8")
    assert text.count("| `uniform` | 1.000 | 1.000 | 1.000 |") == 2  # exact, Bernoulli
    path.unlink()
    study.main(["--out", str(tmp_path), "--page-only"])
    assert path.read_text(encoding="utf-8") == text
