"""Keeps several workers on one socket and replaces those that die.

All workers take connections from the queue of the socket, so a waiting connection survives them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType

from cfnade.serve.service_settings import ServeSettings

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
_SHORT_LIFE_SECONDS = 5.0
_LONGEST_PAUSE_SECONDS = 10.0


@dataclass
class _Place:
    """The place of one worker: its present process, and when the next may start."""

    number: int
    process: subprocess.Popen[str] | None = None
    started: float = 0.0
    start_at: float = 0.0
    pause: float = field(default=_LOOK_SECONDS)


class Supervisor:
    """Starts workers, replaces those that die, forwards signals.

    Args:
        settings: Of the service.
        listening: Socket of all workers.
        on_ready: Called when the first worker has loaded the model.
    """

    def __init__(
        self,
        settings: ServeSettings,
        listening: socket.socket,
        *,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.listening = listening
        self.on_ready: Callable[[], None] | None = on_ready
        self.places = [_Place(number) for number in range(settings.n_workers)]
        self.is_stopping = False
        self.figures = tempfile.mkdtemp(prefix="cfnade-metrics-")

    def run(self) -> None:
        """Supervise until SIGTERM or Ctrl-C, then let the workers finish."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        signal.signal(signal.SIGHUP, self._forward)
        self.ready, self._ready_end = os.pipe()
        os.set_blocking(self.ready, False)
        try:
            while not self.is_stopping:
                for place in self.places:
                    self._look(place)
                self._look_for_ready()
                time.sleep(_LOOK_SECONDS)
            self._finish()
        finally:
            for process in (p.process for p in self.places if p.process is not None):
                if process.poll() is None:
                    process.kill()
                _close_pipe(process)
            shutil.rmtree(self.figures, ignore_errors=True)
            os.close(self.ready)
            os.close(self._ready_end)

    def _look(self, place: _Place) -> None:
        """Start the worker of a place if there is none, after a pause if it keeps dying."""
        now = time.monotonic()
        if place.process is not None:
            code = place.process.poll()
            if code is None:
                return
            self._forget(place, place.process)
            is_short = now - place.started < _SHORT_LIFE_SECONDS
            place.pause = min(2 * place.pause, _LONGEST_PAUSE_SECONDS) if is_short else 0.0
            logger.error("worker %s ended (%s); starting another", place.process.pid, code)
            place.process, place.start_at = None, now + place.pause
            place.pause = max(place.pause, _LOOK_SECONDS)
        if now >= place.start_at and not self.is_stopping:
            try:
                place.process, place.started = self._start(place), now
            except OSError as error:  # out of memory or processes: try again later
                place.pause = min(2 * place.pause, _LONGEST_PAUSE_SECONDS)
                place.start_at = now + place.pause
                logger.error("cannot start a worker (%s); trying again", error.strerror)

    def _look_for_ready(self) -> None:
        """Report once that a worker has loaded the model."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.ready, 64)
            if self.on_ready is not None:
                self.on_ready()
                self.on_ready = None

    def _start(self, place: _Place) -> subprocess.Popen[str]:
        numbers = [self.listening.fileno(), self._ready_end]
        process = subprocess.Popen(
            [sys.executable, "-m", "cfnade.serve.worker", *map(str, numbers), str(place.number)],
            stdin=subprocess.PIPE,
            pass_fds=numbers,
            # The new program ignores SIGHUP until it handles it. This process has one thread, so
            # a function between fork and exec is safe.
            preexec_fn=functools.partial(signal.signal, signal.SIGHUP, signal.SIG_IGN),
            text=True,
            env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": self.figures},
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which stops them
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead already, which is noticed later
            process.stdin.write(self.settings.to_json() + "\n")
            process.stdin.flush()  # left open: when it closes, the worker stops
        return process

    def _forget(self, place: _Place, process: subprocess.Popen[str]) -> None:
        """Close the pipe of a dead worker and remove its gauges."""
        _close_pipe(process)
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(place.number, self.figures)  # type: ignore[no-untyped-call]

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.is_stopping = True

    def _forward(self, number: int, frame: FrameType | None) -> None:
        for place in self.places:
            if place.process is not None and place.process.poll() is None:
                place.process.send_signal(number)

    def _finish(self) -> None:
        """Stop all workers and wait until their requests are finished."""
        running = [p.process for p in self.places if p.process is not None]
        for process in running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        until = time.monotonic() + self.settings.grace_seconds + 1.0
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))


def _close_pipe(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
