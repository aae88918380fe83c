"""What a run holds: arrays on disk, parts that must fit, and which run a seed counts from."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import gaam_decoder
from gaam_cache.errors import CacheError
from gaam_cache.store.digest import sealed_text, unsealed
from gaam_cache.store.files import write_file
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.analysis.ablate import _group
from gaam_decoder.analysis.importance import importance_of
from gaam_decoder.analysis.learned import learned_ranges
from gaam_decoder.reports.pictures.pictures import _log
from gaam_decoder.reports.table.build import build_tables
from gaam_decoder.runs.counting import first_runs
from gaam_decoder.runs.frame import records
from gaam_decoder.runs.run_reader import read_run
from gaam_decoder.runs.tensor_files import DTYPES, TensorFile, tensor_parts
from gaam_decoder.runs.verify import check_run
from tests.decoder.reports.conftest import build_run


def some_arrays() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    shapes = {"scalar": (), "empty": (0, 3), "small": (2, 3), "large": (700, 1000), "last": (5,)}
    return {
        f"{name}.{dtype}": (100 * generator.random(shape)).astype(DTYPES[dtype])
        for dtype in DTYPES
        for name, shape in shapes.items()
    }


def test_arrays_are_written_as_the_library_reads_them_and_read_as_it_writes_them(
    tmp_path: Path,
) -> None:
    arrays = some_arrays()
    arrays["sliced"] = np.arange(20.0)[::2]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write_file(ours, tensor_parts(arrays, {"about": "é"}))
    save_file({k: np.array(v, order="C") for k, v in arrays.items()}, theirs, {"about": "é"})
    found = load_file(ours)
    assert found.keys() == arrays.keys()
    with theirs.open("rb") as file:
        read = TensorFile(file)
        assert set(read) == arrays.keys()
        assert read.metadata == {"about": "é"}
        for name, array in arrays.items():
            for same in (found[name], read.read(name)):
                assert (same.dtype, same.shape) == (array.dtype, array.shape)
                np.testing.assert_array_equal(same, array)


def test_no_header_makes_a_reader_take_more_than_the_file_has(tmp_path: Path) -> None:
    whole = b"".join(tensor_parts({"a": np.arange(6.0), "b": np.arange(3)}, {}))
    file = tmp_path / "f"
    generator = random.Random(0)
    refused = 0
    for number in range(1000):
        raw = bytearray(whole)
        for _ in range(generator.randrange(1, 4)):  # of the length and the header
            raw[generator.randrange(len(whole) - 72)] = generator.choice(
                b'0123456789[]{},:"Ff\xff\0'
            )
        file.write_bytes(raw)
        with file.open("rb") as stream:
            try:
                tensors = TensorFile(stream)
                assert sum(tensors.read(name).nbytes for name in tensors) == 72, number
            except ValueError:
                refused += 1
    assert 300 < refused < 1000


@pytest.fixture
def run(tiny_cache: Path, tmp_path: Path) -> RunResult:
    config = TrainConfig(cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1, 2), epochs=2)
    return gaam_decoder.train(config)[0]


def rewrite(run: RunResult, name: str, content: bytes) -> RunResult:
    """The run with another file, of which its receipt knows."""
    (run.path / name).write_bytes(content)
    receipt = run.path / "run.json"
    about = unsealed(json.loads(receipt.read_text()))
    digest = hashlib.sha256(content).hexdigest()
    about["files"][name] = {"bytes": len(content), "sha256": digest}
    receipt.write_text(sealed_text(about))
    return read_run(run.path)


def of(name: str, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[dict[str, Any]], None]:
    def apply(arrays: dict[str, Any]) -> None:
        arrays[name] = change(arrays[name])

    return apply


def poke(value: float, *place: int) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of("labels", poke(2, 5)), "labels from 0 to 2 for 2 classes"),
        (of("labels", poke(-1, 5)), "labels from -1"),
        (of("labels", lambda a: a[:-1]), "23 labels of 24 test rows"),
        (of("labels", lambda a: a.astype(np.float32)), "labels are no list"),
        (of("logits", poke(np.nan, 1, 2, 0)), "not finite"),
        (of("logits", poke(np.inf, 1, 2, 0)), "not finite"),
        (of("logits", lambda a: a[:2]), "logits are float32"),
        (of("logits", lambda a: a[..., :1]), "logits are float32"),
        (of("logits", lambda a: a.astype(np.float64)), "logits are float64"),
        (of("attention_map", lambda a: a[:2]), "an attention map of shape"),
        (of("attention_map", lambda a: a[:, :5]), "an attention map of shape"),
        (of("learned.xi", lambda a: a[:2]), "one entry for every seed"),
        (lambda arrays: arrays.pop("logits"), "no tensor 'logits'"),
        (lambda arrays: arrays.pop("labels"), "no tensor 'labels'"),
    ],
)
def test_a_tested_file_that_is_whole_and_wrong_is_refused(
    change: Callable[[dict[str, Any]], Any], message: str, run: RunResult
) -> None:
    arrays = load_file(run.path / "test.safetensors")
    change(arrays)
    wrong = rewrite(run, "test.safetensors", b"".join(tensor_parts(arrays, {})))
    with pytest.raises(CacheError) as error:
        check_run(wrong)
    assert message in str(error.value)
    assert "rm -r" in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log[:-1],
        lambda log: [*log, log[-1]],
        lambda log: [log[1], log[0], *log[2:]],
        lambda log: [*log[2:4], *log[:2], *log[4:]],
        lambda log: [{**log[0], "seed": 9}, *log[1:]],
        lambda log: [{**log[0], "epoch": 10**12}, *log[1:]],
        lambda log: [{**log[0], "loss": float("nan")}, *log[1:]],
        lambda log: [{**log[0], "loss": "0"}, *log[1:]],
        lambda log: [{**log[0], "train_accuracy": None}, *log[1:]],
        lambda log: [[], *log],
        lambda log: [None, *log],
        lambda log: [],
    ],
)
def test_a_log_that_is_whole_and_wrong_is_refused(
    change: Callable[[list[Any]], list[Any]], run: RunResult
) -> None:
    text = "".join(json.dumps(entry) + "\n" for entry in change(run.log))
    wrong = rewrite(run, "log.jsonl", text.encode())
    with pytest.raises(CacheError, match="damaged"):
        _ = wrong.log


def test_a_file_that_changes_between_two_reads_is_hashed_again(run: RunResult) -> None:
    path = run.path / "test.safetensors"
    content = path.read_bytes()
    assert run.labels.shape == (24,)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CacheError, match="damaged") as error:
        run.finished_logits()
    assert "was changed" in str(error.value)


def seeds_twice() -> list[RunResult]:
    """Run a: seeds 0 (failed), 1, 2. Run b: seeds 0 to 3. What each says tells them apart."""
    made = []
    for name, seeds, failed, value in (
        ("a", (0, 1, 2), {0: "lost"}, 1),
        ("b", (0, 1, 2, 3), {}, 9),
    ):
        right = np.zeros((len(seeds), 40), bool)
        right[:, : 4 * value] = True
        maps = np.zeros((len(seeds), 6, 8), np.float32)
        maps[:, value % 6] = 1
        run = build_run(
            "gaam",
            right,
            seeds=seeds,
            failed=failed,
            path=name,
            attention_map=maps,
            learned={"xi": np.full((len(seeds), 1, 2), value, np.float32)},
            log=[{"seed": seed, "epoch": 1, "loss": float(value)} for seed in seeds],
        )
        run.epochs.update(dict.fromkeys(seeds, value))
        run.seconds.update(dict.fromkeys(seeds, float(value)))
        made.append(run)
    return made


@pytest.mark.parametrize("order", [1, -1])
def test_the_first_run_that_holds_a_seed_counts_everywhere(order: int) -> None:
    first, second = seeds_twice()
    runs = [first, second][::order]
    expected = {0: first, 1: first, 2: first, 3: second}
    counted = first_runs(runs)
    assert list(counted) == [0, 1, 2, 3]
    assert all(counted[seed] is run for seed, run in expected.items())
    (table,) = build_tables(runs)
    (row,) = table.rows
    assert row.scores.seeds == (1, 2, 3)
    np.testing.assert_allclose(row.scores.accuracy, [0.1, 0.1, 0.9])
    assert row.failed == {0: "lost"}
    assert row.seconds == {0: 1.0, 1: 1.0, 2: 1.0, 3: 9.0}
    counting = [one for one in records(runs) if one["counts"]]
    assert {one["seed"]: one["seconds"] for one in counting} == row.seconds
    found = importance_of(runs)
    assert found is not None
    assert found.seeds == (1, 2, 3)
    np.testing.assert_allclose(np.array(found.contribution)[[1, 3]], [200 / 3, 100 / 3])
    xi = learned_ranges(runs)["xi"]
    assert (xi.min, xi.median, xi.max) == (1.0, 1.0, 9.0)
    curve = _log(row, "loss", 1)
    assert curve is not None
    np.testing.assert_array_equal(curve[:, 0], [1, 1, 1, 9])
    group = _group("all", (1,), runs, (0, 1, 2, 3))
    assert group.accuracy == pytest.approx({1: 0.1, 2: 0.1, 3: 0.9})
    assert group.failed == {0: "lost"}
