"""Promise 7: ``predict`` gives what the training-time logits gave.

From texts, files, stdin, a cache or an exported folder, alone or in threads: the class and the
probabilities, averaged over the seeds, are those of the test logits that the run holds.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

import gaam_cache
import gaam_decoder
from gaam_decoder import PredictConfig, RunResult, TrainConfig, load
from tests.contract.conftest import Outcome, run
from tests.tiny import random_rows

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # epochs that are too few
Gaam = Callable[..., Outcome]
FORMATS = ("csv", "jsonl", "parquet")
NAMES = json.loads(run("describe", "--json").out)
MECHANISMS = [one["name"] for one in NAMES["mechanism"]]
HEADS = [one["name"] for one in NAMES["head"]]
FLOAT16 = 5e-4
"""Of a probability, where states are stored as float16: other batches round a few otherwise."""


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The rows of a table, by readers that are none of ours."""
    if file.suffix == ".parquet":
        return list(pyarrow.parquet.read_table(file).to_pylist())
    text = file.read_text("utf-8")
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return list(csv.DictReader(io.StringIO(text, newline="")))


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
    return np.asarray(softmax(logits_SNC / np.reshape(temperatures, (-1, 1, 1)), -1).mean(0))


def check_rows(rows: list[dict[str, Any]], result: RunResult, atol: float) -> None:
    """Classes and probabilities that were asked for by ``--top 2`` are all there are."""
    expected_NC, names = held(result), result.cache["class_names"]
    assert len(rows) == len(expected_NC)
    for row, likely_C in zip(rows, expected_NC, strict=True):
        found = {row[f"predicted{k}"]: float(row[f"probability{k}"]) for k in ("", "_2")}
        np.testing.assert_allclose([found[name] for name in names], likely_C, atol=atol, rtol=0)
        assert row["predicted"] == names[likely_C.argmax()]
    same_SN = result.predictions == expected_NC.argmax(-1)
    np.testing.assert_allclose([float(r["agreement"]) for r in rows], same_SN.mean(0), atol=1e-12)


@pytest.fixture(scope="module")
def test_rows(texts: Path) -> list[dict[str, Any]]:
    return rows_of(texts / "test.csv")


@pytest.fixture(scope="module")
def mha(runs: Path) -> RunResult:
    return next(one for one in gaam_decoder.load_runs(runs) if one.attention == "mha")


def extract(out: Path, encoder: Path, texts: Path, **changes: Any) -> Path:
    config = {"encoder": str(encoder), "dataset": str(texts), "out": out} | changes
    gaam_cache.extract(gaam_cache.ExtractConfig(**config))
    return out


