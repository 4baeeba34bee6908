"""A world written by hand in YAML: it is the world that was meant, and each fault is named."""

import inspect
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import safedrift as sd
from builders import dense_weights
from safedrift.cli import app
from safedrift.worldfiles import yaml_text, yaml_worlds
from safedrift.worldfiles.loading import is_file, load

GUIDE = Path(__file__).parents[2] / "docs" / "your-own-world.md"

MACHINE = """\
horizon: 3
states: [cool, hot]
actions: [rest, work]
constraints: [spared, tidy]
start: cool
episodes: 40
drift: {kind: periodic, period: 10}
thresholds: {spared: 1.5, tidy: 1}
scenarios:
  winter:
    transitions:
      cool: {rest: cool, work: {cool: 0.8, hot: 0.2}}
      hot: {rest: cool, work: hot}
    rewards: {cool: {rest: 0, work: 0.6}, hot: {rest: 0, work: 1}}
    utilities:
      spared: {cool: 1, hot: 0}
      tidy: 0.5
  summer:
    like: winter
    transitions: {cool: {work: {cool: 0.4, hot: 0.6}}}
    rewards: {hot: {work: 0.9}}
"""


def loaded(folder, text, episodes=None, name="machine.yaml"):
    (folder / name).write_text(text, encoding="utf-8")
    return load(str(folder / name), episodes)


def changed(*pairs):
    """The machine's file with some pieces of text replaced by others."""
    text = MACHINE
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    return text


def weights_of(world):
    return dense_weights(world.transition_path, len(world.scenarios))


