"""A comparison as data: who is called better, who is not ranked, files, sentences, the page."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from safedrift.results.comparison import (
    Comparison,
    ComparisonManifest,
    LearnerEntry,
    WorldEntry,
)
from safedrift.results.scores import RunScore

SIZES = {"M": 100, "H": 5, "S": 4, "A": 3, "K": 1}


def comparison_of(scores, *, oracles=(), seeds=None, failed=(), **more):
    """A comparison written down by hand: learner -> strict scores (W, N)."""
    W, N = next(iter(scores.values())).shape
    seeds = list(range(N)) if seeds is None else seeds
    rows = []
    for i in range(W):
        for label, values in scores.items():
            for j, seed in enumerate(seeds):
                names = (f"{i}{label}{seed}", f"w{i}", label, seed)
                if (label, i, j) in failed:
                    rows.append(RunScore(*names, "failed", "ValueError: no"))
                    continue
                value = float(values[i, j])
                row = RunScore(*names, "done", "", value, 3 * value, value, 2 * value, 2 * value,
                               value, value, 0.0, uniform_loss=4.0, seconds_per_episode=1e-6,
                               settings={"told": ["Slater gap"], "chi": float("inf")},
                               curve_episodes=(0, 99),
                               curves={"positive_regret": (0.0, value),
                                       "positive_violation": (0.0, 1.0)})  # fmt: skip
                rows.append(row)
    manifest = ComparisonManifest(
        worlds=[WorldEntry(label=f"w{i}", sizes=SIZES) for i in range(W)],
        learners=[LearnerEntry(label=label, oracle=label in oracles) for label in scores],
        seeds=seeds,
        **more,
    )
    return Comparison(manifest, tuple(rows))


def synthetic(rng, differences, worlds=2, seeds=20):
    """Scores of learners that share most of their luck, each worse by a share of its own."""
    level = rng.uniform(0.3, 0.8, (worlds, 1))
    luck = 1 + 0.1 * rng.normal(size=(worlds, seeds))
    return {
        name: (1 + share) * level * luck * (1 + 0.03 * rng.normal(size=(worlds, seeds)))
        for name, share in differences.items()
    }


def statuses(comparison):
    return {entry.learner: entry.status for entry in comparison.ranking()}


def test_same_learner_twice_is_not_different():
    scores = synthetic(np.random.default_rng(0), {"one": 0})["one"]
    found = comparison_of({"one": scores, "two": scores.copy()})
    assert statuses(found) == {"one": "best", "two": "not different"}
    assert found.ranking()[1].p_value == 1
    assert {row["status"] for row in found.table()} == {"best", "not different"}
    assert "not significantly different from two" in found.verdict()


def test_equal_learners_are_rarely_called_different():
    """Also where the best of five is chosen after the fact, in the ranking and in each world."""
    rng = np.random.default_rng(1)
    names = dict.fromkeys("abcde", 0.0)
    wrong = in_world = 0
    for _ in range(50):
        found = comparison_of(synthetic(rng, names, worlds=1, seeds=10))
        wrong += "worse" in statuses(found).values()
        in_world += "worse" in found._standings_in("w0").values()
    assert wrong <= 7  # 50 * 0.05 = 2.5, and three standard deviations
    assert in_world <= 7


def test_planted_difference_of_five_percent_is_found_with_twenty_seeds():
    rng = np.random.default_rng(2)
    for _ in range(5):
        found = comparison_of(synthetic(rng, {"good": 0.0, "bad": 0.05}))
        assert statuses(found) == {"good": "best", "bad": "worse"}
        best = found.ranking()[0].score
        assert best.low < best.value < best.high
        assert found.verdict() == (
            f"good has the smallest strict score, {best.value:.4g} (95% interval {best.low:.4g} to "
            f"{best.high:.4g}), the interquartile mean over 2 worlds and 20 seeds; significantly "
            "better than bad."
        )


def test_figures_in_the_table_are_means_over_seeds():
    scores = synthetic(np.random.default_rng(3), {"a": 0, "b": 0.3}, worlds=3, seeds=5)
    for row in comparison_of(scores).table():
        values = scores[row["learner"]][int(row["world"][1:])]
        assert row["strict_score"].value == pytest.approx(values.mean(), abs=1e-14)
        assert row["regret"].value == pytest.approx(3 * values.mean(), abs=1e-14)
        assert row["runs"] == 5


def test_oracles_are_shown_and_never_win():
    scores = synthetic(np.random.default_rng(4), {"learner": 0, "worse": 0.5})
    found = comparison_of({"truth": 0 * scores["learner"], **scores}, oracles=("truth",))
    order = [(entry.learner, entry.place, entry.status) for entry in found.ranking()]
    assert order == [("learner", 1, "best"), ("worse", 2, "worse"), ("truth", None, "oracle")]
    assert found.verdict().startswith("learner has the smallest")


def test_learner_with_a_failed_run_is_not_ranked():
    scores = synthetic(np.random.default_rng(5), {"lucky": 0, "whole": 0.5})
    found = comparison_of(scores, failed={("lucky", 0, 3)})
    assert statuses(found) == {"whole": "not tested", "lucky": "not ranked: 1 of 40 runs failed"}
    assert any("lucky: 1 run without a result, the first in w0 with seed 3" in note
               for note in found.notes())  # fmt: skip
    everything = {("lucky", i, j) for i in range(2) for j in range(20)}
    found = comparison_of(scores, failed=everything | {("whole", 1, 1)})
    assert found.verdict() == "There is no winner: no learner has finished all of its runs."
    assert {row["status"] for row in found.table() if row["learner"] == "lucky"} == {"failed"}


def test_stopped_comparison_ranks_by_seeds_that_all_have():
    scores = synthetic(np.random.default_rng(6), {"a": 0, "b": 0.5}, seeds=6)
    whole = comparison_of(scores)
    kept = [row for row in whole.rows if row.seed < 4 or (row.seed == 4 and row.learner == "a")]
    found = Comparison(whole.manifest, tuple(kept))
    assert not found.complete
    assert found.ranked_seeds == 4
    np.testing.assert_array_equal(found.ranked_scores("b"), scores["b"][:, :4])
    assert "Incomplete: 6 of 24 runs are still missing." in found.notes()


def test_world_in_which_uniform_is_optimal_is_left_out_and_said():
    scores = synthetic(np.random.default_rng(7), {"a": 0, "b": 0.5})
    for values in scores.values():
        values[1] = np.nan
    found = comparison_of(scores)
    assert found.ranked_worlds == ("w0",)
    assert any("w1: the uniform policy loses nothing" in note for note in found.notes())
    assert "in w0" in found.verdict()


def test_one_seed_and_one_learner_are_said():
    found = comparison_of({"a": np.array([[0.5]]), "b": np.array([[0.6]])})
    assert statuses(found) == {"a": "best", "b": "not tested"}
    assert "0.5 (one seed: no interval)" in found.verdict()
    assert "too few runs for a test against b" in found.verdict()
    assert any(note.startswith("One seed") for note in found.notes())
    alone = comparison_of({"a": np.ones((1, 3))})
    assert alone.verdict().endswith("there is no other learner to compare it with.")


def test_parts_add_up_to_the_strict_score_and_profiles_are_of_all_runs():
    scores = synthetic(np.random.default_rng(9), {"a": 0, "b": 0.2})
    found = comparison_of(scores)
    parts = found.score_parts("a")
    np.testing.assert_allclose(parts.sum(axis=0), scores["a"].mean(axis=1))
    levels, profiles = found.profiles()
    for label, (share, _, _) in profiles.items():
        wanted = [(scores[label] <= level).mean() for level in levels]
        np.testing.assert_allclose(share, wanted, atol=1e-12)


# ---------------------------------------------------------------- files


def test_parquet_keeps_every_row(tmp_path):
    scores = synthetic(np.random.default_rng(10), {"a": 0, "b": 0.2}, seeds=3)
    found = comparison_of(scores, failed={("a", 0, 1)}, noisy=True, tune=4)
    again = Comparison.from_parquet(found.to_parquet(tmp_path / "c.parquet"))
    assert again.manifest == found.manifest
    for one, two in zip(found.rows, again.rows, strict=True):
        short = replace(two, curves=None, curve_episodes=())
        assert repr(short) == repr(replace(one, curves=None, curve_episodes=()))
        assert two.curve_episodes == one.curve_episodes
        for name in one.curves or ():
            np.testing.assert_allclose(two.curves[name], one.curves[name], rtol=1e-6)
    small = Comparison.from_parquet(found.to_parquet(tmp_path / "small.parquet", curves=False))
    assert all(row.curves is None for row in small.rows)
    assert repr(small.table()) == repr(found.table())


def test_other_files_are_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"must be a comparison written by Comparison\.to_parquet"):
        Comparison.from_parquet(tmp_path / "x.parquet")
    found = comparison_of({"a": np.ones((1, 2))})
    with pytest.raises(ValueError, match="path must be a file in an existing folder"):
        found.to_parquet(tmp_path / "nowhere" / "x.parquet")


def test_json_is_strict_and_complete(tmp_path):
    scores = synthetic(np.random.default_rng(11), {"a": 0, "b": 0.2}, seeds=3)
    found = comparison_of(scores, failed={("a", 0, 1)})
    text = found.to_json(tmp_path / "c.json")
    assert (tmp_path / "c.json").read_text() == text
    plain = json.loads(text, parse_constant=pytest.fail)
    assert plain["verdict"] == found.verdict()
    assert len(plain["rows"]) == 12
    assert [row["learner"] for row in plain["ranking"]] == ["b", "a"]
    assert plain["ranking"][1]["score"]["value"] is None
    assert plain["rows"][1]["error"] == "ValueError: no"
    assert set(plain["definitions"]) <= set(plain["table"][0])


# ---------------------------------------------------------------- the page


def test_page_shows_everything_and_loads_nothing(tmp_path):
    import safedrift  # noqa: F401 - attaches the page

    scores = synthetic(np.random.default_rng(12), {"a": 0, "<b>": 0.2, "uniform": 1}, seeds=3)
    found = comparison_of({**scores, "top": 0 * scores["a"]}, oracles=("top",))
    path = found.report(tmp_path / "new" / "page.html")
    text = path.read_text(encoding="utf-8")
    for title in ("Ranking", "Performance profiles", "Regret against violation", "w0", "w1"):
        assert f"<h2>{title}</h2>" in text
    assert "&lt;b&gt;" in text
    assert "<td><b></td>" not in text
    assert found.verdict().replace("<b>", "&lt;b&gt;") in text
    outside = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"(src|href)\s*=", outside)
    assert "default-src 'none'" in text


def test_page_of_a_comparison_without_results(tmp_path):
    import safedrift  # noqa: F401

    every = {("a", i, j) for i in range(2) for j in range(2)}
    found = comparison_of({"a": np.ones((2, 2))}, failed=every)
    assert "no winner" in found.report(tmp_path / "p.html").read_text(encoding="utf-8")
