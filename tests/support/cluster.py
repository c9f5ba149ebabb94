"""A standalone Spark cluster on this machine: a master, workers without this package, and submitted jobs."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import which
from types import TracebackType
from typing import Self, TypeVar

from retention.doctor.spark import NEEDED, ON_S3
from retention.engines.spark.java import find_java

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".pytest_cache"
TASKS_NEED = sorted({*NEEDED.values(), *ON_S3.values()} - {"lake-retention"})
"""The imports of tasks in addition to this package; only the driver needs the other dependencies."""
WORKERS = 2
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Flags of a short-lived JVM: a second compiler tier and parallel garbage collection do not pay off."""
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "WARN",
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
    "spark.executor.memory": "600m",
}
_PACKAGE = (sys.executable, "-c", "from retention.cli.main import main; main()", "package")
_ENDS_WITH_TESTS = ("setpriv", "--pdeathsig", "TERM") if which("setpriv") else ()
"""A prefix that terminates a process when this one is killed, if the system supports it."""
_PATIENCE_S = 300
_HANGS_S = 1_800
"""The wait after which a submission counts as hanging, seconds; a busy machine gives it little of its time."""
_ENDS_WITHIN = 20
_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"
_EXECUTOR = b"CoarseGrainedExecutorBackend"

Value = TypeVar("Value")


def spark_home() -> Path:
    """The folder of this Python's Spark."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def worker_python() -> Path:
    """The Python of the workers, created once: it has the imports of tasks, but not this package."""
    lock = ROOT / "requirements.lock"
    wanted = hashlib.sha256(f"{sys.version} {TASKS_NEED}".encode() + lock.read_bytes())
    folder = CACHE / f"workers-{wanted.hexdigest()[:12]}"
    python = folder / "bin" / "python"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "workers.lock").open("w") as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            uv = Path(sys.executable).with_name("uv")
            _quietly(uv, "venv", "--clear", "--python", sys.executable, folder)
            install = (uv, "pip", "install", "--python", python, "--constraint", lock)
            _quietly(*install, *TASKS_NEED)
            (folder / "ready").touch()
    return python


@dataclass(frozen=True)
class Brought:
    """The parts that a submission ships to workers: options of `spark-submit`, and the Python of tasks."""

    options: tuple[object, ...]
    python: object


def brought_zip(folder: Path) -> Brought:
    """This package as a zip, packed by the command into a folder, for the workers' own Python."""
    _quietly(*_PACKAGE, "--py-files", folder / "package.zip")
    return Brought(("--py-files", folder / "package.zip"), worker_python())


def brought_environment(folder: Path) -> Brought:
    """A whole environment as an archive, packed by the command into a folder."""
    _quietly(*_PACKAGE, "--venv", folder / "environment.tar.gz")
    archive = f"{folder / 'environment.tar.gz'}#environment"
    return Brought(("--archives", archive), "./environment/bin/python")


