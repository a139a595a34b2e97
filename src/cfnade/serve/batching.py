"""Requests that wait are answered together; a request that comes alone does not wait."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from cfnade.serve.problems import overloaded

Asked = TypeVar("Asked")
Given = TypeVar("Given")
Result = TypeVar("Result")
_Request: TypeAlias = "tuple[Asked, asyncio.Future[Given]]"


@dataclass(eq=False)
class Batcher(Generic[Asked, Given]):
    """Computes in one thread, so that the event loop never does.

    No request is delayed to fill a batch: when the thread is free it takes all that wait. So
    batches grow with the load, and each reads the weights once. A pass takes from all callers in
    turn, and only as much as `most_cost` allows, so that nobody waits for a hundred requests of
    somebody else.
    """

    answer: Callable[[list[Asked]], list[Given]]
    """Computes the answers to some requests."""
    most_together: int
    """Maximum number of requests in one pass."""
    most_waiting: int
    """Maximum number of waiting requests; further ones are turned away."""
    cost: Callable[[Asked], int] = lambda asked: 0
    """What a request adds to a pass beyond its row."""
    most_cost: int = 0
    """Of one pass; a request that costs more gets a pass of its own."""
    on_batch: Callable[[int], None] = lambda size: None
    """Called with the size of each pass."""

    def __post_init__(self) -> None:
        self._callers: deque[deque[_Request[Asked, Given]]] = deque()
        self._n_waiting = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="answers")
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="beside")
        self._working: asyncio.Task[None] | None = None

    def check_room(self) -> None:
        """Raise a RequestError if too many requests wait; the methods below do so too."""
        if self._n_waiting >= self.most_waiting:
            raise overloaded()

    async def ask(self, *asked: Asked) -> list[Given]:
        """Wait for the answers to some requests."""
        self.check_room()
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Given]] = [loop.create_future() for _ in asked]
        if asked:
            self._callers.append(deque(zip(asked, answers, strict=True)))
            self._n_waiting += len(asked)
        if self._working is None or self._working.done():
            self._working = loop.create_task(self._work())
        return list(await asyncio.gather(*answers)) if len(answers) != 1 else [await answers[0]]

    async def run(self, compute: Callable[[], Result]) -> Result:
        """Compute something else in the same thread."""
        return await self._run(self._thread, compute)

    async def run_beside(self, compute: Callable[[], Result]) -> Result:
        """Compute something that does not need the network in a second thread."""
        return await self._run(self._beside, compute)

    def close(self) -> None:
        """End the threads when their present work is done."""
        self._thread.shutdown(wait=True)
        self._beside.shutdown(wait=True)

    async def _run(self, thread: ThreadPoolExecutor, compute: Callable[[], Result]) -> Result:
        self.check_room()
        self._n_waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, compute)
        finally:
            self._n_waiting -= 1

    async def _work(self) -> None:
        while taken := self._take():
            await self._answer_all(taken)

    def _take(self) -> list[_Request[Asked, Given]]:
        """The next pass: one request of each caller in turn, at least one in all."""
        taken: list[_Request[Asked, Given]] = []
        cost = 0
        while self._callers and len(taken) < self.most_together:
            caller = self._callers[0]
            asked, future = caller[0]
            is_gone = future.done()  # the client has hung up
            more = 0 if is_gone else self.cost(asked)
            if taken and cost + more > self.most_cost:
                break
            caller.popleft()
            self._n_waiting -= 1
            self._callers.rotate(-1)
            if not caller:
                self._callers.pop()
            if not is_gone:
                taken.append((asked, future))
                cost += more
        return taken

    async def _answer_all(self, taken: list[_Request[Asked, Given]]) -> None:
        compute = partial(self.answer, [asked for asked, _ in taken])
        try:
            found = await asyncio.get_running_loop().run_in_executor(self._thread, compute)
            for (_, future), answer in zip(taken, found, strict=True):
                if not future.done():  # the client has not hung up
                    future.set_result(answer)
            self.on_batch(len(taken))
        except Exception as error:
            if len(taken) > 1:
                for one in taken:  # an error of one must not fail the others
                    await self._answer_all([one])
            elif not taken[0][1].done():
                taken[0][1].set_exception(error)