def command(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


# ---------------------------------------------------------------- what is written is what is meant


def test_the_machine_is_what_its_file_says(tmp_path):
    world = loaded(tmp_path, MACHINE)
    assert world.name == "machine.yaml"
    assert (world.M, world.H, world.S, world.A, world.K) == (40, 3, 2, 2, 2)
    winter, summer = world.scenarios
    P = winter.dense_transitions()
    for h in range(3):
        np.testing.assert_array_equal(P[h, 0], [[1, 0], [0.8, 0.2]])
        np.testing.assert_array_equal(P[h, 1], [[1, 0], [0, 1]])
        np.testing.assert_array_equal(winter.rewards[h], [[0, 0.6], [0, 1]])
        np.testing.assert_array_equal(winter.utilities[0, h], [[1, 1], [0, 0]])
        np.testing.assert_array_equal(winter.utilities[1, h], np.full((2, 2), 0.5))
        np.testing.assert_array_equal(summer.dense_transitions()[h, 0], [[1, 0], [0.4, 0.6]])
        np.testing.assert_array_equal(summer.dense_transitions()[h, 1], P[h, 1])
        np.testing.assert_array_equal(summer.rewards[h], [[0, 0.6], [0, 0.9]])
    np.testing.assert_array_equal(summer.utilities, winter.utilities)
    np.testing.assert_array_equal(world.initial, [1, 0])
    np.testing.assert_array_equal(world.thresholds, np.tile([1.5, 1.0], (40, 1)))
    np.testing.assert_allclose(weights_of(world), sd.drift.periodic(40, 2, 10), atol=1e-15)


def test_one_constraint_needs_no_name(tmp_path):
    text = changed(
        ("constraints: [spared, tidy]\n", ""), ("{spared: 1.5, tidy: 1}", "1.5"),
        ("\n      spared: {cool: 1, hot: 0}\n      tidy: 0.5", " {cool: 1, hot: 0}"),
    )  # fmt: skip
    world, named = loaded(tmp_path, text), loaded(tmp_path, MACHINE)
    np.testing.assert_array_equal(world.thresholds, named.thresholds[:, :1])
    for one, two in zip(world.scenarios, named.scenarios, strict=True):
        np.testing.assert_array_equal(one.utilities, two.utilities[:1])


def test_states_actions_and_constraints_may_be_numbers(tmp_path):
    text = """
horizon: 2
states: 3
actions: 2
constraints: 2
start: {0: 1/3, 2: 2/3}
episodes: 5
thresholds: {0: 0.5, 1: 1}
scenarios:
  only:
    transitions: {0: 1, 1: {0: 2, 1: {0: 1/3, 1: 1/3, 2: 1/3}}, 2: 0}
    rewards: 1e-3
    utilities: {0: 1, 1: {0: 1, 1: .5, 2: {0: 1, 1: 0}}}
"""
    world = loaded(tmp_path, text)
    np.testing.assert_array_equal(world.initial, [1 / 3, 0, 2 / 3])
    (only,) = world.scenarios
    P = only.dense_transitions()[1]
    np.testing.assert_array_equal(P[:, 0], np.eye(3)[[1, 2, 0]])
    np.testing.assert_array_equal(P[1, 1], [1 / 3, 1 / 3, 1 / 3])
    np.testing.assert_array_equal(only.rewards, np.full((2, 3, 2), 0.001))
    np.testing.assert_array_equal(only.utilities[1, 0], [[1, 1], [0.5, 0.5], [1, 0]])


def test_words_that_yaml_takes_for_something_else_are_names(tmp_path):
    states = ["on", "no", "null", "~", "2024-05-01", "1:30", "010", "1e3", "=", "<<"]
    text = f"""
horizon: 1
states: {states}
actions: [yes, off]
start: on
episodes: 3
thresholds: 1
scenarios:
  true: {{transitions: on, rewards: 0, utilities: 1}}
  false:
    like: true
    transitions:
""" + "".join(f"      {s}: {{yes: {s}, off: 010}}\n" for s in states)
    text = text.replace("'", "") + "drift: {kind: stationary, scenario: false}\n"
    world = loaded(tmp_path, text)
    P = world.scenarios[1].dense_transitions()[0]
    np.testing.assert_array_equal(P[:, 0], np.eye(10))
    np.testing.assert_array_equal(P[:, 1].argmax(axis=1), np.full(10, 6))
    np.testing.assert_array_equal(weights_of(world), [[0, 1]] * 3)


def test_a_table_may_have_one_entry_per_step(tmp_path):
    text = changed(
        ("tidy: 0.5", "tidy: [0.1, {cool: 0.2, hot: 0.3}, 0.4]"),
        ("rewards: {hot: {work: 0.9}}", "rewards: [{}, {hot: 0.7}, 0.8]"),
        ("    like: winter\n", "    like: winter\n    utilities: {tidy: {hot: 0.9}}\n"),
    )
    winter, summer = loaded(tmp_path, text).scenarios
    np.testing.assert_array_equal(winter.utilities[1, :, 0, 0], [0.1, 0.2, 0.4])
    np.testing.assert_array_equal(winter.utilities[1, :, 1, 1], [0.1, 0.3, 0.4])
    np.testing.assert_array_equal(summer.utilities[1, :, 0, 0], [0.1, 0.2, 0.4])
    np.testing.assert_array_equal(summer.utilities[1, :, 1, 1], [0.9, 0.9, 0.9])
    np.testing.assert_array_equal(summer.rewards[0], winter.rewards[0])
    np.testing.assert_array_equal(summer.rewards[1], [[0, 0.6], [0.7, 0.7]])
    np.testing.assert_array_equal(summer.rewards[2], np.full((2, 2), 0.8))


def test_thresholds_may_glide_or_belong_to_the_scenarios(tmp_path):
    world = loaded(tmp_path, changed(("spared: 1.5", "spared: {from: 1, to: 3}")))
    np.testing.assert_array_equal(world.thresholds[:, 0], np.linspace(1, 3, 40))
    np.testing.assert_array_equal(world.thresholds[:, 1], np.ones(40))
    text = changed(
        ("thresholds: {spared: 1.5, tidy: 1}\n", ""),
        ("  winter:\n", "  winter:\n    thresholds: {spared: 1.5, tidy: 1}\n"),
        ("    like: winter\n", "    like: winter\n    thresholds: {spared: 0.5, tidy: 1}\n"),
    )
    world = loaded(tmp_path, text)
    mixed = weights_of(world) @ [[1.5, 1], [0.5, 1]]
    np.testing.assert_allclose(world.thresholds, mixed, atol=1e-14)


@pytest.mark.parametrize(
    ("drift", "weights"),
    [
        ("linear", sd.drift.linear(40, 2)),
        ("{kind: linear}", sd.drift.linear(40, 2)),
        ("{kind: abrupt, switches: 3, seed: 5}", sd.drift.abrupt(40, 2, 3, 5)),
        ("{kind: abrupt, switches: [7, 30]}", sd.drift.abrupt(40, 2, [7, 30])),
        ("{kind: periodic, period: 12.5, phase: 0.5}", sd.drift.periodic(40, 2, 12.5, 0.5)),
        ("{kind: random_walk, step: 1e-1, seed: 4}", sd.drift.random_walk(40, 2, 0.1, 4)),
        ("{kind: bursts, count: 2, length: 4, seed: 1}", sd.drift.bursts(40, 2, 2, 4, 1)),
        ("{kind: alternating, every: 3}", sd.drift.alternating(40, 2, 3)),
        ("{kind: stationary, scenario: summer}", sd.drift.stationary(40, 2, 1)),
    ],
)
def test_every_kind_of_drift_is_the_builder_of_that_name(tmp_path, drift, weights):
    world = loaded(tmp_path, changed(("{kind: periodic, period: 10}", drift)))
    np.testing.assert_allclose(weights_of(world), weights, atol=1e-15)


def test_every_builder_of_drift_is_known(tmp_path):
    for kind in sd.drift.__all__:
        assert loaded(tmp_path, changed(("{kind: periodic, period: 10}", kind))).M == 40


def test_the_number_of_episodes_is_the_callers_the_files_or_20000(tmp_path):
    assert loaded(tmp_path, MACHINE, 7).M == 7
    assert loaded(tmp_path, MACHINE).M == 40
    assert loaded(tmp_path, changed(("episodes: 40\n", ""))).M == 20_000
    assert loaded(tmp_path, changed(("episodes: 40\n", "")), 7).M == 7


# ---------------------------------------------------------------- any world, written and read again

NAMES = st.lists(
    st.one_of(
        st.sampled_from(["yes", "no", "on", "null", "~", "1", "0x1F", "1e3", "2024-05-01", "like"]),
        st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(str.isprintable),
    ),
    min_size=1, max_size=3, unique=True,
)  # fmt: skip


def rows(rng, *shape):
    """Distributions, some of them sure."""
    P = rng.dirichlet(np.ones(shape[-1]), shape[:-1])
    sure = rng.random(shape[:-1]) < 0.3
    P[sure] = np.eye(shape[-1])[rng.integers(0, shape[-1], int(sure.sum()))]
    return P


def by_name(table, names, *more):
    """A nested mapping from names to the cells of an array."""
    if not more:
        return {name: float(value) for name, value in zip(names, table, strict=True)}
    return {name: by_name(part, *more) for name, part in zip(names, table, strict=True)}


def as_sure(row, states):
    return states[int(np.argmax(row))] if row.max() == 1 else by_name(row, states)


@given(NAMES, NAMES, NAMES, NAMES, st.integers(0, 2**32), st.booleans())
@settings(deadline=None, max_examples=60)
def test_any_world_can_be_written_and_read(
    tmp_path_factory, states, actions, aims, names, seed, steps
):
    rng = np.random.default_rng(seed)
    H, M = int(rng.integers(1, 4)), int(rng.integers(2, 9))
    S, A, K, N = len(states), len(actions), len(aims), len(names)
    each = H if steps else 1  # tables by step, or one for all steps
    P, r, g = (
        rows(rng, N, each, S, A, S),
        rng.random((N, each, S, A)),
        rng.random((N, K, each, S, A)),
    )
    b, start = H * (1 - rng.random(K)), rows(rng, S)
    weights = sd.drift.random_walk(M, N, 0.3, seed % 97)

    def listed(tables):
        return tables if steps else tables[0]

    text = yaml.safe_dump(
        {
            "horizon": H, "states": states, "actions": actions, "constraints": aims, "episodes": M,
            "start": as_sure(start, states), "thresholds": by_name(b, aims),
            "drift": {"kind": "random_walk", "step": 0.3, "seed": seed % 97},
            "scenarios": {
                name: {
                    "transitions": listed([
                        {s: {a: as_sure(P[n, h, i, j], states) for j, a in enumerate(actions)}
                         for i, s in enumerate(states)}
                        for h in range(each)
                    ]),
                    "rewards": listed([by_name(r[n, h], states, actions) for h in range(each)]),
                    "utilities": {
                        aim: listed([by_name(g[n, k, h], states, actions) for h in range(each)])
                        for k, aim in enumerate(aims)
                    },
                }
                for n, name in enumerate(names)
            },
        },
        allow_unicode=bool(seed % 2), sort_keys=bool(seed % 3),
        default_flow_style=None if seed % 5 else False,
    )  # fmt: skip
    order = sorted(range(N), key=lambda n: names[n]) if seed % 3 else range(N)
    world = loaded(tmp_path_factory.mktemp("yaml"), text)
    assert (world.M, world.H, world.S, world.A, world.K) == (M, H, S, A, K)
    np.testing.assert_array_equal(world.initial, start)
    np.testing.assert_array_equal(world.thresholds, np.tile(b, (M, 1)))
    np.testing.assert_allclose(weights_of(world), weights, atol=1e-15)
    for n, cmdp in zip(order, world.scenarios, strict=True):
        np.testing.assert_array_equal(cmdp.dense_transitions(), np.broadcast_to(P[n], (H, S, A, S)))
        np.testing.assert_array_equal(cmdp.rewards, np.broadcast_to(r[n], (H, S, A)))
        np.testing.assert_array_equal(cmdp.utilities, np.broadcast_to(g[n], (K, H, S, A)))


# ---------------------------------------------------------------- faults

KINDS = "abrupt, alternating, bursts, linear, periodic, random_walk, stationary"
TOP = ", ".join(yaml_worlds.KEYS)
BODY = "like, transitions, rewards, utilities, thresholds"
TRANSITIONS = "cool: {rest: cool, work: {cool: 0.8, hot: 0.2}}"
# what is replaced, by what, and the sentence; FILE stands for the path
BROKEN = [
    ("horizon: 3\n", "",
     "FILE must be a mapping with the keys horizon, states, actions, start, scenarios; got one"
     " without horizon"),
    ("start: cool\n", "", "start, scenarios; got one without start"),
    ("horizon: 3", "horizon: three",
     "horizon in FILE must be an integer in [1, 10000]; got 'three'"),
    ("horizon: 3", "horizon: 0", "horizon in FILE must be an integer in [1, 10000]; got 0"),
    ("horizon: 3", "horizon: 2.5", "horizon in FILE must be an integer in [1, 10000]; got 2.5"),
    ("horizon: 3", "horizon:", "horizon in FILE must be an integer in [1, 10000]; got nothing"),
    ("horizon: 3", "horizont: 3",
     f"FILE must be a mapping with the keys {TOP}; got the key 'horizont'"),
    ("episodes: 40", "episodes: 4e1", "episodes in FILE must be an integer >= 1; got 4e1"),
    ("[cool, hot]", "[cool, cool]",
     "states[1] in FILE must be a name that was not given before; got 'cool'"),
    ("[cool, hot]", "[]",
     "states in FILE must be a list of 1 to 10000 names, or how many; got a list of 0"),
    ("[cool, hot]", "{cool: 1}",
     "states in FILE must be a list of 1 to 10000 names, or how many; got a mapping with "
     "'cool'"),
    ("[cool, hot]", "cool",
     "states in FILE must be a list of names or an integer in [1, 10000]; got 'cool'"),
    ("[cool, hot]", "999999999",
     "states in FILE must be a list of names or an integer in [1, 10000]; got 999999999"),
    ("[rest, work]", "[rest, [work]]", "actions[1] in FILE must be a name; got a list of 1"),
    ("[rest, work]", "[rest, '']", "actions[1] in FILE must be a name; got nothing"),
    ("start: cool", "start: warm", "start in FILE must be a state (cool, hot); got 'warm'"),
    ("start: cool", "start: {cool: 0.5, hot: 0.4}",
     "start in FILE must be a distribution (sum 1); got the sum 0.9"),
    ("kind: periodic", "kind: seasons",
     f"drift.kind in FILE must be a kind of drift ({KINDS}); got 'seasons'"),
    ("kind: periodic, ", "",
     "drift in FILE must be a kind of drift, or a mapping with the key kind; got a mapping "
     "with 'period'"),
    ("period: 10", "every: 10",
     "drift in FILE must be a mapping with the keys of periodic: kind, period, phase; got the "
     "key 'every'"),
    ("period: 10", "period: -1", "drift in FILE: period must be > 0; got -1"),
    ("period: 10", "period: long", "drift.period in FILE must be a number; got 'long'"),
    ("kind: periodic, period: 10", "kind: abrupt, switches: [40]",
     "drift in FILE: switches must be in [1, 39]; got 40 at index 0"),
    ("kind: periodic, period: 10", "kind: stationary, scenario: autumn",
     "drift.scenario in FILE must be a scenario (winter, summer); got 'autumn'"),
    ("drift: {kind: periodic, period: 10}\n", "",
     "drift in FILE must be given where there are several scenarios; got nothing"),
    ("spared: 1.5", "spared: 3.5", "thresholds.spared in FILE must be a number in (0, 3]; got 3.5"),
    ("spared: 1.5", "spared: 0", "thresholds.spared in FILE must be a number in (0, 3]; got 0"),
    ("spared: 1.5", "spared: {from: 1}",
     "thresholds.spared in FILE must be a mapping with the keys from, to; got one without to"),
    ("{spared: 1.5, tidy: 1}", "{spared: 1.5}",
     "thresholds in FILE must be a mapping with the constraints spared, tidy; got one without "
     "tidy"),
    ("{spared: 1.5, tidy: 1}", "1.5",
     "thresholds in FILE must be a mapping with the constraints spared, tidy; got 1.5"),
    ("thresholds: {spared: 1.5, tidy: 1}\n", "",
     "thresholds in FILE must be given either beside the scenarios or in every scenario; got "
     "neither for winter"),
    ("like: winter", "like: winter\n    thresholds: {spared: 1, tidy: 1}",
     "thresholds in FILE must be given either beside the scenarios or in every scenario; got "
     "both for summer"),
    ("like: winter", "like: summer",
     "scenarios.summer.like in FILE must be a scenario written above (winter); got 'summer'"),
    ("  winter:\n", "  winter:\n    like: summer\n",
     "scenarios.winter.like in FILE must be a scenario written above (there is none); got "
     "'summer'"),
    ("    like: winter\n", "",
     "scenarios.summer in FILE must be a mapping with the keys transitions, rewards, "
     "utilities; got one without utilities"),
    ("like: winter", "alike: winter",
     f"scenarios.summer in FILE must be a mapping with the keys {BODY}; got the key 'alike'"),
    (MACHINE[MACHINE.index('  winter:'):], "",
     "scenarios in FILE must be a mapping from names to scenarios; got nothing"),
    ("hot: 0.2}", "hot: 0.1}",
     "scenarios.winter.transitions.cool.work in FILE must be a distribution (sum 1); got the "
     "sum 0.9"),
    ("hot: 0.2}", "hot: -0.2}",
     "scenarios.winter.transitions.cool.work.hot in FILE must be a number in [0, 1]; got -0.2"),
    ("hot: 0.2}", "hot: nan}",
     "scenarios.winter.transitions.cool.work.hot in FILE must be a number in [0, 1]; got nan"),
    ("hot: 0.2}", "hot: 1/0}",
     "scenarios.winter.transitions.cool.work.hot in FILE must be a number in [0, 1]; got '1/0'"),
    ("hot: 0.2}", "warm: 0.2}",
     "scenarios.winter.transitions.cool.work in FILE must be a mapping with the states cool, "
     "hot; got the key 'warm'"),
    ("{rest: cool, work: hot}", "{rest: cool, work: warm}",
     "scenarios.winter.transitions.hot.work in FILE must be a state (cool, hot); got 'warm'"),
    ("{rest: cool, work: hot}", "{rest: cool, walk: hot}",
     "scenarios.winter.transitions.hot in FILE must be a mapping with the actions rest, work; "
     "got the key 'walk'"),
    ("{rest: cool, work: hot}", "{rest: cool}",
     "scenarios.winter.transitions.hot.work in FILE must be given; got nothing"),
    (TRANSITIONS, "cool: {cool: 0.8, hot: 0.2}",
     "scenarios.winter.transitions.cool in FILE must be a mapping with the actions rest, work;"
     " got the key 'cool'"),
    ("hot: {rest: 0, work: 1}}", "hot: {rest: 0, work: 1.5}}",
     "scenarios.winter.rewards.hot.work in FILE must be a number in [0, 1]; got 1.5"),
    ("hot: {rest: 0, work: 1}}", "hot: {rest: {cool: 1}}}",
     "scenarios.winter.rewards.hot.rest in FILE must be a number in [0, 1]; got a mapping with"
     " 'cool'"),
    ("hot: {rest: 0, work: 1}}", "}",
     "scenarios.winter.rewards.hot.rest in FILE must be given; got nothing"),
    ("rewards: {hot: {work: 0.9}}", "rewards: [0.5, 0.5]",
     "scenarios.summer.rewards in FILE must be a list of 3 tables, one per step; got a list of"
     " 2"),
    ("tidy: 0.5", "tidy: [0, {cool: 0}, 0]",
     "scenarios.winter.utilities.tidy[1].hot.rest in FILE must be given; got nothing"),
    ("tidy: 0.5", "clean: 0.5",
     "scenarios.winter.utilities in FILE must be a mapping with the constraints spared, tidy; "
     "got the key 'clean'"),
    ("      tidy: 0.5\n", "",
     "scenarios.winter.utilities in FILE must be a mapping with the constraints spared, tidy; "
     "got one without tidy"),
    ("horizon: 3", "horizon: 10000\nactors: 1",
     f"FILE must be a mapping with the keys {TOP}; got the key 'actors'"),
    ("states: [cool, hot]\nactions: [rest, work]\nconstraints: [spared, tidy]\nstart: cool",
     "states: 900\nactions: 9\nstart: 0",
     "scenarios in FILE must be small enough for 5,000,000 numbers in all tables; got 2 "
     "scenarios with H = 3, S = 900, A = 9"),
    # the form of the file
    ("tidy: 0.5\n", "tidy: 0.5\n      spared: 1\n",
     "scenarios.winter.utilities.spared in FILE must be given once; got it again in line 18"),
    ("cool: {rest: 0, work: 0.6}", "cool: {rest: 0, work: 0.6, rest: 1}",
     "scenarios.winter.rewards.cool.rest in FILE must be given once; got it again in line 14"),
    ("    like: winter\n", "\tlike: winter\n",
     "line 19 of FILE must be indented with spaces; got a tab"),
    ("[cool, hot]", "[cool, hot",
     "line 3 of FILE must be YAML; got this: while parsing a flow sequence expected ',' or "
     "']', but got ':'"),
    ("horizon: 3", "horizon: 3: 4",
     "line 1 of FILE must be YAML; got this: mapping values are not allowed here"),
    ("like: winter", "like: winter\n---\na: 1",
     "expected a single document in the stream but found another document"),
    ("horizon: 3", "horizon: !!python/object/apply:os.system [ls]",
     "horizon in FILE must be written without tags; got '!!python/object/apply:os.system'"),
    ("horizon: 3", "horizon: !!int 3", "horizon in FILE must be written without tags"),
    ("horizon: 3", "? [horizon]\n: 3",
     "FILE must be a mapping with words of at most 100 characters as keys; got another in line"
     " 1"),
    ("horizon: 3", "a: &a [1]\nhorizon: *a",
     "line 2 of FILE must be written without aliases, like copies a scenario; got *a"),
    ("horizon: 3", 'horizon: ' + '[' * 50 + ']' * 50,
     "line 1 of FILE must be nested at most 16 levels deep; got a deeper one"),
    ("horizon: 3", "horizon: \x00", "FILE must be YAML; got unacceptable character #x0000"),
    (MACHINE, "", "FILE must be a mapping; got an empty file"),
    (MACHINE, "- 1\n- 2", f"FILE must be a mapping with the keys {TOP}; got a list of 2"),
    (MACHINE, '# ' + 'x' * 1000000,
     "FILE must be a YAML file of at most 1,000,000 bytes (or an .npz); got a larger one"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "sentence"), BROKEN, ids=range(len(BROKEN)))
def test_each_fault_is_one_sentence_with_file_place_value_and_what_is_allowed(
    tmp_path, old, new, sentence
):
    with pytest.raises((ValueError, TypeError)) as caught:
        loaded(tmp_path, changed((old, new)))
    said = str(caught.value)
    expected = sentence.replace("FILE", str(tmp_path / "machine.yaml"))
    assert expected in said
    if sentence.startswith(("FILE", "line")) or " in FILE" in sentence:
        assert said.startswith(expected)
    assert "\n" not in said
    assert str(tmp_path / "machine.yaml") in said


def test_bytes_that_are_no_text_are_told(tmp_path):
    path = tmp_path / "machine.yaml"
    path.write_bytes(MACHINE.encode().replace(b"cool", b"k\xfchl"))
    with pytest.raises(ValueError, match="must be text in UTF-8; got another byte at index 21"):
        load(str(path))
    path.write_bytes(b"\xef\xbb\xbf" + MACHINE.encode())  # a mark that some editors write
    assert load(str(path)).M == 40


def test_the_loader_is_the_safe_one():
    assert issubclass(yaml_text._Loader, yaml.SafeLoader)


def test_an_alias_bomb_and_deep_nesting_are_refused_before_they_grow(tmp_path):
    bomb = "a: &a [x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    )
    with pytest.raises(ValueError, match=r"line 2 of .* must be written without aliases"):
        loaded(tmp_path, bomb)
    with pytest.raises(ValueError, match="must be nested at most 16 levels deep"):
        loaded(tmp_path, "a: " + "{a: " * 30_000)
    with pytest.raises(ValueError, match="must be nested at most 16 levels deep"):
        loaded(tmp_path, "\n".join(" " * n + "a:" for n in range(500)))


# ---------------------------------------------------------------- the command and the guide


@pytest.mark.parametrize("place", range(0, len(BROKEN), 12))
def test_the_command_prints_one_sentence_and_no_traceback(tmp_path, place):
    old, new, sentence = BROKEN[place]
    path = tmp_path / "machine.yaml"
    path.write_text(changed((old, new)), encoding="utf-8")
    done = command("run", path, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("safedrift: ")
    assert done.stderr.count("\n") == 1
    assert sentence.replace("FILE", str(path)) in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_there_is_told(tmp_path):
    done = command("run", tmp_path / "nothing.yml", "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "the name of a world or an existing file" in done.stderr


def test_a_threshold_that_cannot_be_reached_is_told(tmp_path):
    path = tmp_path / "machine.yaml"
    path.write_text(changed(("tidy: 1}", "tidy: 2}")), encoding="utf-8")
    done = command("run", path, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "every episode must be feasible" in done.stderr


def test_a_good_file_runs_and_its_run_is_certified_with_the_world_at_hand(tmp_path):
    path = tmp_path / "machine.yml"
    path.write_text(MACHINE, encoding="utf-8")
    done = command("run", path, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "machine.yml" in done.output
    run = sd.Run.from_parquet(tmp_path / "out" / "records.parquet")
    assert run.manifest.sizes.M == 40
    assert run.certify(load(str(path))).identities_hold
    done = command("run", path, "-n", 25, "--out", tmp_path / "short")
    assert done.exit_code == 0, done.output
    assert sd.Run.from_parquet(tmp_path / "short" / "records.parquet").manifest.sizes.M == 25
    done = command("certify", tmp_path / "short", "--world", path)
    assert done.exit_code == 0, done.output
    done = command("certify", tmp_path / "short", "--world", "maze")
    assert done.exit_code == 2
    assert "--world must be a file (.yaml, .npz or .py:make); got maze" in done.stderr


def test_a_stored_run_never_loads_the_file_it_was_played_in(tmp_path, monkeypatch):
    path = tmp_path / "machine.yaml"
    path.write_text(MACHINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert command("run", path, "--out", "out").exit_code == 0
    path.write_text("horizon: !!python/object/apply:os.system [ls]")
    assert command("report", "out").exit_code == 0
    done = command("certify", "out")
    assert done.exit_code == 2
    assert "world must be given to certify a stored run" in done.stderr


def test_yaml_is_a_file_by_both_endings():
    assert is_file("my_world.yaml")
    assert is_file("folder/my_world.yml")
    assert not is_file("yaml")


def test_the_file_of_the_guide_runs_as_written(tmp_path):
    text = GUIDE.read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    example = GUIDE.parents[1] / "examples" / "machine.yaml"
    assert example.read_text(encoding="utf-8") == block
    path = tmp_path / "my_world.yaml"
    path.write_text(block, encoding="utf-8")
    done = command("run", path, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    world = load(str(path))
    assert sd.Run.from_parquet(tmp_path / "out" / "records.parquet").manifest.sizes.M == world.M
    for key in (*yaml_worlds.KEYS, "like", *yaml_worlds.TABLES):
        assert f"| `{key}`" in text, key
    for kind in sd.drift.__all__:
        (told,) = re.findall(rf"^\| `{kind}` +\|(.*)$", text, re.MULTILINE)
        _, _, *arguments = inspect.signature(getattr(sd.drift, kind)).parameters
        assert re.findall("`([a-z]+)`", told) == arguments, kind
    (fault,) = re.findall(r"allowed:\n\n```\n(.*?)\n```", text, re.DOTALL)
    path.write_text(block.replace("work: 1}", "work: 1.5}"), encoding="utf-8")
    with pytest.raises(ValueError, match="must be") as caught:
        load(str(path))
    assert str(caught.value) == fault.replace("my_world.yaml", str(path))


def test_the_file_in_the_docstring_is_read(tmp_path):
    text = yaml_worlds.__doc__.partition("\n\n")[2].partition("\n\nA value")[0]
    world = loaded(tmp_path, textwrap.dedent(text))
    assert (world.M, world.H, world.S, world.A, world.K) == (2000, 6, 2, 2, 1)