@pytest.fixture(scope="module")
def exact(encoder: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in float32, two poolings."""
    out = tmp_path_factory.mktemp("exact") / "cache"
    return extract(out, encoder, texts, pool=("mean", "last"), storage_dtype="float32")


def train(cache: Path, runs: Path, **changes: Any) -> list[RunResult]:
    changes = {"attn": ("gaam",), "seeds": ("2",), "epochs": 2, "batch_size": 24} | changes
    config = TrainConfig(cache=cache, runs=runs, compile="off", probe=False, **changes)
    return gaam_decoder.train(config)


@pytest.mark.parametrize("source", FORMATS)
def test_files_of_every_format_to_files_of_every_format(
    source: str, gaam: Gaam, mha: RunResult, test_rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    given = [{"n": str(n), "words": r["text"], "note": 'a,"b"\nc'} for n, r in enumerate(test_rows)]
    file = write_rows(tmp_path / f"in.{source}", given)
    for to in FORMATS:
        out = tmp_path / f"out.{to}"
        words = ("--file", file, "--text-column", "words", "--out", out, "--top", 2)
        assert gaam("predict", mha.path, *words).code == 0
        rows = rows_of(out)
        check_rows(rows, mha, FLOAT16)
        assert [{name: row[name] for name in given[0]} for row in rows] == given, "as they were"


def test_texts_stdin_a_cache_and_what_was_exported(
    gaam: Gaam, mha: RunResult, cache: Path, encoder: Path, test_rows: list[dict[str, Any]],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    texts = [row["text"] for row in test_rows]
    words = ("predict", mha.path, "--top", 2)
    check_rows(json.loads(gaam(*words, *texts, "--json").out), mha, FLOAT16)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(texts).encode())))
    check_rows(json.loads(gaam(*words, "-", "--json").out), mha, FLOAT16)
    cached = gaam(*words, "--cache", cache, "--split", "test").out
    check_rows(list(csv.DictReader(io.StringIO(cached))), mha, 1e-5)
    assert gaam("export", mha.path, tmp_path / "decoder").code == 0
    for where, named in ((mha.path, None), (tmp_path / "decoder", str(encoder))):
        predictor = load(where, encoder=named)
        found_NC = predictor.predict_proba(texts)
        np.testing.assert_allclose(found_NC, held(mha), atol=FLOAT16, rtol=0)
        expected = [predictor.class_names[number] for number in held(mha).argmax(-1)]
        assert predictor.predict(texts) == expected
        states = gaam_cache.open_cache(cache)["test"].embeddings
        found_NC = predictor.predict_states(states).probabilities_NC
        np.testing.assert_allclose(found_NC, held(mha), atol=1e-5, rtol=0)
    shown = gaam("predict", tmp_path / "decoder", "--cache", cache, "--split", "test", "--json")
    assert [row["predicted"] for row in json.loads(shown.out)] == expected
    one = load(mha.path, seed=mha.seeds[1]).predict_states(states).probabilities_NC
    np.testing.assert_allclose(one, softmax(mha.logits[1].astype(float), -1), atol=1e-5, rtol=0)


def test_every_mechanism_and_head(exact: Path, tmp_path: Path) -> None:
    found = train(exact, tmp_path, attn=tuple(MECHANISMS), epochs=1)
    assert len(found) == len(MECHANISMS) > 20
    others = tuple(set(HEADS) - {"linear"})
    found += train(exact, tmp_path, attn=("none", "layer-mean"), head=others)
    states = gaam_cache.open_cache(exact)["test"].embeddings
    for result in found:
        found_NC = load(result.path).predict_states(states).probabilities_NC
        np.testing.assert_allclose(found_NC, held(result), atol=1e-5, rtol=0, err_msg=result.title)


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
def test_every_protocol_from_texts(name: str, exact: Path, texts: Path, tmp_path: Path) -> None:
    given = {split: rows_of(texts / f"{split}.csv") for split in ("train", "test")}
    atol = 0.02 if name == "bfloat16" else 1e-5  # a product is rounded to 8 bits
    for result in train(exact, tmp_path, **PROTOCOLS[name]):
        fold = result.test_rows
        rows = given["test"] if fold is None else [given["train"][n] for n in fold]
        found_NC = load(result.path).predict_proba([row["text"] for row in rows])
        np.testing.assert_allclose(found_NC, held(result), atol=atol, rtol=0)


def test_temperatures_are_those_of_the_rows_that_chose(
    gaam: Gaam, exact: Path, test_rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    [result] = train(exact, tmp_path / "runs", val_fraction=0.5, lr=0.1, epochs=3)

    def loss(log_t: float, logits_VC: np.ndarray) -> float:
        likely_VC = log_softmax(logits_VC / np.exp(log_t), -1)
        return -float(np.take_along_axis(likely_VC, result.validation_labels[:, None], 1).mean())

    best = [
        np.exp(minimize_scalar(loss, bounds=(-7, 7), args=(one.astype(float),), method="bounded").x)
        for one in result.validation_logits
    ]
    assert 0.1 < min(best) < max(best) < 100, "none is at an edge"
    assert np.abs(np.array(best) - 1).min() > 0.05, "and none is 1"
    given = [row["text"] for row in test_rows]
    found_NC = load(result.path, temperature=True).predict_proba(given)
    np.testing.assert_allclose(found_NC, held(result, best), atol=1e-4, rtol=0)
    rows = json.loads(gaam("predict", result.path, *given, "--temperature", "--json").out)
    assert [row["probability"] for row in rows] == pytest.approx(found_NC.max(-1).tolist())


TEXTS = [text for _, text in random_rows(25, 7)]


def in_threads(open_all: Callable[[], list[Any]], beside: Callable[[], object] = int) -> None:
    """200 requests by 8 threads are answered as one after another was; ``beside`` runs with some.

    What is asked is opened anew, so that the threads open its encoders.
    """
    expected = [[one.predict_proba([text]) for text in TEXTS] for one in open_all()]
    fresh = open_all()
    asked = [(n % len(fresh), n // len(fresh) % len(TEXTS)) for n in range(200)]

    def ask(request: tuple[int, int]) -> np.ndarray:
        if request[1] == 7:
            beside()
        return np.asarray(fresh[request[0]].predict_proba([TEXTS[request[1]]]))

    with ThreadPoolExecutor(8) as pool:
        for (which, text), found_NC in zip(asked, pool.map(ask, asked), strict=True):
            np.testing.assert_array_equal(found_NC, expected[which][text])


def test_threads_share_predictors(runs: Path, texts: Path, tmp_path: Path) -> None:
    """One; and several of one encoder, two of them at temperatures, with files beside them."""
    both = [next(runs.glob(f"{name}-*")) for name in ("gaam", "mha")]
    files: list[bytes] = []

    def predict_file() -> None:
        out, file = tmp_path / f"{threading.get_ident()}.csv", texts / "test.csv"
        gaam_decoder.predict(PredictConfig(run=both[0], file=file, out=out, overwrite=True))
        files.append(out.read_bytes())

    predict_file()
    in_threads(lambda: [load(both[1])])
    four = [(one, hot) for one in both for hot in (False, True)]
    in_threads(lambda: [load(one, temperature=hot) for one, hot in four], predict_file)
    assert len(files) > 4
    assert len(set(files)) == 1


def test_threads_share_an_exported_decoder(mha: RunResult, encoder: Path, tmp_path: Path) -> None:
    gaam_decoder.export_run(mha.path, tmp_path / "decoder")
    in_threads(lambda: [load(tmp_path / "decoder", encoder=str(encoder))])


def test_a_decoder_is_loaded_right_while_an_encoder_is_opened(
    mha: RunResult, cache: Path, encoder: Path, texts: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """transformers sets the default type of every thread while it opens one in bfloat16."""
    other_cache = extract(tmp_path / "cache", encoder, texts, dtype="bfloat16")
    [other] = train(other_cache, tmp_path / "runs", attn=("none",), epochs=1)
    began, loaded = threading.Event(), threading.Event()
    set_default = torch.set_default_dtype

    def slowly(dtype: torch.dtype) -> None:
        set_default(dtype)
        if dtype == torch.bfloat16:
            began.set()
            loaded.wait(0.5)

    monkeypatch.setattr(torch, "set_default_dtype", slowly)
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(load(other.path).predict_proba, TEXTS)
        assert began.wait(60)
        predictor = load(mha.path)
        loaded.set()
        assert opening.result().shape == (len(TEXTS), 2)
    states = gaam_cache.open_cache(cache)["test"].embeddings
    found_NC = predictor.predict_states(states).probabilities_NC
    np.testing.assert_allclose(found_NC, held(mha), atol=1e-5, rtol=0)
