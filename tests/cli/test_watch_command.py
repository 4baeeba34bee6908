"""`safedrift watch` from the command line."""

import builtins
import http.client
import json
import signal
import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import safedrift as sd
from builders import small_world
from safedrift.cli import app
from safedrift.watching import server


def command(*arguments):
    return CliRunner().invoke(app, ["watch", *map(str, arguments)])


def one_sentence(done):
    assert done.exit_code == 2, done.output
    assert len(done.stderr.strip().splitlines()) == 1
    assert "internal error" not in done.stderr
    return done.stderr


@pytest.fixture
def taken():
    """A port in use."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        found.listen()
        yield found.getsockname()[1]


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path):
    sentence = one_sentence(command(tmp_path / "nowhere"))
    assert sentence == f"safedrift: DIR must be a folder of runs; got {tmp_path}/nowhere\n"
    (tmp_path / "file").write_text("")
    assert "DIR must be a folder of runs" in one_sentence(command(tmp_path / "file"))


def test_a_port_in_use_is_a_sentence(tmp_path, taken):
    sentence = one_sentence(command(tmp_path, "--port", taken, "--no-open"))
    assert f"--port must be a free port (0 takes any); got {taken}, one in use" in sentence


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_cannot_be_is_a_sentence(tmp_path, port):
    assert "--port must be an integer in [0, 65535]" in one_sentence(
        command(tmp_path, "--port", port)
    )


def test_without_a_port_any_will_do_if_the_usual_one_is_taken(taken, monkeypatch):
    monkeypatch.setattr(server, "PORT", taken)
    found = server.open_port(None)
    try:
        assert found.getsockname()[1] != taken
    finally:
        found.close()


@pytest.mark.parametrize("missing", ["starlette.applications", "uvicorn"])
def test_without_the_extra_it_says_what_to_install(tmp_path, monkeypatch, missing):
    real = builtins.__import__

    def without(name, *arguments, **options):
        if name == "safedrift.watching.server":  # which imports it first
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    sentence = one_sentence(command(tmp_path))
    assert (
        "watch must have the extra 'watch' installed (pip install 'safedrift[watch]')" in sentence
    )


@pytest.mark.parametrize(("screen", "flags", "opened"), [("x", [], 1), ("x", ["--no-open"], 0),
                                                         ("", [], 0)])  # fmt: skip
def test_the_page_is_opened_where_there_is_a_screen(tmp_path, monkeypatch, screen, flags, opened):
    seen = []
    monkeypatch.setattr(server.sys, "platform", "linux")
    monkeypatch.setenv("DISPLAY", screen)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(server.webbrowser, "open", seen.append)
    monkeypatch.setattr(server.uvicorn.Server, "run", lambda self, sockets: None)
    done = command(tmp_path, "--port", 0, *flags)
    assert done.exit_code == 0, done.output
    assert "watching at http://127.0.0.1:" in done.stderr
    assert len(seen) == opened


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.slow),
    ],
)
def test_the_command_serves_until_it_is_stopped(tmp_path, number):
    world = small_world(20)
    sd.simulate(world, sd.learners.make("uniform", world), out=tmp_path / "a")
    process = subprocess.Popen(
        [sys.executable, "-m", "safedrift", "watch", str(tmp_path), "--port", "0", "--no-open"],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        address = process.stderr.readline().split()[2]
        connection = http.client.HTTPConnection(address.split("/")[2], timeout=20)
        connection.request("GET", "/api/folders")
        (row,) = json.loads(connection.getresponse().read())["folders"]
        connection.close()
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
    finally:
        process.kill()
    assert row["name"] == "a"
    assert (process.returncode, errors) == (0, "")
