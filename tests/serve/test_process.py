"""`uatlite serve` as a process: where it says it is, how it stops, what it says when it cannot start."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from serve.clients import ask
from uatlite.cli import main
from uatlite.serve.batching import FEW


def started(*arguments, **environment):
    process = subprocess.Popen(
        [sys.executable, "-m", "uatlite", "serve", *arguments, "--port", "0"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
    )
    for line in process.stderr:
        if found := re.search(r"Serving at (http://\S+)", line):
            return process, found[1]
    pytest.fail(f"it did not start: exit code {process.wait()}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_asks_for_its_token_and_a_signal_stops_it_when_what_it_accepted_is_answered(number, saved, classifier):
    several = ["a1"] * FEW * classifier.runtime.workers  # each worker takes the same number of them, at once
    process, address = started(str(saved), "--gather", "5000", UATLITE_TOKEN="correct-horse-battery")
    allowed = {"authorization": "Bearer correct-horse-battery"}
    with process, ThreadPoolExecutor(3) as clients:
        assert ask(address, ["a1"]).status_code == 401
        assert ask(address, several, headers=allowed).status_code == 200  # a worker now waits for as many again
        asked = [clients.submit(ask, address, [f"a{i}"], headers=allowed) for i in range(3)]
        while "uatlite_waiting_texts 3.0" not in httpx.get(f"{address}/metrics", headers=allowed, trust_env=False).text:
            assert not any(reply.done() for reply in asked)
            time.sleep(0.02)  # until each of them waits for more texts
        process.send_signal(number)
        assert [reply.result().status_code for reply in asked] == [200, 200, 200]
        assert process.wait(30) == 0
    with pytest.raises(httpx.ConnectError):
        ask(address, ["a1"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no/such/model",), "is not a directory"),
        (("SAVED", "--port", "TAKEN"), "The service cannot listen on"),
        (("SAVED", "--host", "256.0.0.1"), "The service cannot listen on"),
        (("SAVED", "--token-file", "nowhere"), "cannot be read"),
        (("SAVED", "--most-texts", "1000"), "could never be accepted"),
        (("SAVED", "--method", "base"), "calibrated with method fast"),
    ],
)
def test_it_says_in_a_sentence_why_it_cannot_start(arguments, message, saved, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        names = {"SAVED": str(saved), "TAKEN": str(taken.getsockname()[1])}
        with pytest.raises(SystemExit) as end:
            main(["serve", *(names.get(argument, argument) for argument in arguments)])
    assert end.value.code == 2
    assert message in capsys.readouterr().err
