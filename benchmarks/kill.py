"""What a run survives: kill -9 at random moments, damaged bytes, two processes in one folder.

    python benchmarks/kill.py [--kills 25] [--damages 2000] [--pairs 50]

Every run that is killed is continued with --resume until it is done; its records must then be those
of a run that was left alone, byte for byte. Four learners: counts, least squares, a box, a planner.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = {
    "tabular": "random -n 40000 -o states=4 --measure-every 7",
    "linear": "blend -n 5000",
    "box": "thermostat -n 160 -o nodes=16",
    "planner": "energy -n 12000 --learner adaptive-planner",
}


def start(words, out, *more):
    command = [sys.executable, "-m", "safedrift", "run", *words.split(), "--out", str(out), *more]
    environment = {**os.environ, "SAFEDRIFT_THREADS": "1"}
    return subprocess.Popen(
        [*command, "--checkpoint-every", "0"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    _, errors = process.communicate()
    return process.returncode, errors


def wait_for_lock(process, out, since):
    """Wait until the run holds its folder; before that there is nothing to lose."""
    while process.poll() is None:
        try:
            if (out / "lock").stat().st_mtime >= since:
                return
        except FileNotFoundError:
            pass
        time.sleep(0.005)


def kills(folder, count, seed):
    """Kill each run `count` times in all, at moments between its lock and its end; compare."""
    rng = random.Random(seed)
    for name, words in RUNS.items():
        for attempt in range(2):  # the first may compile, the second says how long a run takes
            alone = folder / f"{name}-alone-{attempt}"
            process = start(words, alone)
            wait_for_lock(process, alone, time.time() - 1)
            began = time.perf_counter()
            code, errors = finish(process)
            assert code == 0, errors
            lasts = time.perf_counter() - began
        wanted = (alone / "records.parquet").read_bytes()
        killed = same = rounds = on_the_way = 0
        while killed < count:
            rounds += 1
            out = folder / f"{name}-{rounds}"
            while True:
                since = time.time()
                process = start(words, out, "--resume")
                wait_for_lock(process, out, since)
                try:
                    process.wait(rng.uniform(0.0, lasts) if killed < count else None)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    process.communicate()
                    killed += 1
                    on_the_way += any(out.glob("checkpoint-*"))
                    continue
                code, errors = finish(process)
                assert code == 0, errors
                break
            same += (out / "records.parquet").read_bytes() == wanted
            shutil.rmtree(out)
        print(
            f"{name}: {killed} kills in {rounds} runs of {lasts:.1f} s ({on_the_way} after a "
            f"checkpoint), {same} of {rounds} with the same bytes",
            flush=True,
        )


def damages(folder, count, seed):
    """Flip a bit or cut a file short, anywhere in a run folder; `verify` must name the file."""
    from safedrift.experiments.verification import verify

    rng = random.Random(seed)
    run = folder / "whole"
    code, errors = finish(start(RUNS["tabular"], run))
    assert code == 0, errors
    assert verify(run).good
    files = [path for path in sorted(run.iterdir()) if path.stat().st_size]
    found = 0
    for i in range(count):
        path = files[i % len(files)]
        data = path.read_bytes()
        changed = bytearray(data)
        if rng.random() < 0.2:
            changed = changed[: rng.randrange(len(data))]
        else:
            changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        try:
            sentences = verify(run, episodes=0).problems
        except ValueError as error:
            sentences = (str(error),)
        found += any(path.name in sentence for sentence in sentences)
        path.write_bytes(data)
    assert verify(run).good
    print(f"{found} of {count} damages found, the file named", flush=True)


def pairs(folder, count):
    """Two processes into one folder at once: one wins, the other is refused."""
    from safedrift.experiments.verification import verify

    good = 0
    for i in range(count):
        out = folder / f"pair-{i}"
        both = [start("random -n 3000 -o states=3 --seed " + str(s), out) for s in (1, 2)]
        ends = [finish(process) for process in both]
        codes = sorted(code for code, _ in ends)
        refusal = next((errors for code, errors in ends if code), "")
        told = "no other run is using" in refusal or "new or empty folder" in refusal
        good += codes == [0, 2] and told and verify(out, episodes=20).good
        shutil.rmtree(out)
    print(f"{good} of {count} pairs: one won, the other was refused, the folder is whole")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=25, help="of each learner")
    parser.add_argument("--damages", type=int, default=2000)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=RUNS, help="kill this one only")
    given = parser.parse_args()
    for name in set(RUNS) - {given.only or name for name in RUNS}:
        del RUNS[name]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kills(folder, given.kills, given.seed)
        if given.only in (None, "tabular"):
            damages(folder, given.damages, given.seed)
            pairs(folder, given.pairs)


if __name__ == "__main__":
    main()
