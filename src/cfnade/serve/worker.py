"""One process that answers requests: alone, or one of several that share a socket."""

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
from functools import partial

import uvicorn
from pydantic import TypeAdapter

from cfnade.errors import CfnadeError
from cfnade.serve.app import Service, build_app
from cfnade.serve.connections import KEEP_ALIVE, Connections, GuardedProtocol
from cfnade.serve.guards import SHARED_FOLDER, count_as
from cfnade.serve.model_source import release_memory
from cfnade.serve.service_settings import ServeSettings
from cfnade.threads import limited_threads

_SWITCH_SECONDS = 0.0005  # short, so that loading a model does not delay answers


def run_worker(
    settings: ServeSettings,
    listening: socket.socket,
    *,
    kind: type[Service] = Service,
    supervisor: int | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Load the model and serve until SIGTERM or Ctrl-C; requests under way are finished.

    `supervisor` is a pipe that closes when the supervisor dies, which stops the worker; a byte in
    it is a new model that was refused. `on_ready` is called when the model is loaded.

    Raises:
        ArtifactError: If the model cannot be used.
    """
    with limited_threads(1):  # there is one worker for each core
        service = kind(settings)
        ended = service.metrics.ended
        sys.setswitchinterval(_SWITCH_SECONDS)
        release_memory()
        gc.freeze()  # the model is never garbage: do not search it
        guard = Connections(settings.connections, lambda why: ended.labels(why).inc())
        config = uvicorn.Config(
            build_app(service),
            http=partial(GuardedProtocol, guard=guard),  # type: ignore[arg-type]  # makes one
            ws="none",
            lifespan="on",
            access_log=False,  # paths and addresses are private
            log_level="error",  # a client could fill the log with warnings; `Connections` counts
            server_header=False,
            timeout_graceful_shutdown=settings.grace_seconds,
            backlog=1024,
            timeout_keep_alive=KEEP_ALIVE,
            proxy_headers=False,  # nothing here depends on who asks
        )
        server = uvicorn.Server(config)

        def stop(*_: object) -> None:
            server.should_exit = True

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            if hasattr(signal, "SIGHUP"):
                loop.add_signal_handler(signal.SIGHUP, service.source.wake)
            if supervisor is not None:

                def hear() -> None:
                    if n_refused := len(os.read(supervisor, 1 << 10)):
                        service.metrics.models.labels("refused").inc(n_refused)
                    else:
                        loop.remove_reader(supervisor)
                        stop()

                loop.add_reader(supervisor, hear)
            watch = asyncio.create_task(guard.watch())
            await server.serve(sockets=[listening])
            watch.cancel()

        for number in (signal.SIGTERM, signal.SIGINT):
            # For signals before the server handles them; it also raises them again at its end.
            signal.signal(number, stop)
        on_ready()
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve())


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # not on Windows
        return None
    return uvloop.new_event_loop


def main() -> int:
    """Run as a child of the supervisor, with settings on standard input.

    The arguments are the file descriptors of the socket and of a pipe to write to when ready,
    and the number of the worker. The exit code is 2 if the model cannot be used.
    """
    number, ready, place = map(int, sys.argv[1:])
    if os.environ.get(SHARED_FOLDER):
        count_as(place)

    def report_ready() -> None:
        with contextlib.suppress(BrokenPipeError):  # the supervisor died, which is noticed later
            os.write(ready, b".")
        os.close(ready)

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    with open(0, "rb", buffering=0, closefd=False) as given:
        settings = TypeAdapter(ServeSettings).validate_json(given.readline())
    listening = socket.socket(fileno=number)
    try:
        run_worker(settings, listening, supervisor=sys.stdin.fileno(), on_ready=report_ready)
    except CfnadeError as error:
        print(f"cfnade: worker {os.getpid()}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
