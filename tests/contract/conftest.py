"""What the contract shares: the command line, one cache and one folder of runs.

The contract holds the nine promises of gaam, a file each. It uses the command line and the names
in ``gaam_cache.__all__`` and ``gaam_decoder.__all__`` and nothing else, so that every room can be
rebuilt under it. ``gaam`` runs a command in this process, ``begun`` in one of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import cli
import gaam_cache
import gaam_decoder
from tests.tiny import build_encoder, random_rows, write_csv

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.contract.warm"])


class Outcome(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


def _call(arguments: tuple[object, ...]) -> int:
    sys.argv = ["gaam", *map(str, arguments)]
    try:
        cli.main()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


def run(*arguments: object) -> Outcome:
    """Run a command in this process, as the console script does."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    argv = sys.argv
    out, err = StringIO(), StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = _call(arguments)
    finally:
        sys.argv = argv
        for number, handler in handlers.items():  # the command made them its own
            signal.signal(number, handler)
    return Outcome(code, out.getvalue(), err.getvalue())


@pytest.fixture(name="gaam")
def _gaam() -> Callable[..., Outcome]:
    """Run a command in this process, as the console script does."""
    return run


CHANGES = frozenset({"open", "os.link", "os.mkdir", "os.rename", "os.remove", "os.truncate"})
"""What a process does to files, as Python's audit hooks call it."""


def _child(
    arguments: tuple[object, ...], environ: dict[str, str], kill_at: int, count: Any
) -> None:
    os.environ |= {"OMP_NUM_THREADS": "1"} | environ
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)

    def watch(event: str, details: tuple[Any, ...]) -> None:
        if event not in CHANGES or (event == "open" and not _writes(details)):
            return
        count.value += 1
        if count.value == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        code = _call(arguments)
    os._exit(code)


def _writes(details: tuple[Any, ...]) -> bool:
    flags = details[2] if len(details) > 2 and isinstance(details[2], int) else 0
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


class Begun(NamedTuple):
    """A command in a process of its own."""

    process: BaseProcess
    count: Any

    def code(self) -> int:
        """Its exit code, when it has ended; -9 where it was killed."""
        self.process.join()
        return int(self.process.exitcode or 0)

    @property
    def changes(self) -> int:
        """How often it changed a file so far."""
        return int(self.count.value)


@pytest.fixture
def begun() -> Iterator[Callable[..., Begun]]:
    """Begin a command in a process of its own.

    ``kill_at=N`` kills it by SIGKILL just before it changes a file for the Nth time: the same place
    at every attempt, however fast the machine is. ``environ`` adds variables.
    """
    all_begun: list[Begun] = []

    def begin(*arguments: object, kill_at: int = 0, environ: dict[str, str] | None = None) -> Begun:
        count = FORKS.Value("q", 0, lock=False)
        process = FORKS.Process(target=_child, args=(arguments, environ or {}, kill_at, count))
        process.start()
        all_begun.append(Begun(process, count))
        return all_begun[-1]

    yield begin
    for one in all_begun:
        one.process.kill()
        one.process.join()


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of six layers x 32, with its tokenizer."""
    return build_encoder(tmp_path_factory.mktemp("contract") / "encoder", "bert", num_layers=6)


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set: two classes, 60 training and 24 test rows of 1 to 20 words."""
    root = tmp_path_factory.mktemp("contract") / "texts"
    write_csv(root / "train.csv", [("a", "goal"), ("b", "bank"), *random_rows(58, 1)])
    write_csv(root / "test.csv", random_rows(24, 2))
    return root


@pytest.fixture(scope="session")
def small_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file for ``--config``: shards of 30 rows, so that ``texts`` has three."""
    file = tmp_path_factory.mktemp("contract") / "small.toml"
    file.write_text("[extract]\nshard_rows = 30\n")
    return file


@pytest.fixture(scope="session")
def cache(encoder: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete cache of ``texts`` in three shards, two poolings: to be read, or copied first."""
    out = tmp_path_factory.mktemp("contract") / "cache"
    gaam_cache.extract(
        gaam_cache.ExtractConfig(
            encoder=str(encoder), dataset=str(texts), out=out, shard_rows=30, pool=("mean", "first")
        )
    )
    return out


@pytest.fixture(scope="session")
def runs(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of gaam, laplace, mha and none, three seeds each: to be read, or copied first."""
    out = tmp_path_factory.mktemp("contract") / "runs"
    gaam_decoder.train(
        gaam_decoder.TrainConfig(
            attn=("gaam", "laplace", "mha", "none"), cache=cache, runs=out,
            seeds=("3",), epochs=4, batch_size=16, compile="off", probe=False,
        )
    )  # fmt: skip
    return out


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder and its content, but for those of who works on what."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    }
