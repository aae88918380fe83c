"""What is promised, on encoders that people have: see ``conftest`` for where they lie."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gaam_cache
import gaam_decoder
from tests.conftest import shard_bytes
from tests.real.conftest import DTYPES, ENCODERS, RealEncoder, inputs_of, lone_states

pytestmark = pytest.mark.real
EXPLAINED = {"float32": 1e-4, "bfloat16": 3e-2, "float16": 8e-3}
"""Largest difference that rounding explains, as the share of the norm of a state."""
POINTS = 0.015
TEXT_ENCODERS = [encoder for encoder in ENCODERS if not encoder.reads_sounds]
EXTRACT = """
import pathlib, sys, gaam_cache
encoder, dataset, out, outside = sys.argv[1:]
gaam_cache.extract(gaam_cache.ExtractConfig(
    encoder=encoder, dataset=dataset, out=pathlib.Path(out), allow_outside=outside == "True",
    keep_columns=("id",), shard_rows=4,
))
"""


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
def test_states_are_those_of_transformers(
    encoder: RealEncoder, dtype: str, tmp_path: Path
) -> None:
    config = encoder.config(tmp_path, dtype=dtype, storage_dtype="float32")
    summary = gaam_cache.extract(config)
    states_NLD = np.asarray(
        gaam_cache.open_cache(config.out)["test"].embeddings[:], np.float64
    )
    expected_NLD = lone_states(encoder, inputs_of(config, "test"), dtype)
    distance_NL = np.linalg.norm(states_NLD - expected_NLD, axis=-1)
    share_NL = distance_NL / np.linalg.norm(expected_NLD, axis=-1)
    assert share_NL.max() <= EXPLAINED[dtype]
    assert summary.batching == encoder.batching


@pytest.mark.parametrize("encoder", ENCODERS, ids=str)
def test_a_kill_costs_no_byte(encoder: RealEncoder, tmp_path: Path) -> None:
    config = encoder.config(tmp_path, shard_rows=4)
    whole = encoder.config(tmp_path, shard_rows=4, out=tmp_path / "whole")
    gaam_cache.extract(whole)
    arguments = [
        config.encoder,
        config.dataset,
        str(config.out),
        str(config.allow_outside),
    ]
    worker = subprocess.Popen([sys.executable, "-c", EXTRACT, *arguments])
    while worker.poll() is None and not list(config.out.glob("shards/*.json")):
        time.sleep(0.01)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    gaam_cache.extract(config)
    assert shard_bytes(config.out) == shard_bytes(whole.out)


@pytest.mark.parametrize("encoder", TEXT_ENCODERS, ids=str)
def test_predictions_are_those_of_the_training(
    encoder: RealEncoder, tmp_path: Path
) -> None:
    config = encoder.config(tmp_path)
    gaam_cache.extract(config)
    run = _train(
        config.out, tmp_path / "runs", attn=("gaam",), lr=0.01, epochs=3, seeds=2
    )
    exponent_SNC = np.exp(run.logits - run.logits.max(-1, keepdims=True))
    expected_NC = (exponent_SNC / exponent_SNC.sum(-1, keepdims=True)).mean(0)
    decoder = gaam_decoder.load(run.path, temperature=False)
    found_NC = decoder.predict_proba(inputs_of(config, "test"))
    np.testing.assert_allclose(found_NC, expected_NC, atol=2e-3)


def test_decoders_learn_from_the_large_states_of_a_llama(tmp_path: Path) -> None:
    [llama] = [encoder for encoder in ENCODERS if encoder.name == "llama-135m"]
    config = llama.config(tmp_path, 100)
    gaam_cache.extract(config)
    loss = {}
    for scale in ("auto", "none"):
        run = _train(
            config.out,
            tmp_path / scale,
            attn=("none",),
            lr=0.002,
            seeds=2,
            state_scale=scale,
        )
        log_probability_SNC = torch.from_numpy(run.logits).double().log_softmax(-1)
        label_N = torch.from_numpy(run.labels)
        row_N = torch.arange(len(label_N))
        loss[scale] = -log_probability_SNC[:, row_N, label_N].mean().item()
    # below that of equal probabilities of four classes, which is 1.4
    assert loss["auto"] < 1
    assert loss["auto"] < 0.5 * loss["none"]


OF_DATA = [
    pytest.param(ENCODERS[0], 1500, id="minilm on ag_news"),
    pytest.param(ENCODERS[1], 480, id="mpnet-base on trec"),
    pytest.param(ENCODERS[3], 200, id="whisper-base on digits by speaker"),
]


@pytest.mark.parametrize(("encoder", "rows"), OF_DATA)
def test_accuracy_is_that_of_scikit_learn(
    encoder: RealEncoder, rows: int, tmp_path: Path
) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    config = encoder.config(tmp_path, rows, storage_dtype="float32")
    gaam_cache.extract(config)
    cache = gaam_cache.open_cache(config.out)
    train, test = cache["train"], cache["test"]
    train_NF = np.asarray(train.embeddings[:]).reshape(len(train), -1)
    test_NF = np.asarray(test.embeddings[:]).reshape(len(test), -1)
    # the training rows choose the penalty, as they do in gaam
    regression = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    penalties = {"logisticregression__C": [1e-5, 1e-4, 1e-3, 1e-2, 1e-1]}
    search = GridSearchCV(regression, penalties, cv=5).fit(train_NF, train.labels)
    expected = search.score(test_NF, test.labels)
    run = _train(config.out, tmp_path / "runs", attn=("none",), head="lbfgs")
    accuracy = float((run.logits[0].argmax(-1) == run.labels).mean())
    assert accuracy >= expected - POINTS


def _train(cache: Path, runs: Path, **settings: Any) -> gaam_decoder.RunResult:
    config = gaam_decoder.TrainConfig(cache=cache, runs=runs, probe=False, **settings)
    gaam_decoder.train(config)
    [run] = gaam_decoder.load_runs(runs)
    return run
