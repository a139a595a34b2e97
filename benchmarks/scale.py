"""Measure scale-out on one machine: python benchmarks/scale.py [--quick].

A part of the simulated service with the paper's 17,348 items is prepared and scored on a Spark
cluster of one and of two workers (one core each), and trained by one and by two processes (one
thread each). Writes seconds, bytes per update and peak memory to benchmarks/results/scale.json.

    python benchmarks/scale.py --users 10000000

streams this many short histories through preparation and scoring, and writes scale_users.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from cfnade.data.simulation.service_files import write_service  # noqa: E402
from cfnade.data.simulation.simulate import ServiceConfig, SimulatedService  # noqa: E402
from tests.scale.cluster import Cluster, descendants, environment  # noqa: E402

RESULTS = Path(__file__).parent / "results"
BATCH, N_HIDDEN = 1_000, 256


# What is measured ------------------------------------------------------------------------------


class Memory:
    """Peak resident memory of process trees, sampled every second."""

    def __init__(self, trees: dict[str, Callable[[], list[int]]]) -> None:
        self.trees = trees
        self.peaks = dict.fromkeys([*trees, "total"], 0)

    @contextmanager
    def watched(self) -> Iterator[Memory]:
        """Sample while the block runs."""
        done = threading.Event()

        def look() -> None:
            while not done.wait(1.0):
                sizes = {name: sum(map(resident, pids())) for name, pids in self.trees.items()}
                sizes["total"] = sum(sizes.values())
                self.peaks = {n: max(self.peaks[n], size) for n, size in sizes.items()}

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            yield self
        finally:
            done.set()
            watcher.join()

    def gigabytes(self) -> dict[str, float]:
        """The peaks; `total` is the peak of the sum."""
        return {name: round(peak / 1e9, 3) for name, peak in self.peaks.items()}


def resident(pid: int) -> int:
    """Bytes of a process, with its share of shared pages."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass  # it has ended
    return 0


def tree(pid: int) -> list[int]:
    return [pid, *descendants(pid)]


def spark_job(cluster: Cluster, arguments: dict[str, Any], **settings: str) -> dict[str, Any]:
    """Run `job` below in a driver process, and watch the memory of all processes."""
    conf = {**cluster.settings(), **settings}
    command = [sys.executable, __file__, "--job", json.dumps({"conf": conf, **arguments})]
    driver = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    trees = {
        "driver": lambda: tree(driver.pid),
        "executors": lambda: [p for worker in cluster.workers for p in descendants(worker.pid)],
        "master and workers": lambda: [process.pid for process in cluster.processes],
    }
    with Memory(trees).watched() as memory:
        said, _ = driver.communicate()
    if driver.returncode:
        raise SystemExit(f"the job failed: {arguments}")
    return {**json.loads(said.splitlines()[-1]), "peak_gb": memory.gigabytes()}


def job(arguments: dict[str, Any]) -> dict[str, Any]:
    """Prepare, score or both on a cluster; seconds without the start of Spark."""
    from cfnade.scale.cluster import spark_session
    from cfnade.scale.prepare import PrepareConfig, prepare
    from cfnade.scale.spark_scoring import score_prepared

    session = spark_session(arguments["master"], arguments["conf"])
    session.sparkContext.setLogLevel("ERROR")
    session.range(1000).selectExpr("sum(id)").collect()  # executors are running
    outcome: dict[str, Any] = {}
    ready = arguments["prepared"]
    if "data" in arguments:
        started = time.perf_counter()
        config = PrepareConfig(shards=arguments["shards"], validation_users=2_000)
        outcome["prepared"] = prepare(session.read.parquet(arguments["data"]), ready, config)
        outcome["prepare_seconds"] = round(time.perf_counter() - started, 2)
    if "model" in arguments:
        started = time.perf_counter()
        scored = score_prepared(session, ready, arguments["model"], arguments["out"])
        outcome["score_seconds"] = round(time.perf_counter() - started, 2)
        outcome["scored"] = scored
    session.stop()
    return outcome


