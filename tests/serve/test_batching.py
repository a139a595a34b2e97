"""Waiting requests are answered together; a request that comes alone does not wait."""

from __future__ import annotations

import asyncio
import threading

import pytest

from cfnade.serve.batching import Batcher
from cfnade.serve.problems import RequestError


def make(answer, **limits):
    return Batcher(answer, **{"most_together": 4, "most_waiting": 100, **limits})


class Gated:
    """Answers with what was asked, as soon as its gate is open."""

    def __init__(self):
        self.passes, self.gate = [], threading.Event()

    def __call__(self, asked):
        self.passes.append(asked)
        self.gate.wait(60)
        return asked


def is_full(batcher):
    try:
        batcher.check_room()
    except RequestError:
        return True
    return False


async def until(condition):
    """Wait for another thread."""
    while not condition():
        await asyncio.sleep(0.001)


def test_what_comes_in_meanwhile_is_answered_in_one_go():
    sizes, gate = [], threading.Event()

    def answer(asked):
        sizes.append(len(asked))
        gate.wait(60)
        return [2 * one for one in asked]

    async def main():
        batcher = make(answer)
        first = asyncio.create_task(batcher.ask(0))
        await until(lambda: sizes)  # it is being worked on
        rest = [asyncio.create_task(batcher.ask(k)) for k in range(1, 8)]
        await asyncio.sleep(0)  # all have asked
        gate.set()
        answers = await asyncio.gather(first, *rest)
        batcher.close()
        return answers

    assert asyncio.run(main()) == [[2 * k] for k in range(8)]
    assert sizes == [1, 4, 3]  # alone at once, then as many as may go together


def test_the_event_loop_goes_on_while_answers_are_computed():
    gate = threading.Event()

    async def main():
        batcher = make(lambda asked: gate.wait(60) and asked)
        task = asyncio.create_task(batcher.ask("x"))
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not task.done()
        gate.set()
        assert await task == ["x"]
        batcher.close()

    asyncio.run(main())


def test_one_more_than_may_wait_is_turned_away():
    answer = Gated()

    async def main():
        batcher = make(answer, most_waiting=2)
        tasks = [asyncio.create_task(batcher.ask(1))]
        await until(lambda: answer.passes)
        tasks += [asyncio.create_task(batcher.ask(k)) for k in (2, 3)]
        await asyncio.sleep(0)
        assert is_full(batcher)
        with pytest.raises(RequestError) as refused:
            await batcher.ask(4)
        answer.gate.set()
        assert await asyncio.gather(*tasks) == [[1], [2], [3]]
        assert not is_full(batcher)
        batcher.close()
        return refused.value

    error = asyncio.run(main())
    assert error.status == 503 and error.headers == {"retry-after": "1"}


def test_an_error_reaches_who_asked_and_nobody_else():
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
        together = await asyncio.gather(
            *(batcher.ask(one) for one in ("first", "a", "bad", "b")), return_exceptions=True
        )
        assert together[:2] == [["first"], ["a"]] and together[3] == ["b"]
        assert isinstance(together[2], ValueError)
        assert not is_full(batcher)
        batcher.close()

    asyncio.run(main())


def passes_of(asks, **limits):
    """The passes in which askers are answered who come while another is."""
    answer = Gated()

    async def main():
        batcher = make(answer, **limits)
        tasks = [asyncio.create_task(batcher.ask(0))]
        await until(lambda: answer.passes)
        tasks += [asyncio.create_task(batcher.ask(*asked)) for asked in asks]
        await asyncio.sleep(0)
        answer.gate.set()
        answers = await asyncio.gather(*tasks)
        batcher.close()
        assert answers == [[0], *map(list, asks)]

    asyncio.run(main())
    return answer.passes[1:]


def test_somebody_with_many_requests_takes_turns_with_the_others():
    many, others = [10, 11, 12, 13, 14, 15], [[20], [30]]
    assert passes_of([many, *others]) == [[10, 20, 30, 11], [12, 13, 14, 15]]


def test_a_pass_holds_no_more_than_it_may_cost():
    asks = [[5], [6], [1], [2], [90], [3]]
    passes = passes_of(asks, cost=lambda asked: asked, most_cost=10)
    assert passes == [[5], [6, 1, 2], [90], [3]]


def test_who_has_gone_before_their_turn_is_not_computed_for():
    answer = Gated()

    async def main():
        batcher = make(answer)
        tasks = [asyncio.create_task(batcher.ask(name)) for name in ("first",)]
        await until(lambda: answer.passes)
        gone = asyncio.create_task(batcher.ask("gone", "gone"))
        tasks.append(asyncio.create_task(batcher.ask("stays")))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        answer.gate.set()
        await asyncio.gather(*tasks)
        batcher.close()

    asyncio.run(main())
    assert answer.passes == [["first"], ["stays"]]


@pytest.mark.parametrize("way", ["run", "run_beside"])
def test_other_work_counts_among_what_waits(way):
    gate = threading.Event()

    async def main():
        batcher = make(lambda asked: asked, most_waiting=2)
        run = getattr(batcher, way)
        tasks = [asyncio.create_task(run(lambda: gate.wait(60))) for _ in range(2)]
        await asyncio.sleep(0)
        assert is_full(batcher)
        for one_more in (run(int), batcher.ask(1)):
            with pytest.raises(RequestError, match="too many"):
                await one_more
        gate.set()
        await asyncio.gather(*tasks)
        assert not is_full(batcher) and await batcher.ask(1) == [1]
        batcher.close()

    asyncio.run(main())


def test_someone_who_left_does_not_disturb_the_others():
    answer = Gated()

    async def main():
        batcher = make(answer)
        gone = asyncio.create_task(batcher.ask("gone"))
        stays = asyncio.create_task(batcher.ask("stays"))
        await until(lambda: answer.passes)
        gone.cancel()
        await asyncio.sleep(0)
        answer.gate.set()
        assert await stays == ["stays"]
        batcher.close()

    asyncio.run(main())
