"""Whatever happens to a file of a cache: every reader notices it, or it makes no difference.

One table: every kind of file x every kind of damage x everything that reads a cache. A damage is
detected (the right exit code and one message), or harmless (what comes out is what comes out of the
sound cache, bit by bit). There is no third: none is silent, none a traceback, none waits for ever.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gaam_cache.reading import check_memory
from gaam_cache.verification import shard_checks
from gaam_cache.verification.inspector import Inspector

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import GaamError
from gaam_decoder import load_runs
from tests.cache.verification.damages import DAMAGES, Damage
from tests.cache.verification.forgery import edit_plan
from tests.conftest import Outcome, build_encoder, random_rows, write_csv

Gaam = Callable[..., Outcome]
READERS = ("python", "train", "verify", "inspect", "extract")
SECONDS = 60
"""For one reader; it takes a fraction of one."""
CODES = {"extract": {1, 2, 3}}
"""Something may lie in its way (1), or another cache (2); for all others the data are bad (3)."""


@contextmanager
def no_waiting() -> Iterator[None]:
    def hangs(number: int, frame: Any) -> None:
        raise TimeoutError("it waits for ever")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> ExtractConfig:
    """Two shards of train, one of test, each of six rows."""
    root = tmp_path_factory.mktemp("sound")
    encoder = build_encoder(root / "encoder", "bert", num_layers=1)
    write_csv(root / "data" / "train.csv", [("a", "goal"), ("b", "bank"), *random_rows(10, 1)])
    write_csv(root / "data" / "test.csv", [("a", "cup"), ("b", "loan"), *random_rows(4, 2)])
    config = ExtractConfig(
        encoder=str(encoder),
        dataset=str(root / "data"),
        out=root / "cache",
        shard_rows=6,
        batch_tokens=64,
    )
    gaam_cache.extract(config)
    return config


@pytest.fixture(scope="module")
def inspector() -> Iterator[Inspector]:
    """One process for all: starting it takes longer than all else that verify does."""
    with Inspector() as inspector:
        yield inspector


class Bench:
    """A copy of a sound cache, and what each reader makes of it."""

    def __init__(self, root: Path, config: ExtractConfig, gaam: Gaam) -> None:
        self.cache = root / "cache"
        self.user = root / "user"
        self.memory = self.user / "gaam" / check_memory.MEMORY_FILE
        self.counts: Counter[str] = Counter()
        self._config = config
        self._runs = root / "runs"
        self._gaam = gaam
        self.renew()
        self._expected = {reader: self._read(reader)[1] for reader in READERS}
        assert all(self._expected.values())

    def renew(self, *, known: bool = False) -> None:
        """A sound copy, whose shards were never read, or are remembered as checked."""
        for folder in (self.cache, self.user):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._config.out, self.cache)
        other = shutil.copytree(self.cache, self.cache.with_name("other"), dirs_exist_ok=True)
        edit_plan(other, lambda plan: plan["fingerprint_fields"]["content"].update(train="0" * 64))
        if known:
            assert self._read("python")[0].code == 0
            assert len(self.memory.read_bytes().split()) == 3

    def judge(self, what: str) -> None:
        """Every reader, one after the other, on the cache as it lies there; extract comes last."""
        noticed = False
        for reader in READERS:
            outcome, made = self._read(reader)
            case = f"{what}; {reader}: {outcome}"
            assert "Traceback" not in outcome.err, case
            if reader == "inspect" and '"complete": false' in outcome.out and not outcome.code:
                verdict = "detected"  # a shard is missing: said, and no error for who asks
            elif outcome.code:
                assert outcome.code in CODES.get(reader, {3}), case
                assert outcome.err.count("error: ") + bool(outcome.out) == 1, case
                noticed = True
                verdict = "detected"
            elif made == self._expected[reader]:
                verdict = "mended" if noticed and reader == "extract" else "harmless"
            else:  # extract reads no byte of a shard: the next reader does
                assert reader == "extract", f"SILENT: {case}"
                assert noticed, f"SILENT: {case}"
                assert self._read("python")[0].code == 3, f"SILENT: {case}"
                verdict = "left to the next reader"
            self.counts[f"{reader}: {verdict}"] += 1

    def _read(self, reader: str) -> tuple[Outcome, Any]:
        with no_waiting():
            made = None
            if reader == "python":
                try:
                    made = everything(self.cache)
                    outcome = Outcome(0, "", "")
                except GaamError as error:
                    outcome = Outcome(error.exit_code, "", f"error: {error}")
                return outcome, made
            outcome = getattr(self, f"_{reader}")()
            if outcome.code:
                return outcome, None
            if reader == "train":
                (run,) = load_runs(self._runs)
                made = run.logits.tobytes(), run.labels.tobytes(), run.log[-1]["loss"]
            elif reader == "extract":
                made = published(self.cache)
            else:
                kept = {"rows", "bytes", "shards", "splits", "fingerprint", "class_names"}
                made = {k: v for k, v in json.loads(outcome.out).items() if k in kept}
        return outcome, made

    def _train(self) -> Outcome:
        shutil.rmtree(self._runs, ignore_errors=True)
        folders = ["--cache", self.cache, "--runs", self._runs]
        few = ["--attn", "none", "--seeds", 1, "--epochs", 1, "--select", "last"]
        return self._gaam(
            "train", *folders, *few, "--set", "compile=off", "--no-probe", "--device", "cpu", "-q"
        )

    def _verify(self) -> Outcome:
        return self._gaam("verify", self.cache, "--json", "-q")

    def _inspect(self) -> Outcome:
        return self._gaam("inspect", self.cache, "--json")

    def _extract(self) -> Outcome:
        made_of = ["--encoder", self._config.encoder, "--dataset", self._config.dataset]
        how = ["--set", "shard-rows=6", "--set", "batch-tokens=64", "--device", "cpu", "-q"]
        return self._gaam("extract", *made_of, "--out", self.cache, *how)


def everything(cache: Path) -> dict[str, bytes]:
    """All that the Python interface gives."""
    opened = gaam_cache.open_cache(cache)
    kept = {
        name: [split.column(column) for column in opened.columns] for name, split in opened.items()
    }
    return (
        {f"columns of {name}": repr(values).encode() for name, values in kept.items()}
        | {
            f"{name} {key}": getattr(split, key)[:].tobytes()
            for name, split in opened.items()
            for key in ("embeddings", "labels", "num_tokens")
        }
        | {"class names": repr(opened.class_names).encode()}
    )


def published(cache: Path) -> dict[str, Any]:
    """What plan and receipts say, and the files that they name."""
    paths = [cache / "cache.json", *(cache / "shards").glob("t*.json")]
    said: dict[str, Any] = {path.name: json.loads(path.read_bytes()) for path in paths}
    files = [content["file"] for content in said.values() if "file" in content]
    return said | {name: (cache / "shards" / name).read_bytes() for name in files}


@pytest.fixture
def bench(
    sound: ExtractConfig,
    inspector: Inspector,
    gaam: Gaam,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Bench:
    class Shared(Inspector):
        def inspect(self, files: Any) -> list[str | None]:
            return inspector.inspect(files)

    monkeypatch.setattr(shard_checks, "Inspector", Shared)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(check_memory, "RACY_NANOSECONDS", -(10**12))
    return Bench(tmp_path, sound, gaam)


def walk(bench: Bench, positions: int) -> None:
    for kind in ("plan", "receipt", "shard", "memory"):
        for damage in DAMAGES(positions):
            for known in (False, True) if kind in ("shard", "memory") else (False,):
                bench.renew(known=known or kind == "memory")
                if damage.strike(bench.cache, bench.memory, kind):
                    bench.judge(f"{kind}: {damage.name}, {known=}")


def test_every_damage_of_every_file_is_detected_or_harmless(bench: Bench) -> None:
    walk(bench, positions=1)
    assert_the_table_means_something(bench, cases=40)


@pytest.mark.slow
def test_every_damage_at_many_places(bench: Bench) -> None:
    walk(bench, positions=120)
    assert_the_table_means_something(bench, cases=600)


def assert_the_table_means_something(bench: Bench, *, cases: int) -> None:
    print("\n".join(f"{what:<40}{n:>6}" for what, n in sorted(bench.counts.items())))
    for reader in READERS:
        verdicts = {k: n for k, n in bench.counts.items() if k.startswith(f"{reader}: ")}
        assert sum(verdicts.values()) >= cases, verdicts
        assert verdicts[f"{reader}: harmless"] > 0  # a damaged memory costs time alone
    for reader in ("python", "train", "verify", "inspect"):
        assert bench.counts[f"{reader}: detected"] > cases // 2
    assert bench.counts["extract: mended"] > 5


def test_several_damages_at_once(bench: Bench) -> None:
    generator = random.Random(0)
    for number in range(12):
        bench.renew(known=number % 2 == 0)
        struck = []
        for kind in generator.sample(("plan", "receipt", "shard", "memory"), 3):
            damage = generator.choice(list(DAMAGES(4)))
            if damage.strike(bench.cache, bench.memory, kind):
                struck.append(f"{kind}: {damage.name}")
        bench.judge(" and ".join(struck))


@pytest.mark.parametrize("times", ["new", "as they were"])
def test_a_remembered_shard_that_was_changed_is_checked_again(times: str, bench: Bench) -> None:
    bench.renew(known=True)
    path = next((bench.cache / "shards").glob("train-00001-*.h5"))
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    if times == "as they were":
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(GaamError, match=r"'train-00001' is damaged(.|\n)*the file was changed"):
        everything(bench.cache)


def test_a_change_while_a_cache_is_open_is_noticed(bench: Bench) -> None:
    states = gaam_cache.open_cache(bench.cache)["train"].embeddings
    first = states[:]
    path = next((bench.cache / "shards").glob("train-00001-*.h5"))
    content = path.read_bytes()
    os.utime(path)  # only touched
    assert (states[:] == first).all()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(GaamError, match="the file was changed"):
        states[:]
    path.write_bytes(content[:100])
    with pytest.raises(GaamError, match="'train-00001' is damaged"):
        states[7]
    path.write_bytes(content)
    assert (states[:] == first).all()


def test_damages_are_as_many_as_they_say() -> None:
    names = [damage.name for damage in DAMAGES(7)]
    assert len(names) == len(set(names)) >= 7 + 12
    assert all(isinstance(damage, Damage) for damage in DAMAGES(1))
