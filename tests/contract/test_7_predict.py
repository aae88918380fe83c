"""Promise 7: ``predict`` gives what the training-time logits gave.

From texts, files, stdin, a cache or an exported folder, alone or in threads: the
predictions are the probabilities of the test logits that the run holds, averaged over
the seeds.
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
from tests.contract.conftest import extract, read_rows, run, train
from tests.decoder.configs import probabilities_of
from tests.tiny import random_rows

# of too few epochs
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
FORMATS = ("csv", "jsonl", "parquet")
FLOAT16 = 5e-4
"""Tolerance of probabilities of float16 states: batches round a few otherwise."""


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


def expected_probabilities(result: RunResult, temperatures: Any = 1.0) -> np.ndarray:
    """Probabilities of the test rows, (N, C), by the logits that the run holds."""
    temperatures_S = np.reshape(temperatures, (-1, 1, 1))
    logits_SNC = result.finished_logits().astype(np.float64)
    return np.asarray(softmax(logits_SNC / temperatures_S, -1).mean(0))


def close(actual: Any, expected: Any, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(actual, expected, atol=atol, rtol=0)


def check_rows(rows: list[dict[str, Any]], result: RunResult, atol: float) -> None:
    """Check both classes and probabilities that ``--top 2`` gives for every row."""
    expected_NC = expected_probabilities(result)
    names = result.cache.class_names
    assert len(rows) == len(expected_NC)
    for row, expected_C in zip(rows, expected_NC, strict=True):
        probabilities = {
            row["predicted"]: float(row["probability"]),
            row["predicted_2"]: float(row["probability_2"]),
        }
        close([probabilities[name] for name in names], expected_C, atol)
        assert row["predicted"] == names[expected_C.argmax()]
    same_SN = result.predictions == expected_NC.argmax(-1)
    close([float(row["agreement"]) for row in rows], same_SN.mean(0), 1e-12)


@pytest.fixture(scope="module")
def mha(runs: Path) -> RunResult:
    [result] = gaam_decoder.load_runs(runs, attn="mha")
    return result


@pytest.fixture(scope="module")
def exact(encoder: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in float32, two poolings."""
    out = tmp_path_factory.mktemp("exact") / "cache"
    return extract(encoder, texts, out, pool=("mean", "last"), storage_dtype="float32")


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_files_of_every_format_to_files_of_every_format(
    source: str, target: str, mha: RunResult, texts: Path, tmp_path: Path
) -> None:
    rows = [
        {"n": str(n), "words": row["text"], "note": 'a,"b"\nc'}
        for n, row in enumerate(read_rows(texts / "test.csv"))
    ]
    file = write_rows(tmp_path / f"in.{source}", rows)
    out = tmp_path / f"out.{target}"
    options = ("--file", file, "--text-column", "words", "--out", out, "--top", 2)
    assert run("predict", mha.path, *options).code == 0
    predicted_rows = read_rows(out)
    check_rows(predicted_rows, mha, FLOAT16)
    given_columns = [{name: row[name] for name in rows[0]} for row in predicted_rows]
    assert given_columns == rows, "as they were"


@pytest.fixture(scope="module")
def sentences(texts: Path) -> list[str]:
    return [row["text"] for row in read_rows(texts / "test.csv")]


def sentences_are_predicted(mha: RunResult, sentences: list[str]) -> None:
    outcome = run("predict", mha.path, "--top", 2, *sentences, "--json")
    check_rows(json.loads(outcome.out), mha, FLOAT16)


