"""Requests that wait are answered together; whoever comes alone waits for nobody."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from cfnade.serve.problems import overloaded

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Outcome = TypeVar("Outcome")
_Waiting: TypeAlias = "deque[tuple[Asked, asyncio.Future[Answer]]]"


class Batcher(Generic[Asked, Answer]):
    """One thread that computes, so that the event loop never does.

    Nothing is delayed to fill a batch: when the thread is free it takes what has come in
    meanwhile. The batches so grow with the load, and the weights are read once for each. A pass
    takes from all who wait in turn, so that nobody waits for the end of somebody's hundred
    requests, and no more than may be computed in one go.

    Args:
        answer: Computes the answers to some requests.
        most_together: Requests in one pass.
        most_waiting: Beyond so many, one more is turned away.
        cost: What a request adds to a pass beyond its row.
        most_cost: Of one pass; a request that costs more has one for itself.
        on_batch: Is told the size of each pass.
    """

    def __init__(
        self,
        answer: Callable[[list[Asked]], list[Answer]],
        *,
        most_together: int,
        most_waiting: int,
        cost: Callable[[Asked], int] = lambda asked: 0,
        most_cost: int = 0,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._answer = answer
        self._most_together = most_together
        self._most_waiting = most_waiting
        self._cost = cost
        self._most_cost = most_cost
        self._on_batch = on_batch
        self._askers: deque[_Waiting[Asked, Answer]] = deque()
        self._n_waiting = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="answers")
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="beside")
        self._working: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether as many wait as are taken, whatever they ask for."""
        return self._n_waiting >= self._most_waiting

    async def ask(self, *asked: Asked) -> list[Answer]:
        """Wait for the answers to some requests.

        Raises:
            RequestError: If too many wait.
        """
        if self.is_full:
            raise overloaded()
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Answer]] = [loop.create_future() for _ in asked]
        if asked:
            self._askers.append(deque(zip(asked, answers, strict=True)))
            self._n_waiting += len(asked)
        if self._working is None or self._working.done():
            self._working = loop.create_task(self._work())
        return list(await asyncio.gather(*answers)) if len(answers) != 1 else [await answers[0]]

    async def run(self, compute: Callable[[], Outcome]) -> Outcome:
        """Compute something else in the same thread, in its turn.

        Raises:
            RequestError: If too many wait.
        """
        return await self._run(self._thread, compute)

    async def run_beside(self, compute: Callable[[], Outcome]) -> Outcome:
        """Compute something that does not need the network in a second thread.

        Raises:
            RequestError: If too many wait.
        """
        return await self._run(self._beside, compute)

    def close(self) -> None:
        """End the threads when they have done what they are at."""
        self._thread.shutdown(wait=True)
        self._beside.shutdown(wait=True)

    async def _run(self, thread: ThreadPoolExecutor, compute: Callable[[], Outcome]) -> Outcome:
        if self.is_full:
            raise overloaded()
        self._n_waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, compute)
        finally:
            self._n_waiting -= 1

    async def _work(self) -> None:
        while taken := self._take():
            try:
                await self._answer_all(taken)
                self._on_batch(len(taken))
            except Exception as error:
                if len(taken) == 1:
                    _give(taken[0][1], error)
                    continue
                for one in taken:  # the fault of one is not that of the others
                    try:
                        await self._answer_all([one])
                    except Exception as own:
                        _give(one[1], own)

    def _take(self) -> list[tuple[Asked, asyncio.Future[Answer]]]:
        """What the next pass answers: one request of each asker in turn, at least one in all."""
        taken: list[tuple[Asked, asyncio.Future[Answer]]] = []
        cost = 0
        while self._askers and len(taken) < self._most_together:
            asker = self._askers[0]
            asked, future = asker[0]
            is_gone = future.done()  # who asked has hung up
            more = 0 if is_gone else self._cost(asked)
            if taken and cost + more > self._most_cost:
                break
            asker.popleft()
            self._n_waiting -= 1
            self._askers.rotate(-1)
            if not asker:
                self._askers.pop()
            if not is_gone:
                taken.append((asked, future))
                cost += more
        return taken

    async def _answer_all(self, taken: list[tuple[Asked, asyncio.Future[Answer]]]) -> None:
        loop = asyncio.get_running_loop()
        compute = partial(self._answer, [asked for asked, _ in taken])
        found = await loop.run_in_executor(self._thread, compute)
        for (_, future), answer in zip(taken, found, strict=True):
            _give(future, answer)


def _give(future: asyncio.Future[Answer], outcome: Answer | Exception) -> None:
    """Tell somebody the answer, or what went wrong; who asked may have gone."""
    if future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
