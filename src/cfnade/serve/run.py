"""Starts the service: workers on one socket, and a supervisor that keeps them and their model.

All workers take connections from the queue of the socket, so a waiting connection survives them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from cfnade.errors import ConfigError
from cfnade.folders import temporary_folder
from cfnade.serve.admission import Admission
from cfnade.serve.guards import SHARED_FOLDER, Metrics, count_as
from cfnade.serve.model_source import release_memory
from cfnade.serve.service_settings import ServeSettings

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
_SHORT_LIFE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 10.0


def run(settings: ServeSettings, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C; `say` prints a line for people.

    Raises:
        ArtifactError: If the model cannot be used.
        ConfigError: If the address cannot be listened on.
    """
    with contextlib.ExitStack() as stack:
        if hasattr(signal, "SIGHUP"):  # not on Windows
            # It would end the process, so it is ignored until the service handles it. No new model
            # is missed: the service checks the folder when it starts.
            before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
            stack.callback(signal.signal, signal.SIGHUP, before)
        listening = stack.enter_context(bind(settings))
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host

        def report_ready() -> None:
            say(f"serving {settings.model} at http://{shown}:{port}/ (Ctrl-C stops)")

        if settings.api_key is None and host not in ("127.0.0.1", "::1"):
            who = f"anyone who can reach {shown}:{port} can use it"
            say(f"{who}; require a key with --api-key-file")
        if sys.platform == "win32":  # workers cannot share a socket there
            from cfnade.serve.worker import run_worker

            run_worker(settings, listening, on_ready=report_ready)
        else:
            Supervisor(settings, listening, on_ready=report_ready).run()


def bind(settings: ServeSettings) -> socket.socket:
    """A socket on the address of the settings; a ConfigError if that is impossible."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(1024)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {settings.host}:{settings.port} ({error.strerror or error}); "
            "choose another --port or --host"
        ) from error
    listening.set_inheritable(True)
    return listening


@dataclass(eq=False)
class Supervisor:
    """Starts workers, replaces those that die, forwards signals.

    `on_ready` is called when the first worker has loaded the model.
    """

    settings: ServeSettings
    listening: socket.socket
    on_ready: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.is_stopping = False
        self.admission: Admission | None = None
        self._metrics: Metrics | None = None

    def run(self) -> None:
        """Supervise until SIGTERM or Ctrl-C, then let the workers finish.

        Raises:
            ArtifactError: If the first model cannot be used.
        """
        with temporary_folder("cfnade-serve") as folder:
            self.figures = folder / "metrics"
            self.figures.mkdir()
            model, watch = self.settings.model, self.settings.watch_seconds
            count = self._count_refused
            self.admission = Admission(model, folder, watch_seconds=watch, on_refused=count)
            release_memory()
            signal.signal(signal.SIGTERM, self._stop)
            signal.signal(signal.SIGINT, self._stop)
            signal.signal(signal.SIGHUP, self._ask)
            self._supervise(self.admission)

    def _supervise(self, admission: Admission) -> None:
        self.ready, self._ready_end = os.pipe()
        os.set_blocking(self.ready, False)
        places = [self._keep_running(number) for number in range(self.settings.n_workers)]
        try:
            while not self.is_stopping:
                for place in places:
                    next(place)
                self._look_for_ready()
                if admission.look():
                    self._forward(signal.SIGHUP)
                time.sleep(_LOOK_SECONDS)
            self._finish()
        finally:
            admission.close()
            for process in self.processes.values():
                process.kill()  # does nothing if it has ended
                process.communicate()  # closes its pipe
            os.close(self.ready)
            os.close(self._ready_end)

    def _count_refused(self) -> None:
        """Count as one more process beside the workers, whose metrics have these files too."""
        os.environ[SHARED_FOLDER] = str(self.figures)
        if self._metrics is None:
            count_as(self.settings.n_workers)
            self._metrics = Metrics()
        self._metrics.models.labels("refused").inc()

    def _keep_running(self, number: int) -> Iterator[None]:
        """Keep a worker running, after a pause if it keeps dying; each step looks at it once."""
        pause = 0.0
        while True:
            started = time.monotonic()
            try:
                process = self.processes[number] = self._start(number)
            except OSError as error:  # out of memory or processes: try again later
                logger.error("cannot start a worker (%s); trying again", error.strerror)
            else:
                while process.poll() is None:
                    yield
                self._clean_up(number)
            is_short = time.monotonic() - started < _SHORT_LIFE_SECONDS
            pause = min(2 * pause + _LOOK_SECONDS, _LONGEST_PAUSE_SECONDS) if is_short else 0.0
            start_at = time.monotonic() + pause
            while time.monotonic() < start_at:
                yield

    def _clean_up(self, number: int) -> None:
        """Drop a worker that has ended."""
        from prometheus_client.multiprocess import mark_process_dead

        process = self.processes.pop(number)
        process.communicate()  # closes its pipe
        mark_process_dead(number, str(self.figures))  # type: ignore[no-untyped-call]
        logger.error("worker %s ended (%s); starting another", process.pid, process.returncode)

    def _look_for_ready(self) -> None:
        """Report once that a worker has loaded the model."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.ready, 64)
            if self.on_ready is not None:
                self.on_ready()
                self.on_ready = None

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        assert self.admission is not None
        files = [self.listening.fileno(), self._ready_end]
        settings = replace(self.settings, copy=self.admission.copy, watch_seconds=0)
        process = subprocess.Popen(
            # Without -P, code of the current folder would run: `uvicorn.py` next to a model.
            [sys.executable, "-P", "-m", "cfnade.serve.worker", *map(str, [*files, number])],
            stdin=subprocess.PIPE,
            pass_fds=files,
            # The new program ignores SIGHUP until it handles it. This process has one thread, so
            # a function between fork and exec is safe.
            preexec_fn=functools.partial(signal.signal, signal.SIGHUP, signal.SIG_IGN),
            env={**os.environ, SHARED_FOLDER: str(self.figures)},
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which stops them
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead already, which is noticed later
            process.stdin.write(TypeAdapter(ServeSettings).dump_json(settings) + b"\n")
            process.stdin.flush()  # left open: when it closes, the worker stops
        return process

    def _ask(self, *_: object) -> None:
        assert self.admission is not None
        self.admission.ask()

    def _stop(self, *_: object) -> None:
        self.is_stopping = True

    def _forward(self, number: int, *_: object) -> None:
        for process in self.processes.values():
            process.send_signal(number)  # does nothing if it has ended

    def _finish(self) -> None:
        """Stop all workers and wait until their requests are finished."""
        self._forward(signal.SIGTERM)
        until = time.monotonic() + self.settings.grace_seconds + 1.0
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
