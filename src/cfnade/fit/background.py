"""A training in a thread of its own, beside other steps of the fit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from cfnade.progress import Callbacks
from cfnade.threads import one_thread

if TYPE_CHECKING:
    from cfnade.model.training import Epoch

T = TypeVar("T")


class Background(Generic[T]):
    """Runs one training beside the caller's own steps; leaving the context ends it."""

    def __init__(self, callbacks: Callbacks) -> None:
        """Take what to call with its progress while the caller waits for it."""
        self._callbacks = callbacks
        self._future: Future[T] | None = None
        self._is_awaited, self._is_stopped = Event(), Event()
        self._unreported: list[Epoch] = []
        self._exit = ExitStack()

    def __enter__(self) -> Background[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_stopped.set()  # it ends at its next update
        self._exit.close()

    def start(self, job: Callable[[Callbacks], T]) -> None:
        """Begin; `job` gets what to call after its updates and epochs."""
        threads = self._exit.enter_context(ThreadPoolExecutor(1, initializer=one_thread))
        self._future = threads.submit(job, Callbacks(self._on_epoch, self._on_step))

    @property
    def is_started(self) -> bool:
        """Whether there is anything to wait for."""
        return self._future is not None

    def result(self) -> T:
        """Wait for the outcome, and pass on the progress: first that of earlier epochs."""
        assert self._future is not None
        self._is_awaited.set()
        found = self._future.result()
        self._report()
        return found

    def _on_epoch(self, epoch: Epoch) -> None:
        self._unreported.append(epoch)
        if self._is_awaited.is_set():
            self._report()

    def _on_step(self, step: int, n_steps: int) -> None:
        if self._is_stopped.is_set():
            raise CancelledError
        if self._is_awaited.is_set():
            self._report()
            if self._callbacks.on_step is not None:
                self._callbacks.on_step(step, n_steps)

    def _report(self) -> None:
        while self._unreported:
            epoch = self._unreported.pop(0)
            if self._callbacks.on_epoch is not None:
                self._callbacks.on_epoch(epoch)
