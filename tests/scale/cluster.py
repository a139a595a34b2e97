"""A real Spark standalone cluster on loopback: a master and workers, started and stopped here."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Cluster:
    """A master and its workers in processes of this machine."""

    folder: Path
    worker_memory: str = "2g"
    worker_cores: int = 2  # so that two applications of two executors fit beside each other
    java_options: str = (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"  # jobs of seconds: up sooner
    )
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    url: str = ""

    def start(self, n_workers: int) -> Cluster:
        self._start(
            "master", "deploy.master.Master", "--host", "127.0.0.1", "--port", "0",
            "--webui-port", "0",
        )  # fmt: skip
        log = self._wait_for("master", "New state: ALIVE")
        (self.url,) = set(re.findall(r"spark://127\.0\.0\.1:\d+", log))
        for _ in range(n_workers):
            self.add_worker()
        for number in range(n_workers):
            self._wait_for(f"worker-{number}", "Successfully registered")
        return self

    def add_worker(self) -> None:
        name = f"worker-{len(self.workers)}"
        worker = self._start(
            name, "deploy.worker.Worker", "--host", "127.0.0.1",
            "--cores", str(self.worker_cores), "--memory", self.worker_memory,
            "--webui-port", "0", "--work-dir", str(self.folder / name), self.url,
        )  # fmt: skip
        self.workers.append(worker)

    def kill_worker(self, number: int) -> list[int]:
        """Kill a worker and its executors at once, as a machine that goes down does."""
        killed = [*descendants(self.workers[number].pid), self.workers[number].pid]
        for pid in killed:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.workers[number].wait()
        return killed

    def stop(self) -> None:
        for process in reversed(self.processes):
            for pid in [*descendants(process.pid), process.pid]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            process.wait()

    def settings(self) -> dict[str, str]:
        """Of a session on this cluster: small, and on loopback."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "800m",
            "spark.executor.memory": "700m",
            "spark.driver.extraJavaOptions": self.java_options,
            "spark.executor.extraJavaOptions": self.java_options,
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
            "spark.sql.shuffle.partitions": "4",
            "spark.ui.enabled": "false",
            "spark.executorEnv.PYTHONPATH": environment()["PYTHONPATH"],
            "spark.executorEnv.OMP_NUM_THREADS": "1",
        }

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        import pyspark

        home = Path(pyspark.__file__).parent
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", f"org.apache.spark.{main}", *arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={
                    **environment(),
                    "SPARK_HOME": str(home),
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": self.java_options,
                },
            )
        self.processes.append(process)
        return process

    def _wait_for(self, name: str, line: str, seconds: float = 240.0) -> str:
        """Wait for a line in a log; all lines so far."""
        log, until = self.folder / f"{name}.log", time.monotonic() + seconds
        while line not in (text := log.read_text(errors="replace")):
            if time.monotonic() > until:
                raise RuntimeError(f"{name} does not start: {text}")
            time.sleep(0.1)
        return text


def environment() -> dict[str, str]:
    """Of all that is started: this Python, this source, loopback, one thread."""
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "PYTHONWARNINGS": "ignore",
    }


def descendants(pid: int) -> list[int]:
    """Children of a process and theirs, the deepest first."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children") if children.parent.exists() else []:
        try:
            for child in map(int, tasks.read_text().split()):
                found += [*descendants(child), child]
        except OSError:
            continue
    return found
