"""Runs in folders: what is written, what survives, what is refused."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import safedrift as sd
from builders import forge_folder, linear_world, rewrite_run, sign, small_world
from safedrift._files import is_partial, write_text, write_whole
from safedrift.experiments import playing, run_folder
from safedrift.experiments.checkpoints import checkpoint_files, read_checkpoint
from safedrift.experiments.differences import differences
from safedrift.experiments.run_folder import RunFolder
from safedrift.experiments.verification import verify
from safedrift.learners.array_files import read_arrays, write_arrays
from safedrift.results import folder_locks
from safedrift.results.folder_locks import FolderLock, heartbeat_age, in_use
from safedrift.results.measured import measured_episodes
from safedrift.results.run_folders import (
    check_files,
    read_folder_manifest,
    run_folders,
    state_of,
)


def agent_for(world, **overrides):
    return sd.PROPDPPO.for_problem(world, sd.Slater(0.3), **{"alpha": 0.5, "eta": 0.2, **overrides})


def thermostat(M=40):
    return sd.problems.make("thermostat", episodes=M, nodes=16)


CASES = {
    "tabular": (partial(small_world, 90, K=2, drift="periodic"), agent_for),
    "linear": (partial(linear_world, M=60), agent_for),
    "box": (thermostat, agent_for),
    "planner": (partial(small_world, 90), partial(sd.learners.make, "posterior-sampling")),
    "model-free": (partial(small_world, 90), partial(sd.learners.make, "ns-triple-q")),
}


class Stopped(Exception):
    pass


def stop_at(episode):
    def progress(stage, done, total):
        if stage == "learning" and done >= episode:
            raise Stopped

    return progress


def play_until(world, learner, out, stop, *, seed=3, **options):
    """Simulate into a folder with a checkpoint after every chunk; raise an error after `stop`."""
    with RunFolder(out, checkpoint_seconds=0, **options) as folder:
        run = sd.simulate(world, learner, seed, out=folder, progress=stop_at(stop))
        folder.finish(run)
    return run


def assert_same(one, other):
    assert one.columns().keys() == other.columns().keys()
    for name, value in one.columns().items():
        np.testing.assert_array_equal(value, other.columns()[name], err_msg=name)
    assert one.manifest == other.manifest
    np.testing.assert_array_equal(one.policy, other.policy)


@pytest.fixture
def chunks_of_ten(monkeypatch):
    monkeypatch.setattr(playing, "_CHUNK", 10)
    monkeypatch.setattr(playing, "_CHUNK_IN_PYTHON", 10)


@pytest.fixture
def world():
    return small_world(60, K=2, drift="linear")


@pytest.fixture
def stopped(world, tmp_path, chunks_of_ten):
    """A run that failed after 40 of 60 episodes."""
    with pytest.raises(Stopped):
        play_until(world, agent_for(world), tmp_path / "run", 40)
    return tmp_path / "run"


@pytest.fixture
def done(world, tmp_path, chunks_of_ten):
    play_until(world, agent_for(world), tmp_path / "done", 10**9)
    return tmp_path / "done"


# ---------------------------------------------------------------- what is written


def test_a_finished_folder_holds_the_run_and_says_so(world, tmp_path):
    run = sd.simulate(world, agent_for(world), 3, out=tmp_path / "a")
    assert {path.name for path in (tmp_path / "a").iterdir()} == {
        "manifest.json",
        "records.parquet",
    }
    manifest = read_folder_manifest(tmp_path / "a")
    assert (manifest.state, manifest.run) == ("done", run.manifest)
    assert manifest.seeds == {"entropy": 3, "children": {"world": [0], "learner": [1]}}
    assert list(manifest.files) == ["records.parquet"]
    assert manifest.versions["numpy"] == np.__version__
    back = sd.Run.from_folder(tmp_path / "a")
    assert back.summary() == run.summary()


def test_the_folder_changes_no_number(world, tmp_path):
    assert_same(
        sd.simulate(world, agent_for(world), 3),
        sd.simulate(world, agent_for(world), 3, out=tmp_path / "a"),
    )


def test_same_settings_same_id(world, tmp_path):
    def id_of(name, world=world, seed=3, **overrides):
        sd.simulate(world, agent_for(world, **overrides), seed, out=tmp_path / name)
        return read_folder_manifest(tmp_path / name).id

    first = id_of("a")
    assert id_of("b") == first
    others = [id_of("c", seed=4), id_of("d", eta=0.1), id_of("e", world=small_world(60, seed=9))]
    assert len({first, *others}) == 4


def test_the_last_two_checkpoints_are_kept(stopped):
    assert [path.name for path in checkpoint_files(stopped)] == [
        "checkpoint-000000000040.npz",
        "checkpoint-000000000030.npz",
    ]


# ---------------------------------------------------------------- resuming


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_was_stopped_goes_on_bit_for_bit(case, tmp_path, chunks_of_ten):
    make, build = CASES[case]
    world = make()
    learner = build(world)
    whole = sd.simulate(world, learner, 3)
    for stop in (10, 30):
        out = tmp_path / f"{stop}"
        with pytest.raises(Stopped):
            play_until(world, learner, out, stop)
        assert state_of(out, read_folder_manifest(out)) == "failed"
        assert_same(whole, play_until(world, learner, out, 10**9, resume=True))
        assert read_folder_manifest(out).sessions == 2
        assert verify(out, world, learner).good


def test_noise_and_few_records_are_continued_too(world, tmp_path, chunks_of_ten):
    options = {"noisy": True, "measure_log": 4}
    whole = sd.simulate(world, agent_for(world), 3, **options)

    def progress(stage, done, total):
        if stage == "learning" and done >= 30:
            raise Stopped

    with pytest.raises(Stopped), RunFolder(tmp_path / "a", checkpoint_seconds=0) as folder:
        sd.simulate(world, agent_for(world), 3, out=folder, progress=progress, **options)
    again = sd.simulate(world, agent_for(world), 3, out=tmp_path / "a", resume=True, **options)
    assert_same(whole, again)


def test_a_finished_run_is_not_played_again(done, world):
    before = (done / "manifest.json").read_bytes()
    run = sd.simulate(world, agent_for(world), 3, out=done, resume=True)
    assert run.manifest == sd.Run.from_folder(done).manifest
    assert (done / "manifest.json").read_bytes() == before
    with pytest.raises(ValueError, match=r"^seed must be 3, as in .*manifest.json .*; got 4$"):
        sd.simulate(world, agent_for(world), 4, out=done, resume=True)


def test_another_experiment_does_not_continue_a_run(stopped, world):
    with pytest.raises(ValueError, match=r"eta must be 0\.2, as in .*; got 0\.1$"):
        sd.simulate(world, agent_for(world, eta=0.1), 3, out=stopped, resume=True)
    other = small_world(60, K=2, drift="linear", seed=8)
    with pytest.raises(ValueError, match=r"options.seed must be 0, as in"):
        sd.simulate(other, agent_for(other), 3, out=stopped, resume=True)
    changed = world.with_thresholds(world.thresholds * 0.9)
    changed.name, changed.recipe = world.name, world.recipe
    with pytest.raises(ValueError, match=r"world must be the one of .*; got one with other arrays"):
        sd.simulate(changed, agent_for(changed), 3, out=stopped, resume=True)


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(stopped, world):
    newest, before = checkpoint_files(stopped)
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 4
    newest.write_bytes(data)
    told = []
    whole = sd.simulate(world, agent_for(world), 3)
    assert_same(
        whole, play_until(world, agent_for(world), stopped, 99, resume=True, tell=told.append)
    )
    assert len(told) == 1
    assert newest.name in told[0]
    assert "checksum differs; going on from before it" in told[0]


def test_a_forged_checkpoint_is_passed_over(stopped, world):
    """Right checksums, but more episodes than there are, or more than the rows tell of."""
    newest = checkpoint_files(stopped)[0]
    header, arrays = read_arrays(newest, "")
    for done in (10**6, 60, 55):
        forged = stopped / f"checkpoint-{done:012d}.npz"
        write_arrays(forged, header | {"done": done}, arrays)
    told = []
    whole = sd.simulate(world, agent_for(world), 3)
    again = play_until(world, agent_for(world), stopped, 99, resume=True, tell=told.append)
    assert_same(whole, again)
    assert [("rows; got 40" in sentence) for sentence in told] == [True] * 3


def test_a_damaged_replacement_can_be_replaced(done, world):
    with pytest.raises(Stopped):
        play_until(world, agent_for(world), done, 30, seed=5, force=True)
    (done / "replacement" / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match=r"replacement/manifest\.json must be the manifest"):
        play_until(world, agent_for(world), done, 99, seed=5, resume=True)
    play_until(world, agent_for(world), done, 99, seed=6, force=True)
    assert sd.Run.from_folder(done).manifest.seed == 6


def test_with_nothing_whole_the_run_starts_from_the_beginning(stopped, world):
    journal = stopped / "records.journal"
    data = bytearray(journal.read_bytes())
    data[8 + int.from_bytes(data[:8], "little")] ^= 1  # the first number after the header
    journal.write_bytes(data)
    told = []
    whole = sd.simulate(world, agent_for(world), 3)
    assert_same(
        whole, play_until(world, agent_for(world), stopped, 99, resume=True, tell=told.append)
    )
    assert [sentence.count("records.journal") for sentence in told] == [1, 1, 0]
    assert "starts from the beginning" in told[2]


def test_rows_after_the_last_checkpoint_are_cut_off(stopped, world):
    """A process may die between writing rows and writing the checkpoint they belong to."""
    with (stopped / "records.journal").open("ab") as file:
        file.write(b"rows of episodes that are played again")
    told = []
    with pytest.raises(Stopped):
        play_until(world, agent_for(world), stopped, 50, resume=True, tell=told.append)
    again = play_until(world, agent_for(world), stopped, 99, resume=True, tell=told.append)
    assert_same(sd.simulate(world, agent_for(world), 3), again)
    assert told == []
    assert read_folder_manifest(stopped).sessions == 3


def test_rows_that_were_written_between_checkpoints_change_nothing(stopped, world, monkeypatch):
    """They are there for whoever watches the run; what follows a checkpoint is played again."""
    monkeypatch.setattr(run_folder, "ROW_SECONDS", 0.0)
    journal = stopped / "records.journal"
    before = journal.stat().st_size
    with pytest.raises(Stopped), RunFolder(stopped, resume=True, checkpoint_seconds=1e6) as folder:
        sd.simulate(world, agent_for(world), 3, out=folder, progress=stop_at(50))
    assert journal.stat().st_size > before
    assert (stopped / "truth.npz").is_file()
    again = sd.simulate(world, agent_for(world), 3, out=stopped, resume=True)
    assert_same(sd.simulate(world, agent_for(world), 3), again)
    assert not journal.exists()
    assert not (stopped / "truth.npz").exists()


def test_a_run_of_another_version_is_not_continued(stopped, world):
    forge_folder(stopped, lambda manifest: manifest.update(version="0.0.1"))
    with pytest.raises(ValueError, match=r"begun with safedrift .*; got version 0\.0\.1"):
        sd.simulate(world, agent_for(world), 3, out=stopped, resume=True)


def test_an_environment_starts_again(tmp_path):
    lake = sd.from_gymnasium("FrozenLake-v1", 5, lambda t: 1.0, threshold=1.0, episodes=20)
    agent = sd.PROPDPPO.for_problem(lake, sd.Slater(0.4))
    with pytest.raises(Stopped):
        play_until(lake, agent, tmp_path / "a", 5)
    assert not checkpoint_files(tmp_path / "a")
    with pytest.warns(UserWarning, match="an environment cannot be continued"):
        run = sd.simulate(lake, agent, 3, out=tmp_path / "a", resume=True)
    assert run.episodes.size == 20
    assert verify(tmp_path / "a").skipped[0].endswith("got one of an environment")


RUN = [sys.executable, "-m", "safedrift", "run", "random", "-n", "30000", "-o", "states=3",
       "--checkpoint-every", "0", "--measure-every", "5", "--resume"]  # fmt: skip


@pytest.mark.slow
def test_kill_9_at_random_moments(tmp_path):
    """Some of the kills of benchmarks/kill.py."""
    rng = np.random.default_rng(0)
    subprocess.run([*RUN, "--out", tmp_path / "alone"], check=True, capture_output=True)
    killed = 0
    while killed < 5:
        process = subprocess.Popen([*RUN, "--out", tmp_path / "a"], stdout=subprocess.DEVNULL)
        try:
            assert process.wait(rng.uniform(1.0, 6.0)) == 0
            break
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed += 1
    subprocess.run([*RUN, "--out", tmp_path / "a"], check=True, capture_output=True)
    one, other = (tmp_path / name / "records.parquet" for name in ("alone", "a"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_killed_process_leaves_a_run_that_goes_on(tmp_path, world, chunks_of_ten):
    """kill -9 right after a checkpoint, in a process that was forked."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:

        def progress(stage, done, total):
            if stage == "learning" and done == 30:
                os.write(writer, b"x")
                time.sleep(60)

        with RunFolder(tmp_path / "a", checkpoint_seconds=0) as folder:
            sd.simulate(world, agent_for(world), 3, out=folder, progress=progress)
        os._exit(1)
    assert os.read(reader, 1) == b"x"
    out = tmp_path / "a"
    assert state_of(out, read_folder_manifest(out)) == "running"
    assert in_use(out)
    assert heartbeat_age(out) < 60
    with pytest.raises(ValueError, match="a folder that no other run is using"):
        sd.simulate(world, agent_for(world), 3, out=out, resume=True)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert state_of(out, read_folder_manifest(out)) == "interrupted"
    write_text(out / "manifest.json.0123abcd.partial", "half a file")
    again = sd.simulate(world, agent_for(world), 3, out=out, resume=True)
    assert_same(sd.simulate(world, agent_for(world), 3), again)
    assert not any(is_partial(path) for path in out.iterdir())