class Cluster:
    """A cluster that runs as long as the context: every process is a descendant of this one."""

    def __init__(self, folder: Path) -> None:
        """Start a master and its workers, with a core and a gigabyte each.

        Args:
            folder: the folder for logs, and for work directories of the workers.
        """
        self.folder = folder
        self._ends = ExitStack()
        self._workers: list[subprocess.Popen[bytes]] = []
        started, log = self._start("master", "127.0.0.1", "master.Master")
        self.url = until(lambda: _MASTER.search(log.read_text(encoding="utf-8")), started)[1]
        self.add_workers(WORKERS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.close()

    def add_workers(self, count: int) -> None:
        """Start more workers, each on its own address, and wait for them.

        Spark does not start a speculative copy of a task at the same address.
        """
        size = ("--cores", "1", "--memory", "1g")
        started = []
        for _ in range(count):
            name = f"worker-{len(self._workers)}"
            place = ("--work-dir", str(self.folder / name), self.url)
            address = f"127.0.0.{len(self._workers) + 2}"
            started.append(self._start(name, address, "worker.Worker", *size, *place))
            self._workers.append(started[-1][0])
        for worker, log in started:
            until(partial(_says, log, _REGISTERED), worker)

    def executors(self) -> list[int]:
        """The ids of the processes that run tasks, in the order of their workers."""
        return [
            child for worker in self._workers for child in children(worker.pid) if executes(child)
        ]

    def kill_worker(self, executor: int) -> None:
        """Kill the worker of an executor together with the executor, like a crash of the machine."""
        (worker,) = (worker for worker in self._workers if executor in children(worker.pid))
        for process in (worker.pid, executor):
            os.kill(process, signal.SIGKILL)
        worker.wait()

    def environment(self, **variables: object) -> dict[str, str]:
        """The environment of a shell that submits jobs; only the driver gets the path of this package."""
        return {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.folder),
            "JAVA_HOME": str(find_java()),
            "PYTHONPATH": str(ROOT),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **{name: str(value) for name, value in variables.items()},
        }

    def command(
        self, brought: Brought, job: str | Path, *arguments: object, **settings: str
    ) -> list[str]:
        """The command line to submit a job: one of `jobs/` by its name, or a program by its path."""
        program = ROOT / "jobs" / f"{job}.py" if isinstance(job, str) else job
        submit = spark_home() / "bin" / "spark-submit"
        words: list[object] = [*_ENDS_WITH_TESTS, submit, "--master", self.url]
        for name, value in (_SETTINGS | settings).items():
            words += ["--conf", f"{name}={value}"]
        return [str(word) for word in (*words, *brought.options, program, *arguments)]

    def submit(
        self, brought: Brought, job: str | Path, *arguments: object, **settings: object
    ) -> subprocess.CompletedProcess[str]:
        """Submit a job, and wait for its end.

        `spark-submit` prints on its standard output what Python writes to either.

        Args:
            brought: the shipped parts.
            job: as in `command`.
            arguments: the job's arguments.
            settings: settings of Spark, without the prefix `spark.`, with `_` for `.`.
        """
        named = {f"spark.{name.replace('_', '.')}": str(value) for name, value in settings.items()}
        return subprocess.run(
            self.command(brought, job, *arguments, **named),
            cwd=self.folder,
            env=self.environment(PYSPARK_PYTHON=brought.python),
            capture_output=True,
            text=True,
            check=False,
            timeout=_HANGS_S,
        )

    def _start(
        self, name: str, address: str, kind: str, *words: str
    ) -> tuple[subprocess.Popen[bytes], Path]:
        """Start a Spark daemon in the foreground; returns the process, and its log."""
        log = self.folder / f"{name}.log"
        known = {"PATH": "/usr/bin:/bin", "SPARK_LOCAL_IP": address}
        places = {"JAVA_HOME": str(find_java()), "SPARK_HOME": str(spark_home())}
        options = {
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        with log.open("wb") as sink:
            started = subprocess.Popen(
                [
                    *_ENDS_WITH_TESTS,
                    spark_home() / "bin" / "spark-class",
                    f"org.apache.spark.deploy.{kind}",
                    *("--host", address, "--port", "0", "--webui-port", "0"),
                    *words,
                ],
                cwd=self.folder,
                env=known | places | options,
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        self._ends.callback(_end, started)
        return started, log


def until(
    reached: Callable[[], Value | None], process: subprocess.Popen[bytes] | None = None
) -> Value:
    """Wait for a value, as long as a busy machine may take; returns it."""
    ends = time.monotonic() + _PATIENCE_S
    while not (value := reached()):
        assert process is None or process.poll() is None, "the process has ended"
        assert time.monotonic() < ends, f"it took longer than {_PATIENCE_S} s"
        time.sleep(0.05)
    return value


def children(process: int) -> list[int]:
    """The ids of a process's children; none if it has ended."""
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
    except OSError:
        return []
    # A thread's children are listed with the thread that started them.
    return sorted({int(child) for thread in threads for child in _words(thread / "children")})


def parent(process: int) -> int:
    """The id of a process's parent."""
    status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    return int(status.rpartition(")")[2].split()[1])


def executes(process: int) -> bool:
    """Whether a process runs tasks."""
    try:
        return _EXECUTOR in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def _says(log: Path, text: str) -> bool:
    return text in log.read_text(encoding="utf-8")


def _words(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8").split()
    except OSError:
        return []


def _end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process and its children; kill it if it does not end."""
    process.terminate()
    try:
        process.wait(_ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _quietly(*words: object) -> None:
    done = subprocess.run(
        [*map(str, words)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
