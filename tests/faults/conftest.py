"""Fixtures: a server of forks, a cache of two shards, and what is promised about it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Outcome, build_encoder, random_rows, shard_bytes, write_csv
from tests.faults.disk import ask

ROOT = Path(__file__).parents[2]
EXTRACT = ("--set", "shard-rows=12", "--set", "batch-tokens=64", "--device", "cpu")


class Forks:
    """Runs commands in forks of one process that has everything imported."""

    def __init__(self, address: str, process: subprocess.Popen[bytes]) -> None:
        self.address = address
        self.process = process

    def run(self, arguments: Sequence[str], **job: Any) -> Outcome:
        """Run ``gaam ARGUMENTS`` under the circumstances of ``job``; see fork_server.prepare."""
        answer = ask(self.address, {"arguments": list(arguments), **job})
        return Outcome(**answer)

    @contextmanager
    def after(self, address: Path, arguments: Sequence[str]) -> Iterator[Forks]:
        """While open, forks of a fork that has run a command, and has imported nothing again."""
        address.unlink(missing_ok=True)  # of a server before this one, who answers no more
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(self.run, arguments, serve=str(address))
            while not address.exists():
                if ended.done():
                    raise RuntimeError(f"the server of forks did not start: {ended.result()}")
                time.sleep(0.01)
            try:
                yield Forks(str(address), self.process)
            finally:
                os.kill(int(Path(f"{address}.pid").read_text()), signal.SIGKILL)


def start_forks(address: Path, warm_up: Sequence[str], *prefix: str) -> Forks:
    """Start a server; ``prefix`` is a command that runs it."""
    command = [*prefix, sys.executable, "-m", "tests.faults.fork_server", str(address), *warm_up]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    address.unlink(missing_ok=True)  # of a server before this one, who answers no more
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    while not address.exists():
        if process.poll() is not None:
            raise RuntimeError("the server of forks did not start")
        time.sleep(0.05)
    return Forks(str(address), process)


class Bench:
    """A place that other users may enter, with the arguments of one small extraction."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.encoder = build_encoder(root / "encoder", "bert")
        write_csv(root / "data" / "train.csv", [("a", "goal"), ("b", "bank"), *random_rows(10, 1)])
        write_csv(root / "data" / "test.csv", random_rows(9, 2))
        for file in self.encoder.iterdir():
            file.chmod(0o644)

    def arguments(self, out: Path) -> list[str]:
        """Of an extraction of two shards into ``out``."""
        places = ("--encoder", self.encoder, "--dataset", self.root / "data", "--out", out)
        return ["extract", *map(str, places), *EXTRACT]


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="gaam-faults-") as folder:
        Path(folder).chmod(0o755)
        yield Bench(Path(folder))


@pytest.fixture(scope="session")
def forks(bench: Bench) -> Iterator[Forks]:
    """The server; the extraction that warms it up, undisturbed, is the reference."""
    server = start_forks(bench.root / "socket", bench.arguments(bench.root / "reference"))
    yield server
    server.process.terminate()
    server.process.wait()


def published(folder: Path) -> dict[str, bytes]:
    """The plan, every receipt and the file it names: what a cache consists of by FORMAT.md."""
    names = ["cache.json"] if (folder / "cache.json").exists() else []
    for receipt in folder.glob("shards/*.json"):
        names += [f"shards/{receipt.name}", f"shards/{json.loads(receipt.read_bytes())['file']}"]
    return {name: (folder / name).read_bytes() for name in names}


def temporary_files(folder: Path) -> list[str]:
    return [file.name for file in folder.rglob("*.tmp")]


@pytest.fixture(scope="session")
def reference(forks: Forks, bench: Bench) -> dict[str, bytes]:
    """Every file of an undisturbed extraction."""
    return shard_bytes(bench.root / "reference")


@pytest.fixture(scope="session")
def recorded(forks: Forks, bench: Bench) -> list[tuple[str, str, str]]:
    """Who reports it ('call' or 'audit'), operation and path, of all that an extraction does."""
    out, log = bench.root / "recorded", bench.root / "log"
    job = {"folder": str(out), "nth": 0, "fault": ["record", str(log)]}
    assert forks.run(bench.arguments(out), **job).code == 0
    records = []
    for line in log.read_text().splitlines():
        source, operation, path = line.split(" ", 2)
        records.append((source, operation, path))
    return records


class Sweep:
    """A fault at the Nth call, for every N; or for every fourth, where tests are to be quick."""

    def __init__(
        self,
        forks: Forks,
        bench: Bench,
        recorded: list[tuple[str, str, str]],
        root: Path,
        places: slice,
    ) -> None:
        self.places = places
        self.forks = forks
        self.bench = bench
        self.root = root
        self.calls = [operation for source, operation, _ in recorded if source == "call"]
        self.reference = published(bench.root / "reference")

    def run(
        self,
        fault: Sequence[Any],
        check: Callable[[str, Outcome, Path], None],
        *,
        operations: Sequence[str] | None = None,
    ) -> None:
        """Let ``fault`` strike at the calls, and once behind the last of them.

        After each: what is published is as it should be, ``check(operation, outcome, folder)``
        holds, and a second run completes the cache.
        """
        calls = [name for name in self.calls if operations is None or name in operations]
        assert len(calls) >= 4

        def strike(nth: int) -> None:
            out = self.root / f"{nth}"
            job = {"folder": str(out), "nth": nth, "fault": fault, "operations": operations}
            outcome = self.forks.run(self.bench.arguments(out), **job)
            if nth > len(calls):
                assert outcome.code == 0, outcome.err
                assert published(out) == self.reference
                return
            kept = published(out)
            assert kept.items() <= self.reference.items()
            check(calls[nth - 1], outcome, out)
            again = self.forks.run(self.bench.arguments(out))
            assert (again.code, again.err) == (0, "")
            assert published(out) == self.reference

        def report(nth: int) -> str | None:
            try:
                strike(nth)
            except AssertionError as error:
                return f"at call {nth} ({[*calls, 'none'][nth - 1]}): {error}"
            return None

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            places = [*range(1, len(calls) + 1)[self.places], len(calls) + 1]
            failures = [text for text in pool.map(report, places) if text]
        assert not failures, "\n\n".join(failures)


@pytest.fixture
def places(request: pytest.FixtureRequest) -> slice:
    """At which calls to strike: every fourth where tests are to be quick, else all.

    Other tests begin at other calls, so that all of them together meet each.
    """
    quick = request.config.getoption("markexpr") == "not slow"
    return slice(zlib.crc32(request.node.name.encode()) % 4, None, 4) if quick else slice(None)


@pytest.fixture
def sweep(
    forks: Forks,
    bench: Bench,
    recorded: list[tuple[str, str, str]],
    tmp_path: Path,
    places: slice,
) -> Sweep:
    return Sweep(forks, bench, recorded, tmp_path, places)
