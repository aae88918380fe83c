"""Promise 7: ``predict`` gives what the training-time logits gave.

From texts, files, stdin, a cache or an exported folder, alone or in threads: what is found are the
probabilities of the test logits that the run holds, averaged over the seeds.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from scipy.special import softmax

import gaam_cache
import gaam_decoder
from gaam_decoder import PredictConfig, RunResult, load
from tests.contract.conftest import extract, rows_of, run, train
from tests.tiny import random_rows

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning"
)  # epochs that are too few
FORMATS = ("csv", "jsonl", "parquet")
NAMES = json.loads(run("describe", "--json").out)
MECHANISMS = [one["name"] for one in NAMES["mechanism"]]
HEADS = [one["name"] for one in NAMES["head"]]
FLOAT16 = 5e-4
"""Of a probability, where states are stored as float16: other batches round a few otherwise."""


def write_rows(file: Path, rows: list[dict[str, Any]]) -> Path:
    if file.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return file


def held(result: RunResult, temperatures: Any = 1.0) -> np.ndarray:
    """Probabilities of the test rows, (N, C), by the logits that the run holds."""
    logits_SNC = result.finished_logits().astype(np.float64)
    return np.asarray(
        softmax(logits_SNC / np.reshape(temperatures, (-1, 1, 1)), -1).mean(0)
    )


def close(found: Any, expected: Any, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(found, expected, atol=atol, rtol=0)


def check_rows(rows: list[dict[str, Any]], result: RunResult, atol: float) -> None:
    """Classes and probabilities that were asked for by ``--top 2`` are all there are."""
    expected_NC, names = held(result), result.cache.class_names
    assert len(rows) == len(expected_NC)
    for row, likely_C in zip(rows, expected_NC, strict=True):
        found = {
            row[f"predicted{k}"]: float(row[f"probability{k}"]) for k in ("", "_2")
        }
        close([found[name] for name in names], likely_C, atol)
        assert row["predicted"] == names[likely_C.argmax()]
    same_SN = result.predictions == expected_NC.argmax(-1)
    close([float(row["agreement"]) for row in rows], same_SN.mean(0), 1e-12)


@pytest.fixture(scope="module")
def mha(runs: Path) -> RunResult:
    return next(one for one in gaam_decoder.load_runs(runs) if one.attention == "mha")


@pytest.fixture(scope="module")
def exact(encoder: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in float32, two poolings."""
    out = tmp_path_factory.mktemp("exact") / "cache"
    return extract(encoder, texts, out, pool=("mean", "last"), storage_dtype="float32")


@pytest.mark.parametrize("source", FORMATS)
def test_files_of_every_format_to_files_of_every_format(
    source: str, mha: RunResult, texts: Path, tmp_path: Path
) -> None:
    test = enumerate(rows_of(texts / "test.csv"))
    given = [{"n": str(n), "words": row["text"], "note": 'a,"b"\nc'} for n, row in test]
    file = write_rows(tmp_path / f"in.{source}", given)
    for to in FORMATS:
        out = tmp_path / f"out.{to}"
        words = ("--file", file, "--text-column", "words", "--out", out, "--top", 2)
        assert run("predict", mha.path, *words).code == 0
        rows = rows_of(out)
        check_rows(rows, mha, FLOAT16)
        assert [{name: row[name] for name in given[0]} for row in rows] == given, (
            "as they were"
        )


