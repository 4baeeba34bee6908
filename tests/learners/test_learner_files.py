"""A learner saved, killed and loaded goes on with the same numbers; damaged files are refused."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import safedrift as sd
from safedrift.learners import array_files, files

SPEC = sd.ProblemSpec(H=3, S=6, A=3, K=2, initial=2)
BUILDS = {
    "planner": partial(sd.learners.make, "posterior-sampling", window=9, replan_every=4),
    "discounted": partial(sd.learners.make, "opt-cmdp", window=9, replan_every=4),
    "primal-dual": partial(sd.learners.make, "opt-primal-dual", window=9),
    "model-free": partial(sd.learners.make, "double-restart-triple-q", epoch=7, exploration=0.3),
    "propd-ppo": lambda spec: sd.PROPDPPO.for_problem(spec, sd.Slater(0.3), W=9, L=20),
    "told nothing": lambda spec: sd.PROPDPPO.for_problem(spec, None),
    "adaptive": partial(sd.learners.make, "opt-cmdp", forgetting="adaptive", replan_every=4),
}


def go_on(learner, episodes, seed=0):
    """Play episodes in a noisy world of one's own; returns all that can be seen of the learner."""
    rng = np.random.default_rng([seed, learner.episode])
    _, H, S, _, K = learner.sizes
    seen = []
    for _ in range(episodes):
        policy = np.array(learner.begin_episode(np.full(K, 1.0)))
        states = rng.integers(S, size=H)
        actions = [learner.act(h, int(s)) for h, s in enumerate(states)]
        learner.end_episode(sd.Trajectory(states, actions, rng.random(H), rng.random((K, H))))
        trace = [np.ravel(np.asarray(value, float)) for value in learner.trace().values()]
        seen.append(np.concatenate([policy.ravel(), actions, *trace]).tobytes())
    return seen


@pytest.mark.parametrize("name", BUILDS)
def test_loaded_at_random_moments_a_learner_continues_bit_for_bit(name, tmp_path):
    """Four moments for each kind of learner."""
    for moment in np.random.default_rng(list(name.encode())).integers(1, 60, 4):
        learner = BUILDS[name](SPEC)
        go_on(learner, int(moment))
        file = learner.save(tmp_path / "learner.npz")
        expected = go_on(learner, 25)
        other = BUILDS[name](SPEC)
        go_on(other, 3, seed=9)  # what it has learnt is replaced
        assert other.load(file) is other
        assert other.episode == moment
        assert go_on(other, 25) == expected
        assert os.listdir(tmp_path) == ["learner.npz"]


def test_a_learner_that_was_killed_continues_bit_for_bit(tmp_path):
    """A process saves after every episode until SIGKILL; whatever is there is a whole file."""
    code = """
        import sys
        from test_learner_files import BUILDS, SPEC, go_on
        learner = BUILDS["planner"](SPEC)
        while True:
            go_on(learner, 1)
            learner.save(sys.argv[1])
            print(learner.episode, flush=True)
    """
    file = tmp_path / "learner.npz"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(file)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        for _ in range(23):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    loaded = BUILDS["planner"](SPEC).load(file)
    assert loaded.episode >= 23
    whole = BUILDS["planner"](SPEC)
    for _ in range(loaded.episode):
        go_on(whole, 1)
    assert go_on(loaded, 20) == go_on(whole, 20)


def saved(tmp_path):
    learner = BUILDS["planner"](SPEC)
    go_on(learner, 30)
    return learner.save(tmp_path / "good.npz")


def test_every_damage_is_found(tmp_path):
    """200 flipped bytes or cut ends; the file is named and the learner stays as it was."""
    whole = saved(tmp_path).read_bytes()
    rng = np.random.default_rng(1)
    learner = BUILDS["planner"](SPEC)
    go_on(learner, 5)
    before = {name: values.tobytes() for name, values in learner.state().items()}
    bad = tmp_path / "bad.npz"
    cases = [("flip", int(x)) for x in rng.integers(len(whole), size=100)]
    cases += [("flip", len(whole) - 1 - i) for i in range(50)]
    cases += [("cut", int(x)) for x in rng.integers(len(whole), size=40)]
    cases += [("cut", len(whole) - 1 - i) for i in range(5)] + [("cut", i) for i in range(4)]
    cases += [("more", 1)]
    assert len(cases) == 200
    for kind, place in cases:
        data = bytearray(whole)
        if kind == "flip":
            data[place] ^= 1 << int(rng.integers(8))
        elif kind == "cut":
            del data[place:]
        else:
            data += b"\0"
        bad.write_bytes(data)
        with pytest.raises(ValueError, match=r"bad\.npz must be a whole file that save wrote"):
            learner.load(bad)
    assert {name: values.tobytes() for name, values in learner.state().items()} == before


