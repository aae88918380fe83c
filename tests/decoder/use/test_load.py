"""A finished run predicts what it predicted when it was tested, whatever it is made of."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import softmax

import gaam_cache
import gaam_decoder
from gaam_cache.common.errors import (
    CacheError,
    ConfigError,
    DataError,
    GaamWarning,
    NotFoundError,
)
from gaam_cache.config import ExtractConfig
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder
from gaam_decoder.runs.result import RunResult
from gaam_decoder.use.predict import PredictConfig
from gaam_decoder.use.predictor import Predictor
from tests.conftest import Outcome, build_encoder, random_rows, write_csv

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning"
)  # epochs that are too few


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Layers 0 to 4 of 16 features each, in two poolings; three classes."""
    root = tmp_path_factory.mktemp("use")
    rows = [(f"class {len(text) % 3}", text) for _, text in random_rows(24, 1)]
    write_csv(root / "data" / "train.csv", rows)
    tested = [(f"class {n % 3}", text) for n, (_, text) in enumerate(rows[::2])]
    write_csv(root / "data" / "test.csv", tested)
    config = ExtractConfig(
        encoder=str(build_encoder(root / "encoder", "bert", num_layers=4)),
        dataset=str(root / "data"),
        out=root / "cache",
        pool=("mean", "max"),
        layer_zero=True,
        device="cpu",
    )
    gaam_cache.extract(config)
    return config.out


@pytest.fixture
def config(cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        cache=cache, runs=tmp_path / "runs", attn=("gaam",), seeds=(0, 1, 2), epochs=1,
        batch_size=24, lr=0.05, compile="off", device="cpu", probe=False,
    )  # fmt: skip


def check(run: RunResult, cache: Path) -> Predictor:
    """What it predicts from states of the test rows is what it holds."""
    predictor = gaam_decoder.load(run.path, device="cpu")
    states = gaam_cache.open_cache(cache)["test"].pooled(run.recipe.pool)
    found = predictor.predict_states(states[:])
    expected_NC = softmax(run.finished_logits().astype(float), -1).mean(0)
    np.testing.assert_allclose(found.probabilities_NC, expected_NC, atol=1e-5, rtol=0)
    assert predictor.seeds == run.finished
    assert found.labels == [predictor.class_names[n] for n in expected_NC.argmax(-1)]
    assert (
        predictor.predict_states(states).probabilities_NC == found.probabilities_NC
    ).all()
    return predictor


