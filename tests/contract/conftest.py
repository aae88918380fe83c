"""What the contract shares: the command line, one cache and one folder of runs.

It uses the command line and the names in ``gaam_cache.__all__`` and ``gaam_decoder.__all__`` and
nothing else, so that every room can be rebuilt under it. ``run`` runs a command in this process,
``at_once`` several, each in one of its own.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet
import pytest
import torch

import cli
import gaam_cache
import gaam_decoder
from tests.conftest import no_links
from tests.tiny import build_encoder, random_rows, write_csv

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.contract.warm"])
SECONDS = 300  # after so long a command hangs
CHANGES = frozenset(
    {"open", "os.link", "os.mkdir", "os.rename", "os.remove", "os.truncate"}
)
"""What a process does to files, as Python's audit hooks call it."""
WITHOUT_LINKS = {"TEST_WITHOUT_LINKS": 1}
"""An environment in which the file system has no hard links, as exFAT has none."""


class Outcome(NamedTuple):
    """What a command left; and what it did, where it ran in a process of its own."""

    code: int
    out: str = ""
    err: str = ""
    steps: int = 0  # gradients of training
    changes: int = 0  # of files, where it was to be killed at one

    @property
    def work(self) -> int:
        """Rows that were encoded, or steps of training."""
        said = json.loads(self.out or "[]")
        return int(said["rows_made"]) if isinstance(said, dict) else self.steps


def run(*arguments: object) -> Outcome:
    """Run a command in this process, as the console script does."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    argv, code, err = sys.argv, 0, StringIO()
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    sys.argv = ["gaam", *map(str, arguments)]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli.main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.argv = argv
        for number, handler in handlers.items():  # the command made them its own
            signal.signal(number, handler)
    out.flush()
    return Outcome(code, out.buffer.getvalue().decode(), err.getvalue())  # type: ignore[attr-defined]


def _work(
    arguments: tuple[object, ...], environ: dict[str, str], kill_at: int, gate: Any, steps: Any,
    changes: Any, mouth: Any,
) -> None:  # fmt: skip
    gradient = torch.autograd.grad

    def counted(*given: Any, **named: Any) -> Any:
        steps.value += 1
        return gradient(*given, **named)

    def watch(event: str, details: tuple[Any, ...]) -> None:
        writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT
        if event in CHANGES and (event != "open" or (details[2] or 0) & writes):
            changes.value += 1
            if changes.value == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    torch.autograd.grad = counted
    if WITHOUT_LINKS.keys() <= environ.keys():
        os.link = no_links(errno.EPERM)
    os.environ |= {"OMP_NUM_THREADS": "1"} | environ
    gate.wait(SECONDS)
    if kill_at:
        sys.addaudithook(watch)
    mouth.send(run(*arguments))


def at_once(
    commands: Sequence[tuple[object, ...]],
    *,
    kill_at: Sequence[int] = (),
    environs: Sequence[dict[str, int]] = (),
) -> list[Outcome]:
    """Run commands that begin at the same moment, each in a process of its own.

    ``kill_at`` kills each by SIGKILL just before it changes a file for the Nth time: the same place
    at every attempt, however fast the machine is. At -1 it is not, and its changes are counted.
    """
    gate, begun, found = FORKS.Barrier(len(commands)), [], []
    for number, command in enumerate(commands):
        ear, mouth = FORKS.Pipe(duplex=False)
        counts = [FORKS.Value("q", 0, lock=False) for _ in range(2)]
        environ = {k: str(v) for k, v in environs[number].items()} if environs else {}
        place = kill_at[number] if kill_at else 0
        process = FORKS.Process(
            target=_work, args=(command, environ, place, gate, *counts, mouth)
        )
        process.start()
        mouth.close()
        begun.append((process, ear, counts))
    try:
        for process, ear, counts in begun:
            assert ear.poll(SECONDS), "it hangs"
            try:
                outcome = ear.recv()
            except EOFError:
                process.join()
                outcome = Outcome(int(process.exitcode or 0))
            steps, changes = (count.value for count in counts)
            found.append(outcome._replace(steps=steps, changes=changes))
    finally:
        for process, *_ in begun:
            process.kill()
            process.join()
    return found


def extract(encoder: Path, dataset: Path, out: Path, **settings: Any) -> Path:
    """Make a cache."""
    config = {"encoder": str(encoder), "dataset": str(dataset), "out": out} | settings
    gaam_cache.extract(gaam_cache.ExtractConfig(**config))
    return out


def train(cache: Path, runs: Path, **settings: Any) -> list[gaam_decoder.RunResult]:
    """Train two seeds of two epochs, or what is asked for."""
    given = {
        "seeds": (0, 1),
        "epochs": 2,
        "batch_size": 16,
        "compile": "off",
        "probe": False,
    }
    given |= {"lr": 3e-4, "cache": cache, "runs": runs} | settings
    return list(gaam_decoder.train(gaam_decoder.TrainConfig(**given)))


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The rows of a table, by readers that are none of ours."""
    if file.suffix == ".parquet":
        return list(pyarrow.parquet.read_table(file).to_pylist())
    text = file.read_bytes().decode()
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in text.split("\n")[:-1]]
    return list(csv.DictReader(StringIO(text, newline="")))


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder and its content, but for those of who works on what."""
    return {
        name: file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and "/." not in f"/{(name := str(file.relative_to(folder)))}"
    }


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
    """A complete cache of ``texts`` in three shards, two poolings: to be read, or copied first."""
    out = tmp_path_factory.mktemp("contract") / "cache"
    return extract(encoder, texts, out, shard_rows=30, pool=("mean", "first"))


@pytest.fixture(scope="session")
def runs(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of gaam, laplace, mha and none, three seeds each: to be read, or copied first."""
    out = tmp_path_factory.mktemp("contract") / "runs"
    train(cache, out, attn=("gaam", "laplace", "mha", "none"), seeds=("3",), epochs=4)
    return out
