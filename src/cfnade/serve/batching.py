"""Requests that wait are answered together; whoever comes alone waits for nobody."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar

from cfnade.serve.problems import overloaded

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Outcome = TypeVar("Outcome")


class Batcher(Generic[Asked, Answer]):
    """One thread that computes, so that the event loop never does.

    Nothing is delayed to fill a batch: when the thread is free it takes all that has come in
    meanwhile. The batches so grow with the load, and the weights are read once for each.
    """

    def __init__(
        self,
        answer: Callable[[list[Asked]], list[Answer]],
        *,
        most_together: int,
        most_waiting: int,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._answer = answer
        self._most_together = most_together
        self._most_waiting = most_waiting
        self._on_batch = on_batch
        self._waiting: deque[tuple[Asked, asyncio.Future[Answer]]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="answers")
        self._working: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether more requests wait than are taken."""
        return len(self._waiting) >= self._most_waiting

    async def ask(self, *asked: Asked) -> list[Answer]:
        """Wait for the answers to some requests.

        Raises:
            RequestError: If too many wait.
        """
        if self.is_full:
            raise overloaded()
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Answer]] = [loop.create_future() for _ in asked]
        self._waiting.extend(zip(asked, answers, strict=True))
        if self._working is None or self._working.done():
            self._working = loop.create_task(self._work())
        return list(await asyncio.gather(*answers)) if len(answers) != 1 else [await answers[0]]

    async def run(self, compute: Callable[[], Outcome]) -> Outcome:
        """Compute something else in the same thread, in its turn."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, compute)

    def close(self) -> None:
        """End the thread when it has done what it is at."""
        self._thread.shutdown(wait=True)

    async def _work(self) -> None:
        while self._waiting:
            size = min(len(self._waiting), self._most_together)
            taken = [self._waiting.popleft() for _ in range(size)]
            try:
                found = await self.run(partial(self._answer, [asked for asked, _ in taken]))
                self._on_batch(size)
                for (_, future), answer in zip(taken, found, strict=True):
                    if not future.done():  # who asked may have gone
                        future.set_result(answer)
            except Exception as error:
                for _, future in taken:
                    if not future.done():
                        future.set_exception(error)
