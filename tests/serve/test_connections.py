"""Clients that send too much, too slowly or over too many connections, on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from cfnade.serve.connections import OpenTransport, _network
from tests.serve.running import STOPS_IN, Running, is_up, wait_for
from tests.storage.saved import KEPT

LIMITED = """
import socket, sys
from pathlib import Path
from cfnade.serve.service_settings import ConnectionLimits, ServeSettings
from cfnade.serve.worker import run_worker

limits = ConnectionLimits(head_seconds=1.0, body_seconds=1.0, per_address=20)
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(listening.getsockname()[1], flush=True)
    run_worker(ServeSettings(Path(sys.argv[1]), connections=limits), listening)
"""
HEAD = b"POST /v1/recommend HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
WHOLE = HEAD + b"content-length: 2\r\n\r\n{}"


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    log = tmp_path_factory.mktemp("limited") / "log.txt"
    with log.open("w") as err:
        command = [sys.executable, "-c", LIMITED, str(KEPT)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True)
    try:
        service = Running(process, int(process.stdout.readline()), log)
        wait_for(lambda: is_up(service), process)
        yield service
        process.terminate()
        assert process.wait(STOPS_IN) == 0, log.read_text()
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def connected(service):
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as client:
        yield client


def answer_to(client):
    """All that the service says until it closes; what was not read may reset the connection."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := client.recv(1 << 16):
            found += part
    return found


def n_ended(service, reason):
    text = service.get("/metrics").body.decode()
    found = re.search(rf'cfnade_connections_ended_total{{reason="{reason}"}} (\d+)', text)
    return int(found[1]) if found else 0


@pytest.mark.parametrize(
    "line", [b"x-many: 1\r\n", b"x-long: " + b"a" * 60_000 + b"\r\n", b"x" * 60_000, b"\r\n "],
    ids=["many lines", "long lines", "one line without end", "folded lines"],
)  # fmt: skip
def test_a_head_without_end_is_refused_after_a_few_kilobytes(service, line):
    n_sent = 0
    with connected(service) as client:
        client.sendall(HEAD)
        with contextlib.suppress(ConnectionError):
            while n_sent < 1 << 25:
                n_sent += client.send(line * (1 + 60_000 // len(line)))
        found = answer_to(client)
    assert n_sent < 1 << 23  # what fits into the buffers of the system
    assert found == b"" or found.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
    assert service.get("/healthz").status == 200


@pytest.mark.parametrize("n_bytes", [1 << 14, 1 << 16])
def test_a_head_may_be_as_large_as_the_limit(limited, n_bytes):
    with connected(limited) as client:
        line = b"x: " + b"a" * n_bytes + b"\r\nconnection: close\r\n"
        client.sendall(HEAD + line + b"content-length: 2\r\n\r\n{}")
        found = answer_to(client)
    assert found.startswith(b"HTTP/1.1 200 " if n_bytes < 1 << 15 else b"HTTP/1.1 431 ")


def test_lines_after_a_body_in_chunks_are_limited_too(limited):
    n_sent = 0
    with connected(limited) as client:
        client.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
        with contextlib.suppress(ConnectionError):
            while n_sent < 1 << 25:
                n_sent += client.send(b"x-many: 1\r\n" * 5_000)
    assert n_sent < 1 << 23
    assert limited.get("/healthz").status == 200


@pytest.mark.parametrize(
    "sent", [b"", b"\r\n", HEAD, HEAD + b"content-length: 9\r\n\r\n{", WHOLE],
    ids=["nothing", "a line break", "half a head", "half a body", "a line break after a request"],
)  # fmt: skip
def test_a_request_that_does_not_arrive_in_time_ends_the_connection(limited, sent):
    started = time.monotonic()
    with connected(limited) as client:
        client.sendall(sent)
        if sent == WHOLE:
            assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
            client.sendall(b"\r\n")  # it is no longer idle
        found = answer_to(client)
    assert b"HTTP/1.1 408 Request Timeout\r\n" in found
    assert 0.9 < time.monotonic() - started < 10
    assert "127.0.0.1" not in limited.log.read_text()


def test_a_client_cannot_fill_the_log(limited):
    upgrade = WHOLE.replace(b"\r\n\r\n", b"\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n")
    n_lines = len(limited.log.read_text().splitlines())
    for sent in [b"nonsense\r\n\r\n", upgrade] * 10:
        with connected(limited) as client:
            client.sendall(sent)
            assert client.recv(1 << 16).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 200 "))
    assert len(limited.log.read_text().splitlines()) <= n_lines + 1  # how many were ended


def test_a_trickle_does_not_keep_a_connection_open(limited):
    started = time.monotonic()
    with connected(limited) as client, contextlib.suppress(ConnectionError):
        client.sendall(HEAD)
        while time.monotonic() - started < 10:
            client.sendall(b"x: 1\r\n")
            time.sleep(0.1)
    assert time.monotonic() - started < 8


def test_many_half_sent_requests_do_not_keep_others_out(limited):
    before = n_ended(limited, "too_many")
    with contextlib.ExitStack() as stack:
        for _ in range(240):
            stack.enter_context(connected(limited)).sendall(HEAD)
        started = time.monotonic()
        assert limited.post("/v1/recommend", {}).status == 200
        assert time.monotonic() - started < 0.9  # not because the others ran out of time
    assert n_ended(limited, "too_many") > before
    wait_for(lambda: "ended connections: " in limited.log.read_text())


def test_a_request_that_waits_in_the_queue_is_read_before_others_take_its_place(limited):
    with contextlib.ExitStack() as stack:
        limited.signal(signal.SIGSTOP)  # a worker that is busy accepts many at once later
        try:
            first = stack.enter_context(connected(limited))
            first.sendall(WHOLE)
            for _ in range(100):
                stack.enter_context(connected(limited)).sendall(HEAD)
        finally:
            limited.signal(signal.SIGCONT)
        assert first.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_requests_sent_ahead_are_answered_in_order_up_to_a_limit(limited):
    with connected(limited) as client:
        client.sendall(WHOLE * 5)
        found = b""
        while found.count(b"HTTP/1.1 200 OK") < 5:
            found += client.recv(1 << 16)
    with connected(limited) as client:
        client.sendall(WHOLE * 1_000)
        assert answer_to(client).count(b"HTTP/1.1 200 OK") < 100
    assert limited.get("/healthz").status == 200


def test_a_network_of_version_6_is_one_client():
    assert _network("2001:db8::1") == _network("2001:db8:0:0:ffff::2") != _network("2001:db8:1::1")
    assert _network("fe80::1%eth0") == _network("fe80::2%eth0")
    assert _network("192.0.2.1") != _network("192.0.2.2")


def test_what_is_written_to_a_closed_connection_is_dropped():
    """A client may hang up between two parts of its answer; uvloop raises an error then."""
    uvloop = pytest.importorskip("uvloop")
    made = []

    class Server(asyncio.Protocol):
        def connection_made(self, transport):
            made.append(transport)

    async def hang_up():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Server, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        while not made:
            await asyncio.sleep(0.01)
        made[0].abort()
        await asyncio.sleep(0.05)
        with pytest.raises(RuntimeError, match="closed"):
            made[0].write(b"x")
        open_transport = OpenTransport(made[0])
        open_transport.write(b"x")
        assert open_transport.is_closing()
        writer.close()
        server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(hang_up())
