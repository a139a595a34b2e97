"""Who waits is answered together; who comes alone waits for nobody."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from cfnade.serve.batching import Batcher
from cfnade.serve.problems import RequestError


def make(answer, **limits):
    return Batcher(answer, **{"most_together": 4, "most_waiting": 100, **limits})


def test_what_comes_in_meanwhile_is_answered_in_one_go():
    sizes, gate = [], threading.Event()

    def answer(asked):
        sizes.append(len(asked))
        gate.wait(5)
        return [2 * one for one in asked]

    async def main():
        batcher = make(answer)
        first = asyncio.create_task(batcher.ask(0))
        await asyncio.sleep(0.05)  # it is being worked on
        rest = [asyncio.create_task(batcher.ask(k)) for k in range(1, 8)]
        await asyncio.sleep(0.05)
        gate.set()
        answers = await asyncio.gather(first, *rest)
        batcher.close()
        return answers

    assert asyncio.run(main()) == [[2 * k] for k in range(8)]
    assert sizes == [1, 4, 3]  # alone at once, then as many as may go together


def test_the_event_loop_goes_on_while_answers_are_computed():
    async def main():
        batcher = make(lambda asked: time.sleep(0.3) or asked)
        task = asyncio.create_task(batcher.ask("x"))
        n_turns = 0
        while not task.done():
            await asyncio.sleep(0.01)
            n_turns += 1
        batcher.close()
        return n_turns

    assert asyncio.run(main()) > 10


def test_one_more_than_may_wait_is_turned_away():
    gate = threading.Event()

    async def main():
        batcher = make(lambda asked: gate.wait(5) and asked, most_waiting=2)
        tasks = [asyncio.create_task(batcher.ask(1))]
        await asyncio.sleep(0.05)
        tasks += [asyncio.create_task(batcher.ask(k)) for k in (2, 3)]
        await asyncio.sleep(0.05)
        assert batcher.is_full
        with pytest.raises(RequestError) as refused:
            await batcher.ask(4)
        gate.set()
        assert await asyncio.gather(*tasks) == [[1], [2], [3]]
        assert not batcher.is_full
        batcher.close()
        return refused.value

    error = asyncio.run(main())
    assert error.status == 503 and error.headers == {"retry-after": "1"}


def test_an_error_reaches_all_who_asked_and_the_next_is_answered():
    def answer(asked):
        if "bad" in asked:
            raise ValueError("no")
        return asked

    async def main():
        batcher = make(answer)
        with pytest.raises(ValueError, match="no"):
            await batcher.ask("bad", "good")
        assert await batcher.ask("good") == ["good"]
        assert await batcher.ask() == []
        batcher.close()

    asyncio.run(main())


def test_someone_who_left_does_not_disturb_the_others():
    gate = threading.Event()

    async def main():
        batcher = make(lambda asked: gate.wait(5) and asked)
        gone = asyncio.create_task(batcher.ask("gone"))
        stays = asyncio.create_task(batcher.ask("stays"))
        await asyncio.sleep(0.05)
        gone.cancel()
        await asyncio.sleep(0)
        gate.set()
        assert await stays == ["stays"]
        batcher.close()

    asyncio.run(main())