def test_stdin_is_predicted(
    mha: RunResult, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO("\n".join(sentences).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    outcome = run("predict", mha.path, "--top", 2, "-", "--json")
    check_rows(json.loads(outcome.out), mha, FLOAT16)


def test_a_cache_is_predicted(mha: RunResult, cache: Path) -> None:
    options = ("--top", 2, "--cache", cache, "--split", "test")
    outcome = run("predict", mha.path, *options)
    check_rows(list(csv.DictReader(io.StringIO(outcome.out))), mha, 1e-5)


@pytest.fixture(scope="module")
def exported(mha: RunResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "decoder"
    assert run("export", mha.path, folder).code == 0
    return folder


@pytest.mark.parametrize("is_exported", [False, True], ids=["run", "exported"])
def test_a_loaded_decoder_predicts_texts_and_states(
    is_exported: bool,
    mha: RunResult,
    exported: Path,
    cache: Path,
    encoder: Path,
    sentences: list[str],
) -> None:
    exported_predictor = load(exported, encoder=str(encoder))
    predictor = exported_predictor if is_exported else load(mha.path)
    expected_NC = expected_probabilities(mha)
    close(predictor.predict_proba(sentences), expected_NC, FLOAT16)
    expected_names = [predictor.class_names[c] for c in expected_NC.argmax(-1)]
    assert predictor.predict(sentences) == expected_names
    states = gaam_cache.open_cache(cache)["test"].embeddings
    close(probabilities_of(predictor.predict_states(states)), expected_NC)


def test_an_exported_decoder_predicts_a_cache(
    mha: RunResult, exported: Path, cache: Path
) -> None:
    outcome = run("predict", exported, "--cache", cache, "--split", "test", "--json")
    names = mha.cache.class_names
    expected_names = [names[c] for c in expected_probabilities(mha).argmax(-1)]
    assert [row["predicted"] for row in json.loads(outcome.out)] == expected_names


def test_one_seed_is_predicted(mha: RunResult, cache: Path) -> None:
    states = gaam_cache.open_cache(cache)["test"].embeddings
    predictions = load(mha.path, seed=mha.seeds[1]).predict_states(states)
    expected_NC = softmax(mha.logits[1].astype(float), -1)
    close(probabilities_of(predictions), expected_NC)


def listed_names(kind: str) -> list[str]:
    listed = json.loads(run("describe", "--json").out)
    return [entry["name"] for entry in listed[kind]]


def test_every_mechanism_and_head(exact: Path, tmp_path: Path) -> None:
    mechanisms = listed_names("mechanism")
    results = train(exact, tmp_path, attn=tuple(mechanisms), epochs=1)
    assert len(results) == len(mechanisms) > 20
    other_heads = tuple(set(listed_names("head")) - {"linear"})
    results += train(exact, tmp_path, attn=("none", "layer-mean"), head=other_heads)
    states = gaam_cache.open_cache(exact)["test"].embeddings
    for result in results:
        # Some processors round a product otherwise in a batch of another size. Large
        # weights amplify that, and a fit with nearly no penalty has large weights.
        atol = 1e-5 if result.fit is None else 2e-4
        np.testing.assert_allclose(
            probabilities_of(load(result.path).predict_states(states)),
            expected_probabilities(result),
            atol=atol,
            rtol=0,
            err_msg=result.title,
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
    train_rows = read_rows(texts / "train.csv")
    test_rows = read_rows(texts / "test.csv")
    # bfloat16 rounds a product to 8 bits; else few rows are encoded in other batches
    atol = 0.02 if name == "bfloat16" else 5e-5
    settings = {"attn": ("gaam",)} | PROTOCOLS[name]
    for result in train(exact, tmp_path, **settings):
        rows = test_rows
        if result.test_rows is not None:
            rows = [train_rows[n] for n in result.test_rows]
        probabilities = load(result.path).predict_proba([row["text"] for row in rows])
        close(probabilities, expected_probabilities(result), atol)


def test_temperatures_are_those_of_the_report(
    exact: Path, sentences: list[str], tmp_path: Path
) -> None:
    [result] = train(exact, tmp_path, attn="gaam", val_fraction=0.5, lr=0.1, epochs=4)
    report = run("report", tmp_path, "--temperature", "--json")
    [entry] = json.loads(report.out)["entries"]
    temperatures = np.ravel(entry["temperature"]["per_seed"])
    assert 0.1 < temperatures.min() < temperatures.max() < 100, "none is at an edge"
    assert np.abs(temperatures - 1).min() > 0.05, "and none is 1"
    probabilities_NC = load(result.path, temperature=True).predict_proba(sentences)
    close(probabilities_NC, expected_probabilities(result, temperatures), 1e-4)
    outcome = run("predict", result.path, *sentences, "--temperature", "--json")
    likeliest = [row["probability"] for row in json.loads(outcome.out)]
    close(likeliest, probabilities_NC.max(-1), 1e-6)


Load = Callable[[], Any]


def loads_of_one_run(runs: Path, encoder: Path, out: Path) -> list[Load]:
    return [partial(load, next(runs.glob("mha*")))]


def loads_of_an_exported_run(runs: Path, encoder: Path, out: Path) -> list[Load]:
    gaam_decoder.export_run(next(runs.glob("mha*")), out / "decoder")
    return [partial(load, out / "decoder", encoder=str(encoder))]


def loads_of_two_runs(runs: Path, encoder: Path, out: Path) -> list[Load]:
    """Two runs, each without and with temperatures."""
    return [
        partial(load, next(runs.glob(f"{name}*")), temperature=temperature)
        for name in ("gaam", "mha")
        for temperature in (False, True)
    ]


@pytest.mark.parametrize("make_loads", [loads_of_one_run, loads_of_an_exported_run])
def test_threads_are_answered_as_one_after_another(
    make_loads: Callable[[Path, Path, Path], list[Load]],
    runs: Path,
    encoder: Path,
    tmp_path: Path,
) -> None:
    check_requests(make_loads(runs, encoder, tmp_path), lambda number: None)


def test_threads_predict_files_beside_texts(
    runs: Path, encoder: Path, texts: Path, tmp_path: Path
) -> None:
    contents: list[bytes] = []

    def predict_a_file(number: int) -> None:
        if number % 10 != 9:
            return
        out = tmp_path / f"{threading.get_ident()}.csv"
        config = PredictConfig(
            run=next(runs.glob("gaam*")),
            file=texts / "test.csv",
            out=out,
            overwrite=True,
        )
        gaam_decoder.predict(config)
        contents.append(out.read_bytes())

    check_requests(loads_of_two_runs(runs, encoder, tmp_path), predict_a_file)
    assert len(contents) == 6
    assert len(set(contents)) == 1


def check_requests(loads: list[Load], before_request: Callable[[int], None]) -> None:
    """Check 60 requests by 8 threads to predictors whose encoders the threads open."""
    texts = [text for _, text in random_rows(10, 7)]
    expected: list[list[Any]] = []
    for load_anew in loads:
        predictor = load_anew()
        expected.append([predictor.predict_proba([text]) for text in texts])
    unopened_predictors = [load_anew() for load_anew in loads]

    def answer(number: int) -> None:
        before_request(number)
        place = number % len(loads)
        text = number // len(loads) % len(texts)
        probabilities = unopened_predictors[place].predict_proba([texts[text]])
        np.testing.assert_array_equal(probabilities, expected[place][text])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(answer, range(60)))


TEXT = "text\nüber goal\nbänk\n"
ENCODED: dict[str, tuple[bytes, str, str]] = {
    "as the run's": (TEXT.encode("cp1252"), "", "as cp1252"),
    "with a mark": (TEXT.encode("utf-8-sig"), "", "mark of utf-8-sig"),
    "with another mark": (TEXT.encode("utf-16"), "", "mark of utf-16"),
    "as asked for": (TEXT.encode(), "encoding=utf-8", ""),
    "between semicolons": (
        TEXT.replace("\n", ";n\n").encode("cp1252"),
        "delimiter=semicolon",
        "as cp1252",
    ),
}
"""Bytes of a file, a setting, and the remark that the command prints."""


@pytest.fixture(scope="module")
def western(
    encoder: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run on rows in cp1252."""
    root = tmp_path_factory.mktemp("western")
    for split in ("train", "test"):
        text = (texts / f"{split}.csv").read_text()
        file = root / f"{split}.csv"
        file.write_text(f"{text}b,ä bank of {split}\n", encoding="cp1252")
    cache = extract(encoder, root, root / "cache", encoding="cp1252")
    [result] = train(cache, root / "runs", attn="none", seeds=(0,))
    return result.path


@pytest.mark.parametrize("case", ENCODED)
def test_a_file_is_read_in_the_encoding_of_the_rows_unless_it_says_otherwise(
    case: str, western: Path, tmp_path: Path
) -> None:
    content, setting, remark = ENCODED[case]
    file = tmp_path / "new.csv"
    file.write_bytes(content)
    options = ("--set", setting) if setting else ()
    outcome = run("predict", western, "--file", file, *options)
    assert outcome.code == 0, outcome.err
    rows = list(csv.DictReader(io.StringIO(outcome.out)))
    assert [row["text"] for row in rows] == ["über goal", "bänk"]
    assert remark in outcome.err
    assert bool(remark) == ("is read" in outcome.err)


def test_an_encoding_that_a_mark_denies_is_refused(
    western: Path, tmp_path: Path
) -> None:
    file = tmp_path / "new.csv"
    file.write_text(TEXT, encoding="utf-8-sig")
    options = ("--file", file, "--set", "encoding=cp1252")
    refused = run("predict", western, *options)
    assert (refused.code, refused.out) == (3, "")
    assert "encoding=utf-8-sig" in refused.err


def test_an_encoding_that_the_bytes_deny_is_told(western: Path, tmp_path: Path) -> None:
    file = tmp_path / "new.csv"
    file.write_text(TEXT, encoding="utf-8")
    assert "may be UTF-8" in run("predict", western, "--file", file).err
