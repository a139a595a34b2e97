"""A training beside other steps: its progress, its outcome, and how it ends."""

from concurrent.futures import CancelledError
from threading import Event

import pytest

from cfnade.fit.background import Background
from cfnade.model.training import Epoch
from cfnade.progress import Callbacks

N_EPOCHS, N_STEPS = 3, 2


def job(callbacks: Callbacks, begun: Event | None = None, go_on: Event | None = None) -> str:
    """Call back like a training; wait after the first epoch."""
    for number in range(1, N_EPOCHS + 1):
        for step in range(1, N_STEPS + 1):
            callbacks.on_step(step, N_STEPS)
        callbacks.on_epoch(Epoch(number, 0.5, None, 1.0))
        if number == 1 and begun is not None:
            begun.set()
            assert go_on.wait(60)
    return "trained"


def recorded() -> tuple[list[str], Callbacks]:
    calls: list[str] = []
    return calls, Callbacks(
        lambda epoch: calls.append(f"epoch {epoch.number}"),
        lambda step, n_steps: calls.append(f"step {step} of {n_steps}"),
    )


def test_progress_is_passed_on_once_the_outcome_is_awaited_and_no_epoch_is_left_out():
    calls, callbacks = recorded()
    begun, go_on = Event(), Event()
    with Background(callbacks) as background:
        assert not background.is_started
        background.start(lambda inner: job(inner, begun, go_on))
        assert background.is_started
        assert begun.wait(60)
        assert calls == []
        background._is_awaited.set()  # as `result` does first
        go_on.set()
        assert background.result() == "trained"
    steps = ["step 1 of 2", "step 2 of 2"]
    assert calls == ["epoch 1", *steps, "epoch 2", *steps, "epoch 3"]


def test_epochs_that_were_over_before_are_reported_at_the_end():
    calls, callbacks = recorded()
    with Background(callbacks) as background:
        background.start(job)
        background._future.result(60)
        assert calls == []
        background.result()
    assert calls == ["epoch 1", "epoch 2", "epoch 3"]


def test_an_interrupted_caller_ends_it_at_its_next_update():
    begun, go_on = Event(), Event()
    ended: list[BaseException] = []

    def watched(callbacks: Callbacks) -> str:
        try:
            return job(callbacks, begun, go_on)
        except CancelledError as error:
            ended.append(error)
            raise

    def interrupted() -> None:
        with Background(Callbacks()) as background:
            background.start(watched)
            assert begun.wait(60)
            # The caller has left once the flag is up, and waits for the thread's next update.
            background._is_stopped.set()
            go_on.set()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(ended) == 1


def test_its_error_is_the_callers():
    def broken(callbacks: Callbacks) -> None:
        raise ValueError("diverged")

    with pytest.raises(ValueError, match="diverged"), Background(Callbacks()) as background:
        background.start(broken)
        background.result()