def training(prepared: Path, out: Path, n_processes: int, epochs: int) -> dict[str, Any]:
    """Train in `n_processes` of one thread each."""
    settings = {
        "n_hidden": N_HIDDEN, "batch_size": BATCH, "max_epochs": epochs, "patience": epochs,
        "recipe__validate_every": epochs + 1, "n_threads": 1, "recipe__bias_start": "odds",
    }  # fmt: skip
    arguments = {"prepared": str(prepared), "out": str(out), "settings": settings}
    return {"n_processes": n_processes, **torchrun(n_processes, "--train", json.dumps(arguments))}


def torchrun(n_processes: int, *arguments: str) -> dict[str, Any]:
    """Run this file in several processes; return the output of the first, and peak memory."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--rdzv-backend=c10d",
        "--rdzv-endpoint=127.0.0.1:0", f"--nproc-per-node={n_processes}", __file__, *arguments,
    ]  # fmt: skip
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    with Memory({"processes": lambda: tree(process.pid)}).watched() as memory:
        said, _ = process.communicate()
    if process.returncode:
        raise SystemExit("training failed")
    return {**json.loads(said.splitlines()[-1]), "peak_gb": memory.gigabytes()["total"]}


def exchange_all(n_items: int) -> None:
    """Sum the gradient of every weight, as a plain data-parallel wrapper does."""
    import torch

    from cfnade.scale import process_group as exchange

    with exchange.joined() as together:
        gradient = torch.zeros(3 * n_items * N_HIDDEN + n_items + N_HIDDEN)
        times = []
        for _ in range(6):
            started = time.perf_counter()
            together.add_up([gradient])
            times.append(time.perf_counter() - started)
        if together.is_first:
            mb, ms = round(gradient.nbytes / 1e6, 2), round(1e3 * sorted(times)[2], 1)
            print(json.dumps({"mb": mb, "ms": ms}))


def train_here(arguments: dict[str, Any]) -> None:
    """Run one process of `training`; the first prints the outcome."""
    from cfnade.fit.pipeline import Callbacks
    from cfnade.scale import process_group as exchange
    from cfnade.scale.shard_training import train_prepared
    from cfnade.storage.folder import load_artifact

    ends: list[float] = []
    outcome = train_prepared(
        arguments["prepared"],
        arguments["out"],
        arguments["settings"],
        callbacks=Callbacks(on_step=lambda step, n: ends.append(time.perf_counter())),
    )
    if exchange.process_number() == 0:
        n_items = load_artifact(Path(arguments["out"])).network.config.n_items
        gaps = sorted(b - a for a, b in pairwise(ends))
        figures = {
            "n_items": n_items,
            "n_updates": len(ends),
            "update_ms": round(1e3 * gaps[len(gaps) // 2], 1),
            "seconds": round(outcome.seconds, 2),
            "mb_per_update": round(outcome.bytes_per_update / 1e6, 2),
        }
        print(json.dumps(figures))


# The two benchmarks ----------------------------------------------------------------------------


def compare_sizes(folder: Path, service: Path | None, *, quick: bool) -> dict[str, Any]:
    """One and two workers, one and two processes."""
    n_users = 4_000 if quick else 2 * 65_536
    if service is None:
        service = folder / "service"
        config = ServiceConfig(n_users=n_users)
        write_service(SimulatedService(config, seed=0), service)
    (folder / "part").mkdir()
    for path in sorted((service / "interactions").glob("*.parquet"))[: 1 if quick else 2]:
        (folder / "part" / path.name).symlink_to(path.resolve())
    data, model = str(folder / "part"), folder / "model1"
    jobs: list[dict[str, Any]] = []
    trained: list[dict[str, Any]] = []
    for n_workers in (1, 2):
        place = folder / f"cluster{n_workers}"
        place.mkdir()
        cluster = Cluster(place, worker_cores=1, java_options="-XX:+UseSerialGC")
        ready = folder / f"prepared{n_workers}"
        arguments = {"master": "", "prepared": str(ready), "shards": 4}
        try:
            arguments["master"] = cluster.start(n_workers).url
            large = {"spark.executor.memory": "1500m", "spark.driver.memory": "1g"}
            first = spark_job(cluster, {**arguments, "data": data}, **large)
            if n_workers == 1:
                trained = [training(ready, folder / f"model{n}", n, epochs=1) for n in (1, 2)]
            out = str(folder / f"out{n_workers}")
            second = spark_job(cluster, {**arguments, "model": str(model), "out": out}, **large)
        finally:
            cluster.stop()
        jobs.append(
            {
                "n_workers": n_workers,
                "prepare_seconds": first["prepare_seconds"],
                "prepare_peak_gb": first["peak_gb"],
                "score_seconds": second["score_seconds"],
                "score_peak_gb": second["peak_gb"],
                **second["scored"],
            }
        )
    return {
        "service": {name: first["prepared"][name] for name in ("n_users", "n_items", "n_pairs")},
        "batch_size": BATCH,
        "spark": jobs,
        "training": trained,
        "full_gradient": torchrun(2, "--full-gradient", str(trained[0]["n_items"])),
    }


def stream_users(folder: Path, n_users: int) -> dict[str, Any]:
    """Prepare and score short histories of many users."""
    n_items, n_hidden = 1_000, 64
    config = ServiceConfig(n_users=n_users, n_items=n_items, mean_history=5.0, history_spread=0.0)
    started = time.perf_counter()
    service = SimulatedService(config, seed=0)
    figures = write_service(service, folder / "service")
    print(f"simulated in {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    del service
    save_untrained(folder / "service", folder / "model", n_hidden)
    (folder / "cluster").mkdir()
    cluster = Cluster(folder / "cluster", worker_cores=1, java_options="-XX:+UseSerialGC")
    memory = {
        "spark.executor.memory": "1600m",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "64",
        "spark.local.dir": str(folder / "spill"),
    }
    try:
        arguments = {
            "master": cluster.start(2).url,
            "data": str(folder / "service" / "interactions"),
            "prepared": str(folder / "prepared"),
            "shards": 64,
            "model": str(folder / "model"),
            "out": str(folder / "out"),
        }
        outcome = spark_job(cluster, arguments, **memory)
    finally:
        cluster.stop()
    return {"service": figures, "n_hidden": n_hidden, **outcome}


def save_untrained(service: Path, out: Path, n_hidden: int) -> None:
    """A model of the right size; its recommendations do not matter here."""
    from cfnade import ImplicitCFNADE, Readout, read_interactions

    first = sorted((service / "interactions").glob("*.parquet"))[0]
    settings = {"max_epochs": 1, "validation_share": 0.0, "batch_size": 1000}
    model = ImplicitCFNADE(n_hidden=n_hidden, readout=Readout(direct=False), **settings)
    model.fit(read_interactions(first)).save(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small part")
    parser.add_argument("--users", type=int, help="stream this many users instead")
    parser.add_argument("--service", help="of `cfnade data simulate --size paper`; else simulated")
    parser.add_argument("--work", help="folder for temporary files")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    parser.add_argument("--full-gradient", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(job(json.loads(options.job))))
        return
    if options.full_gradient:
        exchange_all(options.full_gradient)
        return
    if options.train:
        train_here(json.loads(options.train))
        return
    folder = Path(tempfile.mkdtemp(prefix="cfnade-scale-", dir=options.work))
    service = None if options.service is None else Path(options.service)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        if options.users:
            outcome, name = stream_users(folder, options.users), "scale_users.json"
        else:
            outcome, name = compare_sizes(folder, service, quick=options.quick), "scale.json"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    text = json.dumps(outcome, indent=2) + "\n"
    print(text)
    if not options.quick:
        (RESULTS / name).write_text(text)


if __name__ == "__main__":
    main()