def test_texts_stdin_a_cache_and_what_was_exported(
    mha: RunResult, cache: Path, encoder: Path, texts: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    given = [row["text"] for row in rows_of(texts / "test.csv")]
    words, cached = (
        ("predict", mha.path, "--top", 2),
        ("--cache", cache, "--split", "test"),
    )
    check_rows(json.loads(run(*words, *given, "--json").out), mha, FLOAT16)
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(given).encode()))
    )
    check_rows(json.loads(run(*words, "-", "--json").out), mha, FLOAT16)
    check_rows(list(csv.DictReader(io.StringIO(run(*words, *cached).out))), mha, 1e-5)
    assert run("export", mha.path, tmp_path / "decoder").code == 0
    states = gaam_cache.open_cache(cache)["test"].embeddings
    for where, named in ((mha.path, None), (tmp_path / "decoder", str(encoder))):
        predictor = load(where, encoder=named)
        close(predictor.predict_proba(given), held(mha), FLOAT16)
        expected = [predictor.class_names[number] for number in held(mha).argmax(-1)]
        assert predictor.predict(given) == expected
        close(predictor.predict_states(states).probabilities_NC, held(mha))
    shown = run("predict", tmp_path / "decoder", *cached, "--json")
    assert [row["predicted"] for row in json.loads(shown.out)] == expected
    one = load(mha.path, seed=mha.seeds[1]).predict_states(states).probabilities_NC
    close(one, softmax(mha.logits[1].astype(float), -1))


def test_every_mechanism_and_head(exact: Path, tmp_path: Path) -> None:
    found = train(exact, tmp_path, attn=tuple(MECHANISMS), epochs=1)
    assert len(found) == len(MECHANISMS) > 20
    others = tuple(set(HEADS) - {"linear"})
    found += train(exact, tmp_path, attn=("none", "layer-mean"), head=others)
    states = gaam_cache.open_cache(exact)["test"].embeddings
    for result in found:
        # some processors round a product otherwise in a batch of another size, and large weights,
        # which a fit without a penalty to speak of has, amplify that
        atol = 2e-4 if result.head == "lbfgs" else 1e-5
        close(
            load(result.path).predict_states(states).probabilities_NC,
            held(result),
            atol,
        )


