"""The service under load: python benchmarks/serve.py [--quick | --soak SECONDS].

17,348 items, 256 hidden units, 50 neighbours, random weights, histories of 5 to 200 items, top
10. The load comes from a second process on the same machine (`serve_load.py`), beside it the same
service doing nothing and one that answers by `implicit`'s ALS (`serve_contenders.py`). Writes
benchmarks/results/serve.json; with --soak the part `soak` of it (`serve_soak.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

from latency import save_random_model

HERE = Path(__file__).parent
OUTCOME = HERE / "results" / "serve.json"
RATES = {"cfnade": (50, 100, 200, 400, 600, 800), "nothing": (200, 800), "als": (50, 100, 200)}
MOST_CONNECTIONS = 32
TOO_SLOW_MS = 250.0
N_ROUNDS = 5


@contextlib.contextmanager
def serving(kind: str, folder: Path, n_workers: int) -> Iterator[tuple[int, list[int]]]:
    """Run a service; gives its port and the processes that answer."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    port = listening.getsockname()[1]
    if kind.startswith("cfnade"):
        listening.close()
        watch = "1" if kind == "cfnade-watching" else "0"
        options = ["--port", str(port), "--workers", str(n_workers), "--watch", watch]
        if kind == "cfnade-one-by-one":
            options += ["--together", "1"]
        started = [subprocess.Popen([sys.executable, "-m", "cfnade", "serve", folder, *options])]
    else:
        number = listening.fileno()
        command = [sys.executable, HERE / "serve_contenders.py", kind, folder, str(number)]
        started = [subprocess.Popen(command, pass_fds=[number]) for _ in range(n_workers)]
        listening.close()
    try:
        wait_until_ready(port)
        time.sleep(1.5 * n_workers)  # until all workers have loaded the model
        pids = [process.pid for process in started]
        yield port, children_of(pids[0]) if kind.startswith("cfnade") else pids
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(60)


def wait_until_ready(port: int) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5).read()
            return
        time.sleep(0.1)
    raise RuntimeError("the service does not start")


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def memory_of(pid: int) -> dict[str, float]:
    """MB of a process: all it sees, what no other sees now, and what it has written itself."""
    found: dict[str, float] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, size = line.split()[:2]
        found[name.rstrip(":")] = float(size) / 1024
    private = found["Private_Clean"] + found["Private_Dirty"]
    return {
        "rss_mb": round(found["Rss"], 1),
        "private_mb": round(private, 1),
        "written_mb": round(found["Private_Dirty"], 1),
    }


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used: it tells costs on a busy machine as well."""
    times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


def load(port: int, **plan: Any) -> dict[str, Any]:
    command = [sys.executable, HERE / "serve_load.py", str(port), json.dumps(plan)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = dict(json.loads(done.stdout))
    if found["failed"]:
        raise RuntimeError(f"{found['failed']} of {found['requests']} requests were not answered")
    return found


def rounds(port: int, rate: int, seconds: float) -> dict[str, Any]:
    """What the service was made for, measured several times on a noisy machine: the middle one."""
    found = sorted((load(port, rate=rate, seconds=seconds) for _ in range(N_ROUNDS)), key=_p99)
    return {**found[N_ROUNDS // 2], "p99_ms_of_rounds": [_p99(each) for each in found]}


def _p99(found: dict[str, Any]) -> float:
    return float(found["p99_ms"])


def measure(kind: str, folder: Path, n_workers: int, seconds: float) -> dict[str, Any]:
    """Rising load, and the most that is possible."""
    rates = RATES.get(kind.split("-")[0], ()) if kind in RATES else ()
    steps = []
    with serving(kind, folder, n_workers) as (port, pids):
        for rate in rates:
            is_goal = (kind, n_workers, rate) == ("cfnade", 1, 200)
            steps.append(
                rounds(port, rate, seconds) if is_goal else load(port, rate=rate, seconds=seconds)
            )
            print(kind, n_workers, steps[-1], flush=True)
            if steps[-1]["p99_ms"] > TOO_SLOW_MS:
                break
        before = sum(cpu_seconds(pid) for pid in pids)
        most = load(port, n_connections=MOST_CONNECTIONS, seconds=seconds)
        used = sum(cpu_seconds(pid) for pid in pids) - before
        most["cpu_ms_per_request"] = round(1e3 * used / most.pop("with_warm_up"), 3)
        print(kind, n_workers, most, flush=True)
        memory = [memory_of(pid) for pid in pids]
    print(kind, n_workers, memory, flush=True)
    return {"kind": kind, "workers": n_workers, "steps": steps, "most": most, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two seconds a step, not kept")
    parser.add_argument("--soak", type=float, metavar="SECONDS", help="soak it instead")
    options = parser.parse_args()
    outcome = json.loads(OUTCOME.read_text()) if OUTCOME.exists() else {}
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "model"
        save_random_model(folder)
        if options.soak:
            from serve_soak import soak

            outcome["soak"] = soak(folder, options.soak)
            print(json.dumps(outcome["soak"], indent=1))
        else:
            plan = [
                ("nothing", 1), ("cfnade", 1), ("cfnade-one-by-one", 1), ("als", 1),
                ("als-together", 1), ("nothing", 2), ("cfnade", 2), ("als", 2),
            ]  # fmt: skip
            seconds = 2.0 if options.quick else 6.0
            outcome["load"] = [measure(kind, folder, n, seconds) for kind, n in plan]
    if not options.quick:
        OUTCOME.write_text(json.dumps(outcome, indent=1) + "\n")


if __name__ == "__main__":
    main()