# ---------------------------------------------------------------- damage


def damaged(rng, data):
    changed = bytearray(data)
    if rng.random() < 0.2:
        return changed[: rng.integers(len(data))]
    changed[rng.integers(len(data))] ^= 1 << rng.integers(8)
    return changed


def test_every_damaged_byte_is_found_and_the_file_named(done):
    (done / "summary.json").write_text("{}")
    forge_folder(done, lambda m: m["files"].update({"summary.json": {}}))
    assert verify(done).good
    rng = np.random.default_rng(0)
    files = sorted(done.iterdir())
    assert len(files) == 5
    for i in range(300):
        path = files[i % len(files)]
        data = path.read_bytes()
        path.write_bytes(damaged(rng, data))
        try:
            sentences = verify(done, episodes=0).problems
        except ValueError as error:
            sentences = [str(error)]
        assert any(path.name in sentence for sentence in sentences), path
        path.write_bytes(data)
    assert verify(done).good


def test_every_damaged_byte_of_a_single_file_is_found(world, tmp_path):
    path = tmp_path / "run.parquet"
    sd.simulate(world, agent_for(world)).to_parquet(path)
    data, rng = path.read_bytes(), np.random.default_rng(1)
    for _ in range(300):
        path.write_bytes(damaged(rng, data))
        with pytest.raises(ValueError, match=r"run\.parquet must be a run written by"):
            sd.Run.from_parquet(path)


