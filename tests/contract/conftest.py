"""What the contract shares: the command line, one cache and one folder of runs.

It uses the command line, the names in ``gaam_cache.__all__`` and in
``gaam_decoder.__all__``, and nothing else, so that every room can be rebuilt under it.
``run`` runs a command in this process, ``at_once`` several, each in one of its own.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet
import pytest
import torch

import gaam_cache
import gaam_decoder
from tests.conftest import no_links, run_command
from tests.tiny import build_encoder, random_rows, write_csv

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.contract.warm"])
SECONDS = 300
"""After so long a command hangs."""
CHANGES = frozenset(
    {"open", "os.link", "os.mkdir", "os.rename", "os.remove", "os.truncate"}
)
"""Changes of files, as Python's audit hooks call them."""
WITHOUT_LINKS = {"TEST_WITHOUT_LINKS": 1}
"""An environment in which the file system has no hard links, as exFAT has none."""


class Outcome(NamedTuple):
    """What a command left; and what it did, where it ran in a process of its own."""

    code: int
    out: str = ""
    err: str = ""
    # gradients of training
    steps: int = 0
    # of files, counted where ``kill_at`` was given
    changes: int = 0

    @property
    def work(self) -> int:
        """Rows that were encoded, or steps of training."""
        summary = json.loads(self.out or "[]")
        if isinstance(summary, dict):
            return int(summary["rows_made"])
        return self.steps


def run(*arguments: object) -> Outcome:
    """Run a command in this process, as the console script does."""
    bytes_written = io.BytesIO()
    out = io.TextIOWrapper(bytes_written, encoding="utf-8", newline="")
    err = StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = run_command(arguments)
    out.flush()
    return Outcome(code, bytes_written.getvalue().decode(), err.getvalue())


class Job(NamedTuple):
    """A command for a process of its own."""

    arguments: tuple[object, ...]
    environ: dict[str, str]
    # SIGKILL comes just before this change of a file; 0: never, and none is counted
    kill_at: int


class Counts(NamedTuple):
    """Shared memory in which a process counts; it stays when the process is killed."""

    steps: Any
    changes: Any


def count_steps(counts: Counts) -> None:
    """Count the gradients of training in this process, from now on."""
    gradient = torch.autograd.grad

    def counted_gradient(*args: Any, **options: Any) -> Any:
        counts.steps.value += 1
        return gradient(*args, **options)

    torch.autograd.grad = counted_gradient


def count_changes(counts: Counts, kill_at: int) -> None:
    """Count changes of files in this process, and kill it just before one of them."""
    write_flags = os.O_WRONLY | os.O_RDWR | os.O_CREAT

    def watch(event: str, details: tuple[Any, ...]) -> None:
        if event not in CHANGES:
            return
        if event == "open" and not (details[2] or 0) & write_flags:
            return
        counts.changes.value += 1
        if counts.changes.value == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def work(job: Job, gate: Any, counts: Counts, sender: Any) -> None:
    """Run a command when all processes have come to the gate, and send its outcome."""
    count_steps(counts)
    if WITHOUT_LINKS.keys() <= job.environ.keys():
        os.link = no_links(errno.EPERM)
    os.environ |= {"OMP_NUM_THREADS": "1"} | job.environ
    gate.wait(SECONDS)
    if job.kill_at:
        count_changes(counts, job.kill_at)
    sender.send(run(*job.arguments))


class RunningJob(NamedTuple):
    """A process, the pipe that its outcome comes through, and what it counts."""

    process: Any
    receiver: Any
    counts: Counts

    def outcome(self) -> Outcome:
        """Wait for the outcome; of a process that was killed the exit code remains."""
        assert self.receiver.poll(SECONDS), "the command hangs"
        try:
            outcome = self.receiver.recv()
        except EOFError:
            self.process.join()
            outcome = Outcome(int(self.process.exitcode or 0))
        steps = self.counts.steps.value
        return outcome._replace(steps=steps, changes=self.counts.changes.value)


