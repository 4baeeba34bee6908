"""Callbacks: what they see, and that nothing depends on them."""

import struct

import numpy as np
import pytest

import safedrift as sd
from builders import small_world
from safedrift.experiments import playing
from safedrift.experiments.callbacks import TensorBoard


def agent_for(world):
    return sd.PROPDPPO.for_problem(world, sd.Slater(0.3), alpha=0.5, eta=0.2)


class Recorder(sd.Callback):
    def __init__(self):
        self.calls, self.rows = [], []

    def on_start(self, settings, done):
        self.calls.append(("start", settings.learner.name, done))

    def on_rows(self, rows):
        self.rows.append(rows)
        rows["reward"][:] = np.nan  # a callback may do what it likes with them

    def on_end(self, run):
        self.calls.append(("end", run.episodes.size))


@pytest.mark.parametrize("every", [1, 7])
def test_callbacks_see_every_measured_episode_once_and_change_nothing(every, monkeypatch):
    monkeypatch.setattr(playing, "_CHUNK", 5)
    world = small_world(60, K=2, drift="linear")
    plain = sd.simulate(world, agent_for(world), 3, measure_every=every)
    one, other = Recorder(), sd.Callback()
    run = sd.simulate(world, agent_for(world), 3, measure_every=every, callbacks=[one, other])
    for name, values in plain.columns().items():
        np.testing.assert_array_equal(values, run.columns()[name])
    seen = {name: np.concatenate([rows[name] for rows in one.rows]) for name in one.rows[0]}
    np.testing.assert_array_equal(seen["episodes"], run.episodes)
    np.testing.assert_array_equal(seen["regret"], run.regret)
    np.testing.assert_array_equal(seen["shortfall"], run.shortfall)
    np.testing.assert_array_equal(seen["trace.mu"], run.trace["mu"])
    assert one.calls == [("start", "propd-ppo", 0), ("end", run.episodes.size)]
    assert all(rows["episodes"].size for rows in one.rows)


def test_a_resumed_run_tells_how_many_were_done(tmp_path, monkeypatch):
    from safedrift.experiments.run_folder import RunFolder

    monkeypatch.setattr(playing, "_CHUNK", 10)
    world = small_world(60)

    class Stop(sd.Callback):
        def on_rows(self, rows):
            if rows["episodes"][-1] >= 29:
                raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        RunFolder(tmp_path / "a", checkpoint_seconds=0) as folder,
    ):
        sd.simulate(world, agent_for(world), 3, out=folder, callbacks=[Stop()])
    one = Recorder()
    sd.simulate(world, agent_for(world), 3, out=tmp_path / "a", resume=True, callbacks=[one])
    assert one.calls[0] == ("start", "propd-ppo", 30)
    assert one.rows[0]["episodes"][0] == 30


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("x", "callbacks must be a list of callbacks; got str"),
        (3, "callbacks must be a list of callbacks; got int"),
        ([print], r"callbacks\[0\] must have on_start \(see safedrift.Callback\); got builtin"),
        ([sd.Callback(), None], r"callbacks\[1\] must have on_start"),
    ],
    ids=["text", "number", "function", "none"],
)
def test_what_is_no_callback_is_refused(given, sentence):
    world = small_world(10)
    with pytest.raises(TypeError, match=sentence):
        sd.simulate(world, agent_for(world), callbacks=given)


def test_without_the_extra_a_sentence_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"pip install 'safedrift\[tensorboard\]'"):
        TensorBoard(tmp_path)


def scalars(path):
    """Tag, step and value of every scalar in an event file."""
    from tensorboardX.proto import event_pb2

    data, at = path.read_bytes(), 0
    while at < len(data):
        (length,) = struct.unpack("<Q", data[at : at + 8])
        event = event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
        for value in event.summary.value:
            yield value.tag, event.step, value.simple_value
        at += length + 16


def test_tensorboard_has_the_means_of_each_chunk_grouped_by_seed(tmp_path, monkeypatch):
    pytest.importorskip("tensorboardX")
    monkeypatch.setattr(playing, "_CHUNK", 20)
    world = small_world(60, K=2)
    world.name = "../<b>mine"
    for seed in (1, 2):
        run = sd.simulate(world, agent_for(world), seed, callbacks=[TensorBoard(tmp_path)])
    (group,) = tmp_path.iterdir()
    assert group.name == "_b_mine-propd-ppo"
    assert sorted(path.name for path in group.iterdir()) == ["seed-1", "seed-2"]
    (file,) = (group / "seed-2").iterdir()
    found = {(tag, step): value for tag, step, value in scalars(file)}
    assert found["regret", 39] == pytest.approx(run.regret[20:40].mean(), rel=1e-5)
    assert found["trace/mu/1", 59] == pytest.approx(run.trace["mu"][40:, 1].mean(), rel=1e-5)
    assert ("shortfall/0", 19) in found