def test_files_that_are_gone_or_links_are_named(done, tmp_path):
    records = done / "records.parquet"
    shutil.move(records, tmp_path / "elsewhere.parquet")
    assert "records.parquet must be there" in verify(done).problems[0]
    records.symlink_to(tmp_path / "elsewhere.parquet")
    assert "records.parquet must be a plain file; got a link" in verify(done).problems[0]
    with pytest.raises(ValueError, match="got a link"):
        sd.Run.from_folder(done)


def test_wrong_records_are_found_by_playing_again(done, world):
    def changed(table):
        column = table.column_names.index("reward")
        values = table["reward"].to_numpy().copy()
        values[7] += 1e-12
        return table.set_column(column, "reward", [values])

    rewrite_run(done / "records.parquet", changed)
    forge_folder(done, lambda manifest: None)
    assert check_files(done, read_folder_manifest(done)) == []
    (sentence,) = verify(done).problems
    assert "from the start: " in sentence
    assert "reward = " in sentence
    assert "in episode 7" in sentence


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="tells files apart by /proc")
def test_a_full_disk_is_one_sentence_and_the_old_run_stays(done, world, monkeypatch):
    before = {path.name: path.read_bytes() for path in done.iterdir()}
    fsync = os.fsync

    def full(number):
        if "records.journal" in os.readlink(f"/proc/self/fd/{number}"):
            raise OSError(28, "No space left on device")
        fsync(number)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"records\.journal cannot be written: No space left on dev"):
        play_until(world, agent_for(world), done, 99, seed=5, force=True)
    monkeypatch.undo()
    kept = {path.name: path.read_bytes() for path in done.iterdir() if path.is_file()}
    assert kept == before
    assert sd.Run.from_folder(done).manifest.seed == 3