def test_same_learner_same_bytes_and_readable_by_numpy(tmp_path):
    learner = BUILDS["propd-ppo"](SPEC)
    go_on(learner, 12)
    one = learner.save(tmp_path / "one.npz").read_bytes()
    assert one == sd.save_learner(learner, str(tmp_path / "two.npz")).read_bytes()
    with np.load(tmp_path / "one.npz", allow_pickle=False) as read:
        assert json.loads(read["header.json"])["episode"] == 12
        for name, values in learner.state().items():
            assert read[name].dtype == values.dtype
            np.testing.assert_array_equal(read[name], values)
    found = files.header(tmp_path / "one.npz")
    assert found["learner"] == "propd-ppo"
    assert found["safedrift"] == sd.__version__
    assert found["sizes"] == {"M": None, "H": 3, "S": 6, "A": 3, "K": 2}
    assert found["settings"]["parameters"]["improvement"]["L"] == 20


OTHERS = [
    ({"window": 10}, {}, "forgetting.W of the learner must be 9, as in .*good.npz; got 10"),
    ({"replan_every": 5}, {}, "replan_every of the learner must be 4, as in"),
    (
        {"forgetting": "never", "window": None},
        {},
        "forgetting.kind of the learner must be 'SlidingWindow'",
    ),
    ({}, {"S": 7}, "S of the learner must be 6, as in .*good.npz; got 7"),
    ({}, {"M": 50}, "M of the learner must be None, as in .*good.npz; got 50"),
    ({}, {"initial": 1}, "initial distribution of the learner must be '[0-9a-f]{16}', as in"),
    ({}, {"initial": None}, "initial distribution of the learner must be '[0-9a-f]{16}', as in"),
]


@pytest.mark.parametrize(("options", "sizes", "sentence"), OTHERS)
def test_a_learner_with_other_settings_is_refused(options, sizes, sentence, tmp_path):
    file = saved(tmp_path)
    spec = sd.ProblemSpec(**{"H": 3, "S": 6, "A": 3, "K": 2, "initial": 2} | sizes)
    chosen = {"window": 9, "replan_every": 4} | options
    learner = sd.learners.make("posterior-sampling", spec, **chosen)
    with pytest.raises(ValueError, match=sentence):
        learner.load(file)
    assert learner.episode == 0


def test_another_learner_is_refused(tmp_path):
    file = saved(tmp_path)
    with pytest.raises(ValueError, match="learner of the learner must be 'posterior-sampling'"):
        sd.learners.make("uniform", SPEC).load(file)


@pytest.mark.parametrize("name", BUILDS)
def test_within_an_episode_nothing_is_saved(name, tmp_path):
    learner = BUILDS[name](SPEC)
    learner.begin_episode([1.0, 1.0])
    with pytest.raises(RuntimeError, match="within an episode; call end_episode first"):
        learner.save(tmp_path / "learner.npz")
    assert not list(tmp_path.iterdir())


