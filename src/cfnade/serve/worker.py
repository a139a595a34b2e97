"""One process that answers: alone, or one of many that share a socket (`supervisor`)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn

from cfnade.errors import CfnadeError
from cfnade.serve.app import Service, build_app
from cfnade.serve.heap import give_back
from cfnade.serve.monitoring import count_as
from cfnade.serve.service_settings import ServeSettings
from cfnade.threads import limited_threads

_SWITCH_SECONDS = 0.0005  # a thread that loads a model lets the others go on so often


def run_worker(
    settings: ServeSettings,
    listening: socket.socket,
    *,
    supervisor: int | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Load the model and answer until told to stop; SIGTERM and Ctrl-C let requests finish.

    Args:
        settings: Of the service.
        listening: Bound socket to take connections from.
        supervisor: A pipe whose end means that the supervisor is gone, and the worker goes too.
        on_ready: Called when the model is loaded.

    Raises:
        ArtifactError: If the model cannot be used.
    """
    with limited_threads(1):  # workers are many, each with a thread to compute in
        run_service(Service(settings), listening, supervisor=supervisor, on_ready=on_ready)


def run_service(
    service: Service,
    listening: socket.socket,
    *,
    supervisor: int | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer with a service that is ready; the rest is as for `run_worker`."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    give_back()
    gc.freeze()  # what the model holds is never garbage: do not look through it
    on_ready()
    for number in (signal.SIGTERM, signal.SIGINT):
        # The server handles these, and raises them once more when it is done: that is no news.
        signal.signal(number, lambda *_: None)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(service, listening, supervisor))


async def _serve(service: Service, listening: socket.socket, supervisor: int | None) -> None:
    config = uvicorn.Config(
        build_app(service),
        http="httptools",
        ws="none",
        lifespan="on",
        access_log=False,  # paths and addresses are nobody's business
        log_level="warning",
        server_header=False,
        timeout_graceful_shutdown=service.settings.grace_seconds,
        backlog=1024,
        timeout_keep_alive=75,  # longer than proxies wait: they should be the ones to close
    )
    server = uvicorn.Server(config)
    loop = asyncio.get_running_loop()
    if hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, service.source.ask)
    if supervisor is not None:

        def stop() -> None:
            loop.remove_reader(supervisor)
            server.should_exit = True

        loop.add_reader(supervisor, stop)
    await server.serve(sockets=[listening])


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on Windows
        return None
    return uvloop.new_event_loop


def main() -> int:
    """Run as a child of the supervisor: settings come in on standard input.

    The arguments are the numbers of the socket, of a pipe to write to when it is ready, and of
    the place among the workers that it takes.

    Returns:
        0, or 2 if the model cannot be used.
    """
    number, ready, place = map(int, sys.argv[1:])
    count_as(place)

    def tell() -> None:
        with contextlib.suppress(BrokenPipeError):  # the supervisor is gone, as will be seen
            os.write(ready, b".")
        os.close(ready)

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    settings = ServeSettings.from_json(sys.stdin.readline())
    listening = socket.socket(fileno=number)
    try:
        run_worker(settings, listening, supervisor=sys.stdin.fileno(), on_ready=tell)
    except CfnadeError as error:
        print(f"cfnade: worker {os.getpid()}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
