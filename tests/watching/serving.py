"""What the tests of the live page share: small folders, a served page, questions to it."""

import http.client
import json
import threading
from contextlib import contextmanager

import safedrift as sd
from builders import small_world
from safedrift.experiments import playing, run_folder
from safedrift.experiments.engines import LocalEngine
from safedrift.experiments.run_folder import RunFolder
from safedrift.experiments.studies import plan_of, study_from
from safedrift.experiments.sweeps import run_sweep
from safedrift.watching.server import make_server, open_port

STUDY = {
    "episodes": 20,
    "seeds": 3,
    "problems": ["stationary"],
    "learners": ["uniform", "opt-cmdp"],
}
FAILING = STUDY | {"learners": ["uniform", "softmax-lsvi"]}  # the second needs features


class Page:
    """A page that is served."""

    def __init__(self, port):
        self.port = port
        self.address = f"http://127.0.0.1:{port}/"

    def ask(self, path, method="GET", **headers):
        """Return status, headers and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=given)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def json(self, path):
        status, _, body = self.ask(path)
        assert status == 200, body
        return json.loads(body, parse_constant=refuse)


def refuse(word):
    raise AssertionError(f"{word} is no JSON")


@contextmanager
def served(folder):
    """Serve the page of a folder in a thread."""
    listening = open_port(0)
    server = make_server(folder)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield Page(listening.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def finished_run(out, M=60, K=1, seed=0, learner="opt-cmdp", **options):
    world = small_world(M, K=K, drift="periodic")
    return sd.simulate(world, sd.learners.make(learner, world), seed, out=out, **options)


def small_chunks(monkeypatch, episodes=5):
    """Rows reach the disk after so many episodes."""
    monkeypatch.setattr(playing, "_CHUNK", episodes)
    monkeypatch.setattr(run_folder, "ROW_SECONDS", 0.0)


class Stopped(Exception):
    pass


def run_until(out, look, stop=40, M=60, error=Stopped, **options):
    """Play with rows after every chunk; call look() after `stop` episodes and raise an error."""
    world = small_world(M, drift="periodic")

    def progress(stage, done, total):
        if stage == "learning" and done >= stop:
            look()
            raise error("boom" if error is Stopped else "")

    try:
        with RunFolder(out, **options) as folder:
            sd.simulate(world, sd.learners.make("opt-cmdp", world), out=folder, progress=progress)
    except error:
        return


def sweep(out, study=STUDY, progress=None):
    return run_sweep(plan_of(study_from(study)), out, engine=LocalEngine(1), progress=progress)