def test_a_failed_save_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    file = saved(tmp_path)
    before = file.read_bytes()
    learner = BUILDS["planner"](SPEC)
    monkeypatch.setattr(array_files.os, "fsync", lambda number: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        learner.save(file)
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["good.npz"]


def test_folders_and_missing_files(tmp_path):
    learner = BUILDS["planner"](SPEC)
    for place in (tmp_path, tmp_path / "no" / "learner.npz"):
        with pytest.raises(ValueError, match="file must be a file in an existing folder; got"):
            learner.save(place)
    with pytest.raises(FileNotFoundError, match=r"none\.npz"):
        learner.load(tmp_path / "none.npz")


# ---------------------------------------------------------------- files with a right checksum


class Own:
    """A learner of somebody else, with the least that the protocol asks for."""

    name = "own"

    def __init__(self, state):
        self.sizes, self.kept, self.fails = sd.Sizes(None, 1, 1, 1, 1), state, False

    def settings(self):
        return {"rate": 0.1}

    def state(self):
        return self.kept

    def restore(self, state):
        if self.fails:
            self.fails = False
            raise KeyError("rate")
        self.kept = dict(state)


def test_any_learner_of_the_protocol_can_be_saved(tmp_path):
    shapes = {
        "number": np.array(3), "none": np.zeros((2, 0)), "big": np.arange(4, dtype=">i8"),
        "across": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "nan": np.array([np.nan, -0.0]),
        "text": np.array(["a", "bc"]), "flags": np.array([True, False]),
        "words": np.uint64([2**64 - 1]),
    }  # fmt: skip
    file = sd.save_learner(Own(shapes), tmp_path / "own.npz")
    loaded = sd.load_learner(Own({}), file).kept
    assert loaded.keys() == shapes.keys()
    for name, values in shapes.items():
        assert (loaded[name].dtype, loaded[name].shape) == (values.dtype, values.shape)
        assert loaded[name].tobytes() == values.tobytes()
        assert loaded[name].flags.writeable
    with pytest.raises(TypeError, match="things must be an array of numbers; got object"):
        sd.save_learner(Own({"things": np.array([{}])}), file)
    assert sd.load_learner(Own({}), file).kept.keys() == shapes.keys()


def test_a_state_that_cannot_be_restored_leaves_the_learner_as_it_was(tmp_path):
    file = sd.save_learner(Own({"x": np.zeros(2)}), tmp_path / "own.npz")
    learner = Own({"x": np.ones(2)})
    learner.fails = True
    with pytest.raises(ValueError, match=r"own\.npz must be .*cannot continue \('rate'\)"):
        sd.load_learner(learner, file)
    np.testing.assert_array_equal(learner.kept["x"], [1, 1])


def forged(path, members, compression=zipfile.ZIP_STORED):
    """A file with a right checksum and these members."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.comment = b"0" * 64
        for name, data in members.items():
            archive.writestr(name, data)
    with open(path, "r+b") as file:
        size = path.stat().st_size - 64
        digest = array_files._digest(file, size)
        file.seek(size)
        file.write(digest)
    return path


def npy(descr, shape, data=b""):
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    text += " " * (63 - (10 + len(text)) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


@pytest.mark.parametrize(
    ("members", "compression", "sentence"),
    [
        ({"header.json": "{}", "x.npy": npy("<f8", (2**40,))}, zipfile.ZIP_STORED, "got 0 bytes"),
        ({"header.json": "{}", "x.npy": npy("<f8", (2**70,))}, zipfile.ZIP_STORED, "got 0 bytes"),
        ({"header.json": "{}", "x.npy": npy("|O", (1,), b"cos\nsystem\n")}, zipfile.ZIP_STORED,
         "must be an array of numbers; got object"),
        ({"header.json": "{}", "x.npy": npy("<f8", (10**6,), bytes(8 * 10**6))},
         zipfile.ZIP_DEFLATED, "must be stored uncompressed"),
        ({"header.json": "[]"}, zipfile.ZIP_STORED, "must be an object"),
        ({"header.json": "{"}, zipfile.ZIP_STORED, "cannot be read"),
        ({"header.json": '{"format": 99}'}, zipfile.ZIP_STORED, "in format 1; got format 99"),
        ({"x.npy": b"\x93NUMPX"}, zipfile.ZIP_STORED, "cannot be read"),
    ],
)  # fmt: skip
def test_forged_files_are_refused(members, compression, sentence, tmp_path):
    """Without allocating what they declare, and without running anything."""
    file = forged(tmp_path / "forged.npz", members, compression)
    with pytest.raises(ValueError, match=rf"forged\.npz must be .*{sentence}"):
        sd.load_learner(Own({}), file)


def test_files_of_another_kind(tmp_path):
    other = tmp_path / "other.npz"
    np.savez(other, x=np.zeros(3))
    with pytest.raises(ValueError, match=r"other\.npz must be .* its checksum differs"):
        sd.load_learner(Own({}), other)
    other.write_text("nothing like it, but longer than a checksum of sixty-four digits is")
    with pytest.raises(ValueError, match="got another kind of file"):
        sd.load_learner(Own({}), other)