PROTOCOLS: dict[str, dict[str, Any]] = {
    "layers": {"layers": (2, 5)},
    "layer": {"layers": (3,), "attn": ("none",), "head": "lbfgs"},
    "pool": {"pool": "last"},
    "folds": {"folds": 2, "select": "last"},
    "tuned": {"lr": (0.001, 0.05), "tune_seeds": (7, 8), "loss": "focal"},
    "seeds apart": {"seeds": (5, 1, 9), "seed_batch": 1, "select": "test"},
    "bfloat16": {"dtype": "bfloat16", "head": "mlp"},
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_from_texts(
    name: str, exact: Path, texts: Path, tmp_path: Path
) -> None:
    given = {split: rows_of(texts / f"{split}.csv") for split in ("train", "test")}
    # a product is rounded to 8 bits; few rows are encoded alone, and not in the batches of a shard
    atol = 0.02 if name == "bfloat16" else 5e-5
    for result in train(exact, tmp_path, **{"attn": ("gaam",)} | PROTOCOLS[name]):
        fold = result.test_rows
        rows = given["test"] if fold is None else [given["train"][n] for n in fold]
        close(
            load(result.path).predict_proba([row["text"] for row in rows]),
            held(result),
            atol,
        )


def test_temperatures_are_those_of_the_report(
    exact: Path, texts: Path, tmp_path: Path
) -> None:
    [result] = train(exact, tmp_path, attn="gaam", val_fraction=0.5, lr=0.1, epochs=4)
    [row] = json.loads(run("report", tmp_path, "--temperature", "--json").out)[
        "entries"
    ]
    best = np.ravel(row["temperature"]["per_seed"])
    assert 0.1 < best.min() < best.max() < 100, "none is at an edge"
    assert np.abs(best - 1).min() > 0.05, "and none is 1"
    given = [row["text"] for row in rows_of(texts / "test.csv")]
    found_NC = load(result.path, temperature=True).predict_proba(given)
    close(found_NC, held(result, best), 1e-4)
    rows = json.loads(
        run("predict", result.path, *given, "--temperature", "--json").out
    )
    close([row["probability"] for row in rows], found_NC.max(-1), 1e-6)


def test_threads_are_answered_as_one_after_another(
    runs: Path, texts: Path, encoder: Path, tmp_path: Path
) -> None:
    """60 requests by 8 threads: of one run; an exported one; two, also at temperatures.

    What is asked is opened anew, so that the threads open its encoders; a file is predicted beside.
    """
    given = [text for _, text in random_rows(10, 7)]
    both = [next(runs.glob(f"{name}*")) for name in ("gaam", "mha")]
    gaam_decoder.export_run(both[1], tmp_path / "decoder")
    about: list[list[Callable[[], Any]]] = [
        [partial(load, both[1])],
        [partial(load, tmp_path / "decoder", encoder=str(encoder))],
        [partial(load, one, temperature=hot) for one in both for hot in (False, True)],
    ]
    files: list[bytes] = []

    def predict_file() -> None:
        out, file = tmp_path / f"{threading.get_ident()}.csv", texts / "test.csv"
        gaam_decoder.predict(
            PredictConfig(run=both[0], file=file, out=out, overwrite=True)
        )
        files.append(out.read_bytes())

    def ask(request: tuple[int, int]) -> np.ndarray:
        if request[1] == 7 and len(fresh) > 1:
            predict_file()
        return np.asarray(fresh[request[0]].predict_proba([given[request[1]]]))

    for several in about:
        expected = [
            list(map(one().predict_proba, [[text] for text in given]))
            for one in several
        ]
        fresh = [one() for one in several]
        asked = [(n % len(fresh), n // len(fresh) % len(given)) for n in range(60)]
        with ThreadPoolExecutor(8) as pool:
            for (which, text), found_NC in zip(
                asked, pool.map(ask, asked), strict=True
            ):
                np.testing.assert_array_equal(found_NC, expected[which][text])
    assert len(files) > 3
    assert len(set(files)) == 1


TEXT = "text\nüber goal\nbänk\n"
ENCODED: dict[str, tuple[bytes, str, str]] = {
    "as the run's": (TEXT.encode("cp1252"), "", "as cp1252"),
    "with a mark": (TEXT.encode("utf-8-sig"), "", "mark of utf-8-sig"),
    "with another mark": (TEXT.encode("utf-16"), "", "mark of utf-16"),
    "as asked for": (TEXT.encode(), "encoding=utf-8", ""),
    "between semicolons": (
        TEXT.replace("\n", ";n\n").encode("cp1252"), "delimiter=semicolon", "as cp1252"),
}  # fmt: skip


@pytest.fixture(scope="module")
def western(
    encoder: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run on rows in cp1252."""
    root = tmp_path_factory.mktemp("western")
    for split in ("train", "test"):
        text = (texts / f"{split}.csv").read_text()
        (root / f"{split}.csv").write_text(
            f"{text}b,ä bank of {split}\n", encoding="cp1252"
        )
    cache = extract(encoder, root, root / "cache", encoding="cp1252")
    return train(cache, root / "runs", attn="none", seeds=(0,))[0].path


@pytest.mark.parametrize("case", ENCODED)
def test_a_file_is_read_as_the_rows_of_the_run_were_unless_it_says_otherwise(
    case: str, western: Path, tmp_path: Path
) -> None:
    content, setting, said = ENCODED[case]
    (tmp_path / "new.csv").write_bytes(content)
    more = ("--set", setting) if setting else ()
    shown = run("predict", western, "--file", tmp_path / "new.csv", *more)
    assert shown.code == 0, shown.err
    assert [row["text"] for row in csv.DictReader(io.StringIO(shown.out))] == [
        "über goal",
        "bänk",
    ]
    assert said in shown.err
    assert bool(said) == ("is read" in shown.err)


def test_an_encoding_that_a_mark_or_the_bytes_deny_is_told(
    western: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.csv").write_text(TEXT, encoding="utf-8-sig")
    command = ("predict", western, "--file", tmp_path / "new.csv")
    refused = run(*command, "--set", "encoding=cp1252")
    assert (refused.code, refused.out) == (3, "")
    assert "encoding=utf-8-sig" in refused.err
    (tmp_path / "new.csv").write_text(TEXT, encoding="utf-8")
    assert "may be UTF-8" in run(*command).err
