"""A service of two workers under all that may happen to it: no valid request may be lost.

Models are swapped, damaged, forged and copied over in place, workers are killed, clients are slow
or greedy. A valid request may fail only if it was on its way when a worker was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import numpy as np

from campaign.tally import BUSY, Tally, seeded
from campaign.wire import HEAD, children, serving
from cfnade.folders import replace_folder
from cfnade.storage.folder import save_artifact
from tests.serve.running import Running
from tests.storage.saved import random_artifact, seal

SEEN_SECONDS = 300.0  # for a new model or a new worker, on a machine that others may use
OTHER_ADDRESS = "127.0.0.2"
ACTIONS = ("swap", "copy over", "damage", "forge", "kill", "slow clients", "greedy client")


def soak(numbers: range, seed: int, until: float) -> Tally:
    """Do things to a service, one for each number or as time allows, while four clients ask."""
    tally, started = Tally(), time.monotonic()
    with serving("--workers", "2", "--watch", "0.2") as (service, folder):
        service.timeout *= BUSY
        state = _State(service, folder)
        clients = [threading.Thread(target=state.ask, args=(tally,)) for _ in range(4)]
        for client in clients:
            client.start()
        rng = seeded("soak", seed)
        try:
            for number in numbers:
                if time.monotonic() > until:
                    break
                state.act(tally, rng, ACTIONS[number % len(ACTIONS)], f"soak {seed}/{number}")
                time.sleep(0.2)
        finally:
            state.is_over = True
            for client in clients:
                client.join()
        for sent, ended in state.lost:
            if any(sent <= after and ended >= before for before, after in state.kills):
                tally.add("lost with a killed worker")
            else:
                tally.fail("a valid request was lost")
        if "Traceback" in (log := service.log.read_text()):
            tally.fail(f"a traceback in the log: {log[log.index('Traceback') :][:500]}")
    tally.seconds = time.monotonic() - started
    return tally


class _State:
    """What is shared by the clients and those who disturb them."""

    def __init__(self, service: Running, folder: Path) -> None:
        self.service, self.folder = service, folder
        self.is_over = False
        self.lost: list[tuple[float, float]] = []
        """When a request was sent that got no right answer, and when that was known."""
        self.kills: list[tuple[float, float]] = []
        """When workers were killed: just before and just after."""
        self._n_models = 0
        self._lock = threading.Lock()

    def ask(self, tally: Tally) -> None:
        """Ask valid requests until it is over; an answer must be whole."""
        while not self.is_over:
            sent = time.monotonic()
            try:
                answer = self.service.post("/v1/recommend", {"history": {"film-1": 2}, "n": 3})
                is_right = answer.status == 200 and len(answer.json["recommendations"]) == 3
            except OSError:
                is_right = False
            except Exception:  # half an answer
                is_right = False
            with self._lock:
                if is_right:
                    tally.add("answered")
                else:
                    self.lost.append((sent, time.monotonic()))
            time.sleep(0.01)

    def act(self, tally: Tally, rng: random.Random, action: str, what: str) -> None:
        """Do one thing, and see that it ends well."""
        if action in ("swap", "copy over", "damage", "forge"):
            problem = self._change_model(rng, action)
        elif action == "kill":
            problem = self._kill(rng)
        else:
            problem = self._disturb(rng, action)
        with self._lock:
            tally.add(action) if problem is None else tally.fail(f"{what}, {action}: {problem}")

    def _change_model(self, rng: random.Random, action: str) -> str | None:
        self._n_models += 1
        new = self.folder.with_name("next")
        shutil.rmtree(new, ignore_errors=True)
        made = random_artifact(np.random.default_rng(self._n_models))
        save_artifact(made, new)
        described = json.loads((new / "model.json").read_text())
        if action == "damage":
            path = new / rng.choice(("weights.safetensors", "items.json", "ratings.safetensors"))
            path.write_bytes(path.read_bytes()[: rng.randrange(1, 50)])
        elif action == "forge":
            items = json.loads((new / "items.json").read_text())
            items |= {"dtype": "<i8", "types": ["decimal"]}
            items["ids"] = [f"{i}E+99999999" for i in range(len(items["ids"]))]
            (new / "items.json").write_text(json.dumps(items))
            seal(new)
        if action == "copy over":
            if rng.random() < 0.5:
                subprocess.run(["cp", "-r", f"{new}/.", str(self.folder)], check=True)
            else:  # as a slow `cp` does
                for path in sorted(new.iterdir()):
                    target = self.folder / path.name
                    target.write_bytes(b"")  # the file in use is cut to nothing
                    time.sleep(rng.uniform(0, 0.2))
                    target.write_bytes(path.read_bytes())
        else:
            replace_folder(new, self.folder)
        expected = described["sha256"][:12]
        until = time.monotonic() + SEEN_SECONDS
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                seen = [self.service.get("/v1/model").json for _ in range(6)]
                if action in ("damage", "forge") and all(model["refused"] for model in seen):
                    return None
                if all(model["version"] == expected for model in seen):
                    return None
            time.sleep(0.1)
        return "the workers do not see it"

    def _kill(self, rng: random.Random) -> str | None:
        """Kill a worker, or both."""
        before = _workers(self.service)
        if not before:
            return "there is no worker"
        started = time.monotonic()
        for pid in before if rng.random() < 0.2 else [rng.choice(before)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with self._lock:
            self.kills.append((started, time.monotonic()))
        until = time.monotonic() + SEEN_SECONDS
        while time.monotonic() < until:
            now = _workers(self.service)
            if now != before and len(now) == 2:
                return None
            time.sleep(0.1)
        return "the worker is not replaced"

    def _disturb(self, rng: random.Random, action: str) -> str | None:
        """Open connections that never finish a head, or one that sends a head without end."""
        address = ("127.0.0.1", self.service.port)
        source = (rng.choice(("127.0.0.1", OTHER_ADDRESS)), 0)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            if action == "slow clients":
                for _ in range(300):
                    one = stack.enter_context(socket.create_connection(address, 10, source))
                    one.sendall(HEAD[: rng.choice((1, 40, len(HEAD) - 1))])
                is_first = len(self.kills) < 2  # short in a short run
                time.sleep(0.5 if is_first else rng.choice((0.5, 1.0, 12.0)))
            else:
                one = stack.enter_context(socket.create_connection(address, 10, source))
                one.sendall(HEAD[:60])
                for _ in range(500):
                    one.sendall(b"x-many: 1\r\n" * 6_000)
                return "33 MB of header lines were taken"
        return None


def _workers(service: Running) -> list[int]:
    """The processes that answer; the supervisor may also have one that tries a model."""
    found = []
    for pid in children(service.process.pid):
        with contextlib.suppress(OSError):
            if b"cfnade.serve.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found