def start(job: Job, gate: Any) -> RunningJob:
    """Start a process that waits at the gate."""
    receiver, sender = FORKS.Pipe(duplex=False)
    counts = Counts(FORKS.Value("q", 0, lock=False), FORKS.Value("q", 0, lock=False))
    process = FORKS.Process(target=work, args=(job, gate, counts, sender))
    process.start()
    sender.close()
    return RunningJob(process, receiver, counts)


def at_once(
    commands: Sequence[tuple[object, ...]],
    *,
    kill_at: Sequence[int] = (),
    environs: Sequence[dict[str, int]] = (),
) -> list[Outcome]:
    """Run commands that begin at the same moment, each in a process of its own.

    ``kill_at`` kills each by SIGKILL just before it changes a file for the Nth time:
    the same place at every attempt, however fast the machine is. At -1 it is not
    killed, and its changes are counted.
    """
    gate = FORKS.Barrier(len(commands))
    running_jobs: list[RunningJob] = []
    user_caches = tempfile.mkdtemp(prefix="gaam-user-caches-")
    try:
        for number, command in enumerate(commands):
            # what one command has measured and kept is unknown to the others
            environ = {"XDG_CACHE_HOME": f"{user_caches}/{number}"}
            if environs:
                environ |= {key: str(value) for key, value in environs[number].items()}
            job = Job(command, environ, kill_at[number] if kill_at else 0)
            running_jobs.append(start(job, gate))
        return [running_job.outcome() for running_job in running_jobs]
    finally:
        for running_job in running_jobs:
            running_job.process.kill()
            running_job.process.join()
        shutil.rmtree(user_caches)


def extract(encoder: Path, dataset: Path, out: Path, **settings: Any) -> Path:
    """Make a cache."""
    config = gaam_cache.ExtractConfig(
        encoder=str(encoder), dataset=str(dataset), out=out, **settings
    )
    gaam_cache.extract(config)
    return out


def train(cache: Path, runs: Path, **settings: Any) -> list[gaam_decoder.RunResult]:
    """Train two seeds for two epochs, or what the settings say."""
    usual_settings: dict[str, Any] = {
        "cache": cache,
        "runs": runs,
        "seeds": (0, 1),
        "epochs": 2,
        "batch_size": 16,
        "lr": 3e-4,
        "compile": "off",
        "probe": False,
    }
    config = gaam_decoder.TrainConfig(**(usual_settings | settings))
    return list(gaam_decoder.train(config))


def read_rows(file: Path) -> list[dict[str, Any]]:
    """The rows of a table, by readers that are none of ours."""
    if file.suffix == ".parquet":
        return list(pyarrow.parquet.read_table(file).to_pylist())
    text = file.read_bytes().decode()
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in text.split("\n")[:-1]]
    return list(csv.DictReader(StringIO(text, newline="")))


def read_files(folder: Path) -> dict[str, bytes]:
    """The content of every file below a folder, without hidden ones: leases."""
    contents: dict[str, bytes] = {}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if file.is_file() and "/." not in f"/{name}":
            contents[name] = file.read_bytes()
    return contents


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of six layers x 32, with its tokenizer."""
    return build_encoder(
        tmp_path_factory.mktemp("contract") / "encoder", "bert", num_layers=6
    )


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set: two classes, 60 training and 24 test rows of 1 to 20 words."""
    root = tmp_path_factory.mktemp("contract") / "texts"
    write_csv(root / "train.csv", [("a", "goal"), ("b", "bank"), *random_rows(58, 1)])
    write_csv(root / "test.csv", random_rows(24, 2))
    return root


@pytest.fixture(scope="session")
def cache(encoder: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete cache of ``texts`` in three shards: to be read or copied."""
    out = tmp_path_factory.mktemp("contract") / "cache"
    return extract(encoder, texts, out, shard_rows=30, pool=("mean", "first"))


@pytest.fixture(scope="session")
def runs(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of gaam, laplace, mha and none, three seeds each: to be read or copied."""
    out = tmp_path_factory.mktemp("contract") / "runs"
    train(cache, out, attn=("gaam", "laplace", "mha", "none"), seeds=("3",), epochs=4)
    return out