def test_a_disk_with_too_little_room_is_refused_before_playing(world, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ValueError, match=r"must be on a disk with \d+ MiB free; got 0 MiB"):
        sd.simulate(world, agent_for(world), out=tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(getattr(os, "geteuid", int)() != 0 or os.name != "posix", reason="needs root")
def test_a_small_disk_and_a_read_only_folder(world, tmp_path, done):
    """On a real file system of 300 kB, then on one that is read-only."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a tmpfs here")
    try:
        shutil.copytree(done, disk / "run")
        with pytest.raises((ValueError, OSError), match=r"disk/run.*(MiB|cannot be written)"):
            play_until(world, agent_for(world), disk / "run", 99, seed=5, force=True)
        assert verify(disk / "run").good
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        assert verify(disk / "run").good
        for out in (disk / "run", disk / "new"):
            with pytest.raises((OSError, ValueError), match="Read-only file system"):
                sd.simulate(world, agent_for(world), out=out, resume=True)
    finally:
        subprocess.run(["umount", str(disk)], check=True)


# ---------------------------------------------------------------- one run at a time


def test_a_folder_is_not_overwritten(done, stopped, world, tmp_path):
    with pytest.raises(ValueError, match=r"new or empty folder; got .*--force replaces"):
        sd.simulate(world, agent_for(world), out=done)
    with pytest.raises(ValueError, match=r"new or empty folder; got .*--resume continues the run"):
        sd.simulate(world, agent_for(world), out=stopped)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    with pytest.raises(ValueError, match="new or empty folder"):
        sd.simulate(world, agent_for(world), out=tmp_path / "mine")
    with pytest.raises(ValueError, match="must be the folder of a run, with manifest"):
        sd.simulate(world, agent_for(world), out=tmp_path / "mine", resume=True)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_a_run_takes_the_place_of_another_when_it_is_done(done, world, chunks_of_ten):
    (done / "thesis.txt").write_text("years")
    before = (done / "records.parquet").read_bytes()
    with pytest.raises(Stopped):
        play_until(world, agent_for(world), done, 30, seed=5, force=True)
    assert (done / "records.parquet").read_bytes() == before
    assert verify(done).good
    play_until(world, agent_for(world), done, 99, seed=5, resume=True)
    assert sd.Run.from_folder(done).manifest.seed == 5
    assert verify(done).good
    assert (done / "thesis.txt").read_text() == "years"
    assert not (done / "replacement").exists()


@pytest.mark.parametrize("moment", range(10))
def test_whenever_a_replacement_is_killed_one_run_is_whole(done, world, moment, monkeypatch):
    """Stop before the n-th file is moved or removed; the next start finishes the work."""
    count = 0

    def stop_at(name):
        original = getattr(Path, name)

        def counted(self, *arguments, **options):
            nonlocal count
            if not is_partial(self) and self.name != "lock":
                count += 1
                if count > moment:
                    raise Stopped
            return original(self, *arguments, **options)

        monkeypatch.setattr(Path, name, counted)

    with RunFolder(done, force=True) as folder:
        run = sd.simulate(world, agent_for(world), 5, out=folder)
        take_place = folder._take_place

        def interrupted():
            stop_at("unlink")
            stop_at("replace")
            take_place()

        monkeypatch.setattr(folder, "_take_place", interrupted)
        with pytest.raises(Stopped):
            folder.finish(run)
        monkeypatch.undo()
    with RunFolder(done, resume=True) as folder:
        assert folder.finished
    assert verify(done).good
    assert sd.Run.from_folder(done).manifest.seed == 5


def test_only_one_of_many_gets_the_lock(tmp_path):
    """Twenty tries of four processes at once: exactly one holds the lock at a time."""
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from safedrift.results.folder_locks import FolderLock\n"
        "folder, log = Path(sys.argv[1]), open(sys.argv[2], 'a')\n"
        "for _ in range(20):\n"
        "    try:\n"
        "        lock = FolderLock(folder)\n"
        "    except ValueError:\n"
        "        continue\n"
        "    log.write('a'); log.flush(); time.sleep(0.001); log.write('b'); log.flush()\n"
        "    lock.release()\n"
    )
    folder = tmp_path / "f"
    folder.mkdir()
    arguments = [sys.executable, "-c", program, str(folder), str(tmp_path / "log")]
    processes = [subprocess.Popen(arguments) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    text = (tmp_path / "log").read_text()
    assert len(text) > 40
    assert text == "ab" * (len(text) // 2)
    assert list(folder.iterdir()) == []


def test_a_lock_that_was_removed_meanwhile_is_not_taken(tmp_path, monkeypatch):
    """Between opening the file and locking it, its owner leaves and another one comes."""
    owner = FolderLock(tmp_path)
    lock, others = folder_locks._lock, []

    def late(number, age):
        if not others:
            others.append(None)
            owner.release()
            others[0] = FolderLock(tmp_path)
        return lock(number, age)

    monkeypatch.setattr(folder_locks, "_lock", late)
    with pytest.raises(ValueError, match="a folder that no other run is using"):
        FolderLock(tmp_path)
    others[0].release()


def test_a_reader_does_not_take_the_lock(tmp_path):
    lock = FolderLock(tmp_path)
    assert in_use(tmp_path)
    lock.release()
    assert not in_use(tmp_path)
    assert heartbeat_age(tmp_path) is None


# ---------------------------------------------------------------- hostile folders


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("was-here"),))


def test_a_pickle_in_place_of_arrays_is_refused(stopped, world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (file, before) = checkpoint_files(stopped)
    file.write_bytes(pickle.dumps(Evil()))
    np.save(before.open("wb"), np.array([Evil()], object), allow_pickle=True)
    with pytest.warns(UserWarning, match="another kind of file; going on from before it"):
        sd.simulate(world, agent_for(world), 3, out=stopped, resume=True)
    assert not Path("was-here").exists()


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/b", "..", "", "manifest.json"])
def test_a_manifest_that_lists_files_elsewhere_is_refused(done, name):
    entry = {"sha256": "0" * 64, "bytes": 1}
    forge_folder(done, lambda manifest: manifest["files"].update({name: entry}))
    with pytest.raises(ValueError, match="got one that lists a file"):
        read_folder_manifest(done)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"state": "fine"}, "one whose 'state' is wrong"),
        ({"id": "../../x"}, "one whose 'id' is wrong"),
        ({"run": {"sizes": {"M": 10**400}}}, "one whose 'run."),
        ({"run": None}, "the settings that records.parquet has; got others"),
        ({"files": []}, "one whose 'files' is wrong"),
        ({"format": 99}, "of format 1; got format 99"),
        ({"surprise": 1}, "one whose 'surprise' is wrong"),
    ],
    ids=str,
)
def test_a_forged_manifest_gets_a_sentence(done, change, sentence):
    sign(done, json.loads((done / "manifest.json").read_text()) | change)
    with pytest.raises(ValueError, match="must be") as error:
        sd.Run.from_folder(done)
    assert sentence in str(error.value)


def test_links_in_a_folder_are_never_written_through(world, tmp_path, stopped):
    """A hostile folder to resume: its files lead elsewhere."""
    outside = tmp_path / "outside"
    outside.write_text("mine")
    for name in ("records.journal", "records.parquet", "checkpoint-000000000040.npz", "truth.npz",
                 "report.html"):  # fmt: skip
        (stopped / name).unlink(missing_ok=True)
        (stopped / name).symlink_to(outside)
    with pytest.warns(UserWarning, match="going on from before it"):
        sd.simulate(world, agent_for(world), 3, out=stopped, resume=True)
    assert outside.read_text() == "mine"
    for name in ("lock", "replacement"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).symlink_to(tmp_path)
        with pytest.raises((OSError, ValueError), match=r"cannot be written|got a link"):
            RunFolder(folder, force=True).__enter__()
    assert outside.read_text() == "mine"


def test_a_folder_of_runs_is_listed_without_following_links(done, tmp_path):
    (tmp_path / "list").mkdir()
    (tmp_path / "list" / "a").symlink_to(done)
    shutil.copytree(done, tmp_path / "list" / "b")
    assert [path.name for path in run_folders(tmp_path / "list")] == ["b"]
    assert list(run_folders(done)) == [done]


@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_edited_manifests_never_cause_anything_but_a_sentence(done, data):
    """Any value at any place, with a right checksum."""
    kept = (done / "manifest.json").read_bytes()
    plain = json.loads(kept)
    place = plain
    while isinstance(place, dict) and place:
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or data.draw(st.booleans()):
            break
        place = place[key]
    value = st.none() | st.integers() | st.floats() | st.text() | st.lists(st.integers())
    value |= st.dictionaries(st.text(), st.integers())
    place[key] = data.draw(value)
    try:
        sign(done, plain)
        with suppress(ValueError, TypeError):
            assert verify(done, episodes=5).manifest.state == "done"
    finally:
        (done / "manifest.json").write_bytes(kept)


# ---------------------------------------------------------------- parts


def test_log_spaced_episodes():
    found = measured_episodes(10**7, log=100)
    assert found[0] == 0
    assert 1000 < found.size < 1500
    steps = np.diff(found)
    assert (steps == np.maximum(1, found[:-1] // 100)).all()
    assert measured_episodes(500, log=100).tolist() == found[found < 500].tolist()
    with pytest.raises(ValueError, match="measure_every must be 1 where measure_log is given"):
        measured_episodes(100, 2, 10)


def test_log_spaced_records_are_those_of_a_full_run(world):
    full = sd.simulate(world, agent_for(world), 3)
    few = sd.simulate(world, agent_for(world), 3, measure_log=4)
    np.testing.assert_array_equal(few.outcome.reward, full.outcome.reward[few.episodes])
    np.testing.assert_array_equal(few.trace["mu"], full.trace["mu"][few.episodes])
    assert few.weights.sum() == world.M
    assert any("log-spaced" in note for note in few.notes())
    assert few.episodes[-1] < 54  # then the last one stands for the last tenth
    assert few.summary()["last_tenth_reward_per_episode"] == few.outcome.reward[-1]
    assert few.certify(world).identities_hold


def test_a_file_is_whole_or_not_there(tmp_path):
    path = write_text(tmp_path / "a", "old")

    def half(file):
        file.write(b"ne")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_whole(path, half)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_checkpoints_of_other_runs_are_refused(stopped):
    file = checkpoint_files(stopped)[0]
    id = read_folder_manifest(stopped).id
    assert read_checkpoint(file, id).done == 40
    with pytest.raises(ValueError, match="got one of another run"):
        read_checkpoint(file, "0" * 16)
    moved = file.rename(file.with_name("checkpoint-000000000050.npz"))
    with pytest.raises(ValueError, match="got one after 40 episodes"):
        read_checkpoint(moved, id)


def test_differences_are_named():
    assert list(differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]})) == []
    assert list(differences({"a": 1}, {"a": 1, "c": 3})) == [("c", None, 3)]
    assert list(differences([1, [2]], [3, 4])) == [("[0]", 1, 3), ("[1]", [2], 4)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"resume": True, "force": True}, "force must be False where a run is resumed"),
        ({"checkpoint_seconds": -1}, "checkpoint_seconds must be a finite number >= 0; got -1"),
        ({"checkpoint_seconds": float("inf")}, "checkpoint_seconds must be a finite number"),
        ({"resume": 1}, "resume must be a bool; got int"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        RunFolder(tmp_path / "a", **options)