def test_seeds_that_failed_are_left_out(
    config: TrainConfig, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(spec: DecoderSpec, seed: int) -> Decoder:
        decoder = build_decoder(spec, seed)
        if seed == 1 and not next(decoder.head.parameters()).is_meta:
            with torch.no_grad():
                next(decoder.head.parameters()).fill_(torch.nan)
        return decoder

    monkeypatch.setattr("gaam_decoder.training.seed_batch.build_decoder", poisoned)
    [run] = gaam_decoder.train(config)
    assert check(run, cache).seeds == (0, 2)
    with pytest.raises(ConfigError, match=r"seed 1(.|\n)* 0, 2"):
        gaam_decoder.load(run.path, seed=1)


def test_states_of_any_floating_type_are_taken_and_others_refused(
    config: TrainConfig, cache: Path
) -> None:
    [run] = gaam_decoder.train(config)
    predictor = gaam_decoder.load(run.path, device="cpu")
    states = gaam_cache.open_cache(cache)["test"].embeddings[:]
    whole = predictor.predict_states(states).probabilities_NC
    for given in (states.astype(np.float64), states.tolist(), torch.from_numpy(states)):
        assert (predictor.predict_states(given).probabilities_NC == whole).all()
    assert len(predictor.predict_states(states[:0])) == 0
    broken = states.copy()
    broken[5, 1, 2] = np.inf
    for given, why in (
        (states.view(np.uint16), "uint16"),
        (states[:, 1:], r"5, 32\)(.|\n)*\(12, 4, 32\)"),
        (broken, "row 6"),
    ):
        with pytest.raises(DataError, match=why):
            predictor.predict_states(given)


def test_a_run_alone_knows_how_its_rows_were_encoded(
    config: TrainConfig, cache: Path, tiny_cache: Path, tmp_path: Path
) -> None:
    shutil.copytree(cache, tmp_path / "copy")
    [run] = gaam_decoder.train(
        replace(config, cache=tmp_path / "copy", shuffle_labels=True)
    )
    other = gaam_cache.open_cache(tiny_cache).fingerprint[:12]
    with pytest.raises(CacheError, match=other):
        gaam_decoder.load(run.path, cache=tiny_cache)
    with pytest.raises(NotFoundError, match="nowhere"):
        gaam_decoder.load(run.path, cache=tmp_path / "nowhere")
    with pytest.raises(NotFoundError, match=f"'{tmp_path}'"):
        gaam_decoder.load(tmp_path)
    whole = gaam_decoder.load(run.path, cache=cache)
    shutil.rmtree(tmp_path / "copy")
    with pytest.warns(GaamWarning, match=rf"{run.path.name}.* shuffled"):
        predictor = gaam_decoder.load(run.path, device="cpu")
    assert predictor.plan == whole.plan
    assert predictor.predict(["goal bank", "robot"])


def test_another_encoder_is_refused_when_it_is_needed(
    config: TrainConfig, cache: Path, encoders: dict[str, Path], tmp_path: Path
) -> None:
    [run] = gaam_decoder.train(config)
    texts = ["goal bank", "robot"]
    whole = gaam_decoder.load(run.path, device="cpu").predict_proba(texts)
    shutil.copytree(cache.parent / "encoder", tmp_path / "moved")
    moved = gaam_decoder.load(run.path, encoder=str(tmp_path / "moved"), device="cpu")
    np.testing.assert_array_equal(moved.predict_proba(texts), whole)
    other = gaam_decoder.load(run.path, encoder=str(encoders["llama"]), device="cpu")
    assert len(other.predict_states(gaam_cache.open_cache(cache)["test"].embeddings))
    with pytest.raises(ConfigError, match=rf"{encoders['llama']}(.|\n)*config.json"):
        other.predict(texts)
    with pytest.raises(ConfigError):
        moved.predict("goal")
    with pytest.raises(DataError, match=r"mine\.csv, row 3"):
        moved.predictions(["goal", "bank", " "], origin="mine.csv")
    assert moved.predict([]) == []


PLACES = {
    "moved": ("moved", 0, ""),
    "not named": (None, 2, "name its folder with --encoder"),
    "another": ("another", 2, "'{place}' is another encoder; nothing was encoded"),
    "nowhere": ("nowhere", 2, "nowhere"),
}
"""What ``--encoder`` names, the exit code, and what is said."""


@pytest.mark.parametrize("case", PLACES)
def test_predict_takes_the_encoder_from_where_it_lies_now(
    case: str,
    config: TrainConfig,
    cache: Path,
    gaam: Callable[..., Outcome],
    tmp_path: Path,
) -> None:
    [run] = gaam_decoder.train(config)
    words = (
        "predict",
        run.path,
        "goal bank",
        "robot",
        "--json",
        "--quiet",
        "--device",
        "cpu",
    )
    before = gaam(*words)
    assert before.code == 0
    named, code, message = PLACES[case]
    home, place = cache.parent / "encoder", tmp_path / str(named)
    build_encoder(tmp_path / "another", "bert", num_layers=4, seed=1)
    home.rename(tmp_path / "moved")
    try:
        found = gaam(*words, *(("--encoder", place) if named else ()))
    finally:
        (tmp_path / "moved").rename(home)
    assert found.code == code, found.err
    assert message.format(place=place) in found.err
    assert found.out == ("" if code else before.out)


def test_an_encoder_has_no_part_in_what_a_cache_holds(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--encoder(.|\n)*--file"):
        PredictConfig(run=tmp_path, cache=tmp_path, encoder="somewhere")


def test_imported_states_are_predicted_from_states_alone(tmp_path: Path) -> None:
    x_NLD = np.random.default_rng(0).normal(size=(40, 3, 8)).astype(np.float32)
    splits = {"train": (x_NLD, [0, 1] * 20), "test": (x_NLD[:9], ([0, 1] * 5)[:9])}
    gaam_cache.write(tmp_path / "cache", splits)
    config = TrainConfig(
        lr=3e-4, cache=tmp_path / "cache", runs=tmp_path / "runs", epochs=1, probe=False
    )
    run = gaam_decoder.train(config)[0].path
    predictor = gaam_decoder.load(run, device="cpu")
    assert predictor.plan is None
    assert len(predictor.predict_states(x_NLD)) == 40
    with pytest.raises(ConfigError, match="predict_states"):
        predictor.predict(["a text"])
    # of the run's own cache nothing is in doubt, whatever the run was made of
    gaam_decoder.export_run(run, tmp_path / "decoder")
    gaam_cache.write(tmp_path / "other", {"test": (x_NLD, [0, 1] * 20)})
    for folder in (run, tmp_path / "decoder"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gaam_decoder.predict(
                PredictConfig(run=folder, cache=tmp_path / "cache"), write=bool
            )
        with pytest.warns(GaamWarning, match="imported"):
            gaam_decoder.predict(
                PredictConfig(run=folder, cache=tmp_path / "other"), write=bool
            )


def test_of_a_folder_of_runs_what_its_report_recommends_is_taken(
    config: TrainConfig,
) -> None:
    [run] = gaam_decoder.train(replace(config, probe=False))
    with pytest.warns(GaamWarning, match=f"gaam:heads=1.*{re.escape(str(run.path))}"):
        assert gaam_decoder.load(config.runs).seeds == run.finished
    gaam_decoder.train(replace(config, attn=("laplace",), probe=False))
    with pytest.raises(ConfigError, match=r"gaam_.*, laplace_"):
        gaam_decoder.load(config.runs)
