"""A finished run predicts as when it was tested, whatever it is made of."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import softmax

import gaam_cache
import gaam_decoder
from gaam_cache.common.errors import (
    CacheError,
    ConfigError,
    DataError,
    GaamNote,
    GaamWarning,
    NotFoundError,
)
from gaam_cache.config import ExtractConfig
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder
from gaam_decoder.inspect import inspect
from gaam_decoder.runs.result import RunResult
from gaam_decoder.use.load import cross_validations_in_words
from gaam_decoder.use.predict import PredictConfig
from gaam_decoder.use.predictor import Predictor
from tests.conftest import Outcome
from tests.decoder.configs import change, loose_config, probabilities_of
from tests.tiny import build_encoder, random_rows, write_csv

# epochs that are too few
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

Gaam = Callable[..., Outcome]
TEXTS = ["goal bank", "robot"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Layers 0 to 4 of 32 features each, in two poolings; three classes."""
    root = tmp_path_factory.mktemp("use")
    texts = [text for _, text in random_rows(24, 1)]
    train_rows = [(f"class {len(text) % 3}", text) for text in texts]
    write_csv(root / "data" / "train.csv", train_rows)
    test_rows = [(f"class {row % 3}", text) for row, text in enumerate(texts[::2])]
    write_csv(root / "data" / "test.csv", test_rows)
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


def config_of(cache: Path, runs: Path) -> TrainConfig:
    """Three seeds of gaam, for an epoch."""
    return loose_config(
        cache=cache,
        runs=runs,
        attn=("gaam",),
        seeds=(0, 1, 2),
        epochs=1,
        batch_size=24,
        lr=0.05,
        compile="off",
        device="cpu",
        probe=False,
    )


@pytest.fixture
def config(cache: Path, tmp_path: Path) -> TrainConfig:
    return config_of(cache, tmp_path / "runs")


@pytest.fixture(scope="module")
def run(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run to be read."""
    return train(config_of(cache, tmp_path_factory.mktemp("runs")))


def train(config: TrainConfig) -> RunResult:
    [run] = gaam_decoder.train(config)
    return run


def load(run: RunResult, **options: Any) -> Predictor:
    return gaam_decoder.load(run.path, device="cpu", **options)


def check(run: RunResult, cache: Path) -> Predictor:
    """Check that a run predicts from states of the test rows what it holds."""
    predictor = load(run)
    assert predictor.seeds == run.finished
    states = gaam_cache.open_cache(cache)["test"].pooled(run.recipe.pool)
    predictions = predictor.predict_states(states[:])
    expected_NC = softmax(run.finished_logits().astype(float), -1).mean(0)
    np.testing.assert_allclose(
        probabilities_of(predictions), expected_NC, atol=1e-5, rtol=0
    )
    labels = [predictor.class_names[number] for number in expected_NC.argmax(-1)]
    assert predictions.labels == labels
    # states that stay in their file
    from_file_NC = probabilities_of(predictor.predict_states(states))
    np.testing.assert_array_equal(from_file_NC, probabilities_of(predictions))
    return predictor


def test_seeds_that_failed_are_left_out(
    config: TrainConfig, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build_poisoned_decoder(spec: DecoderSpec, seed: int) -> Decoder:
        decoder = build_decoder(spec, seed)
        parameter = next(decoder.head.parameters())
        if seed == 1 and not parameter.is_meta:
            with torch.no_grad():
                parameter.fill_(torch.nan)
        return decoder

    name = "gaam_decoder.training.seed_batch.build_decoder"
    monkeypatch.setattr(name, build_poisoned_decoder)
    run = train(config)
    assert check(run, cache).seeds == (0, 2)
    with pytest.raises(ConfigError, match=r"seed 1(.|\n)* 0, 2"):
        gaam_decoder.load(run.path, seed=1)


def test_states_of_any_floating_type_are_taken(run: RunResult, cache: Path) -> None:
    predictor = load(run)
    states = gaam_cache.open_cache(cache)["test"].embeddings[:]
    expected_NC = probabilities_of(predictor.predict_states(states))
    equal_states = {
        "float64": states.astype(np.float64),
        "a list": states.tolist(),
        "a tensor": torch.from_numpy(states),
    }
    for case, values in equal_states.items():
        probabilities_NC = probabilities_of(predictor.predict_states(values))
        np.testing.assert_array_equal(probabilities_NC, expected_NC, case)
    assert len(predictor.predict_states(states[:0])) == 0


def test_states_of_no_floating_type_of_another_shape_or_not_finite_are_refused(
    run: RunResult, cache: Path
) -> None:
    predictor = load(run)
    states = gaam_cache.open_cache(cache)["test"].embeddings[:]
    infinite = states.copy()
    infinite[5, 1, 2] = np.inf
    with pytest.raises(DataError, match="uint16"):
        predictor.predict_states(states.view(np.uint16))
    with pytest.raises(DataError, match=r"5, 32\)(.|\n)*\(12, 4, 32\)"):
        predictor.predict_states(states[:, 1:])
    with pytest.raises(DataError, match="row 6"):
        predictor.predict_states(infinite)


def test_a_run_alone_knows_how_its_rows_were_encoded(
    config: TrainConfig, cache: Path, tmp_path: Path
) -> None:
    copied_cache = tmp_path / "copy"
    shutil.copytree(cache, copied_cache)
    run = train(replace(config, cache=copied_cache, shuffle_labels=True))
    expected = gaam_decoder.load(run.path, cache=cache).plan
    shutil.rmtree(copied_cache)
    with pytest.warns(GaamWarning, match=rf"{run.path.name}.* shuffled"):
        predictor = load(run)
    assert predictor.plan == expected
    assert predictor.predict(TEXTS)


def test_a_cache_of_others_and_places_without_cache_or_run_are_refused(
    run: RunResult, tiny_cache: Path, tmp_path: Path
) -> None:
    other = gaam_cache.open_cache(tiny_cache).fingerprint[:12]
    with pytest.raises(CacheError, match=other):
        gaam_decoder.load(run.path, cache=tiny_cache)
    with pytest.raises(NotFoundError, match="nowhere"):
        gaam_decoder.load(run.path, cache=tmp_path / "nowhere")
    with pytest.raises(NotFoundError, match=f"'{tmp_path}'"):
        gaam_decoder.load(tmp_path)


def test_an_encoder_that_was_moved_is_taken(
    run: RunResult, cache: Path, tmp_path: Path
) -> None:
    expected_NC = load(run).predict_proba(TEXTS)
    shutil.copytree(cache.parent / "encoder", tmp_path / "moved")
    predictor = load(run, encoder=str(tmp_path / "moved"))
    np.testing.assert_array_equal(predictor.predict_proba(TEXTS), expected_NC)


def test_another_encoder_is_refused_when_it_is_needed(
    run: RunResult, cache: Path, encoders: dict[str, Path]
) -> None:
    predictor = load(run, encoder=str(encoders["llama"]))
    states = gaam_cache.open_cache(cache)["test"].embeddings
    assert len(predictor.predict_states(states)) == len(states)
    with pytest.raises(ConfigError, match=rf"{encoders['llama']}(.|\n)*config.json"):
        predictor.predict(TEXTS)


def test_texts_are_a_list_of_texts_that_are_not_empty(run: RunResult) -> None:
    predictor = load(run)
    with pytest.raises(ConfigError):
        predictor.predict("goal")
    # the place stands before what to do, although it was added later
    with pytest.raises(DataError, match=r"mine\.csv, row 3\n  to do: +leave such rows"):
        predictor.predictions(["goal", "bank", " "], origin="mine.csv")
    assert predictor.predict([]) == []


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(pd.DataFrame({"text": TEXTS}), id="DataFrame of texts"),
        pytest.param(pd.DataFrame({"id": [1], "text": ["goal"]}), id="two columns"),
        pytest.param({"text": TEXTS}, id="dictionary"),
        pytest.param(pa.table({"text": TEXTS}), id="table of Arrow"),
    ],
)
def test_a_table_is_refused_because_it_yields_the_names_of_its_columns(
    table: Any, run: RunResult
) -> None:
    for predict in (load(run).predict, load(run).predict_proba):
        with pytest.raises(ConfigError, match="not a table") as caught:
            predict(table)
        assert 'df["text"]' in caught.value.details["to do"]


class Place(NamedTuple):
    """The folder that ``--encoder`` names, the exit code, and a part of the message."""

    folder: str | None
    code: int
    message: str


PLACES = {
    "moved": Place("moved", 0, ""),
    "not named": Place(None, 2, "name its folder with --encoder"),
    "another": Place(
        "another", 2, "'{folder}' is another encoder; nothing was encoded"
    ),
    "nowhere": Place("nowhere", 2, "nowhere"),
}


PREDICT = (*TEXTS, "--json", "--quiet", "--device", "cpu")


@pytest.fixture
def printed_at_home(run: RunResult, gaam: Gaam) -> str:
    """What predict prints while the encoder lies where it was."""
    outcome = gaam("predict", run.path, *PREDICT)
    assert outcome.code == 0
    return outcome.out


@pytest.fixture
def moved_encoder(cache: Path, tmp_path: Path, printed_at_home: str) -> Iterator[Path]:
    """The encoder of the cache, while it lies elsewhere."""
    encoder = cache.parent / "encoder"
    moved = tmp_path / "moved"
    encoder.rename(moved)
    yield moved
    moved.rename(encoder)


@pytest.mark.parametrize("case", PLACES)
def test_predict_takes_the_encoder_from_where_it_lies_now(
    case: str,
    run: RunResult,
    printed_at_home: str,
    moved_encoder: Path,
    gaam: Gaam,
) -> None:
    place = PLACES[case]
    folder = moved_encoder.with_name(str(place.folder))
    if case == "another":
        build_encoder(folder, "bert", num_layers=4, seed=1)
    options: tuple[object, ...] = ("--encoder", folder) if place.folder else ()
    outcome = gaam("predict", run.path, *PREDICT, *options)
    assert outcome.code == place.code, outcome.err
    assert place.message.format(folder=folder) in outcome.err
    assert outcome.out == ("" if place.code else printed_at_home)


def test_an_encoder_has_no_part_in_what_a_cache_holds(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--encoder(.|\n)*--file"):
        PredictConfig(run=tmp_path, cache=tmp_path, encoder="somewhere")


def random_states() -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(size=(40, 3, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def imported_run(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A run on states that were made elsewhere."""
    root = tmp_path_factory.mktemp("imported")
    states = random_states()
    labels = [0, 1] * 20
    splits = {"train": (states, labels), "test": (states[:9], labels[:9])}
    gaam_cache.write(root / "cache", splits)
    return train(
        loose_config(
            lr=3e-4, cache=root / "cache", runs=root / "runs", epochs=1, probe=False
        )
    )


def test_imported_states_are_predicted_from_states_alone(
    imported_run: RunResult,
) -> None:
    predictor = load(imported_run)
    assert predictor.plan is None
    assert len(predictor.predict_states(random_states())) == 40
    with pytest.raises(ConfigError, match="predict_states"):
        predictor.predict(["a text"])


def test_states_in_a_file_are_for_predict_states(run: RunResult, cache: Path) -> None:
    states: Any = gaam_cache.open_cache(cache)["test"].pooled(run.recipe.pool)
    with pytest.raises(ConfigError, match="look like states") as caught:
        load(run).predict(states)
    assert "predict_states" in caught.value.details["to do"]
    assert load(run).predict(states[:]) == load(run).predict_states(states).labels


def test_of_imported_states_another_cache_is_in_doubt_and_the_own_is_not(
    imported_run: RunResult, tmp_path: Path
) -> None:
    own_cache = imported_run.path.parent.with_name("cache")
    other_cache = tmp_path / "other"
    gaam_cache.write(other_cache, {"test": (random_states(), [0, 1] * 20)})
    decoder = tmp_path / "decoder"
    gaam_decoder.export_run(imported_run.path, decoder)
    for folder in (imported_run.path, decoder):
        own_config = PredictConfig(run=folder, cache=own_cache)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            gaam_decoder.predict(own_config, write=bool)
        other_config = PredictConfig(run=folder, cache=other_cache)
        with pytest.warns(GaamWarning, match="imported: whether they are alike"):
            gaam_decoder.predict(other_config, write=bool)


def test_of_imported_states_two_names_of_encoders_are_said(
    imported_run: RunResult, tmp_path: Path
) -> None:
    splits = {"test": (random_states(), [0, 1] * 20)}
    gaam_cache.write(tmp_path / "other", splits, encoder_name="bert")
    decoder = tmp_path / "decoder"
    gaam_decoder.export_run(imported_run.path, decoder)
    for folder in (imported_run.path, decoder):
        config = PredictConfig(run=folder, cache=tmp_path / "other")
        with pytest.warns(GaamWarning, match="different names, 'imported' and 'bert'"):
            gaam_decoder.predict(config, write=bool)


@pytest.mark.parametrize(
    ("kept_names", "shown_names"),
    [
        pytest.param(["speaker"], ["speaker"], id="no clash"),
        pytest.param(["label"], ["kept label"], id="label"),
        pytest.param(["row", "predicted"], ["kept row", "kept predicted"], id="others"),
    ],
)
def test_a_kept_column_stands_beside_the_column_of_its_name(
    kept_names: list[str],
    shown_names: list[str],
    imported_run: RunResult,
    tmp_path: Path,
) -> None:
    states = random_states()[:4]
    columns = {
        name: {"test": [f"{name} {row}" for row in range(4)]} for name in kept_names
    }
    splits = {"test": (states, [0, 1, 1, 0])}
    gaam_cache.write(tmp_path / "other", splits, columns=columns)
    out = tmp_path / "out.jsonl"
    config = PredictConfig(run=imported_run.path, cache=tmp_path / "other", out=out)
    gaam_decoder.predict(config)
    records = list(map(json.loads, out.read_text("utf-8").splitlines()))
    assert [record["row"] for record in records] == [0, 1, 2, 3]
    assert [record["label"] for record in records] == ["0", "1", "1", "0"]
    for name, shown_name in zip(kept_names, shown_names, strict=True):
        kept = [record[shown_name] for record in records]
        assert kept == [f"{name} {row}" for row in range(4)]


def test_of_a_folder_of_runs_the_one_that_its_report_recommends_is_taken(
    config: TrainConfig,
) -> None:
    run = train(config)
    with pytest.warns(GaamNote, match=f"gaam:heads=1.*{re.escape(str(run.path))}"):
        assert gaam_decoder.load(config.runs).seeds == run.finished
    train(change(config, attn=("laplace",)))
    with pytest.raises(ConfigError, match=r"gaam_.*, laplace_"):
        gaam_decoder.load(config.runs)


def test_of_folds_the_final_model_is_taken_or_named(config: TrainConfig) -> None:
    """A run of a fold predicts only where somebody names it."""
    one = change(config, attn=("none",), folds=2, final=True)
    gaam_decoder.train(one)
    with pytest.warns(GaamNote, match="its final model"):
        gaam_decoder.load(config.runs)
    [fold, *_] = [run for run in gaam_decoder.load_runs(config.runs) if run.evaluated]
    assert gaam_decoder.load(fold.path).seeds == fold.finished

    # the final model is shown with the mean of its folds
    [final] = [run for run in gaam_decoder.load_runs(config.runs) if not run.evaluated]
    [table] = gaam_decoder.report(config.runs).tables
    [mean] = [entry.compared_score.mean for entry in table.entries]
    assert mean is not None
    words = f"cross-validated {table.task.with_title(mean)}"
    assert words in inspect(final.path).in_words()
    gaam_decoder.export_run(final.path, config.runs.parent / "card")
    assert words in (config.runs.parent / "card/README.md").read_text("utf-8")

    # of several decoders without a recommendation the finals are listed
    others = config.runs.parent / "others"
    runs = gaam_decoder.train(change(one, attn=("laplace", "gaam"), runs=others))
    finals = [run.path.name for run in runs if not run.evaluated]
    with pytest.raises(ConfigError, match="recommended: nothing is compared") as caught:
        gaam_decoder.load(others)
    assert sorted(caught.value.details["found"].split(", ")) == sorted(finals)


@pytest.mark.parametrize(
    ("settings", "other_settings", "names"),
    [
        pytest.param(
            {"folds": 2, "groups": "speaker"},
            {"folds": 3},
            ["all 2 folds of the 'train' split, groups of 'speaker' kept together"],
            id="another one without groups",
        ),
        pytest.param(
            {"folds": 2, "split_seed": 1},
            {"folds": 2},
            ["all 2 folds of the 'train' split, split seed 1"],
            id="another one of an earlier split seed",
        ),
        pytest.param(
            {"folds": 2, "repeats": 2},
            {"folds": 3, "epochs": 2},
            ["2 times 2 folds of the 'train' split, split seed 0-1"],
            id="repeats share a model",
        ),
        pytest.param(
            {"folds": 2, "epochs": 2},
            {"folds": 3},
            ["all 2 folds"],
            id="another one of other epochs",
        ),
        pytest.param(
            {"test_split": "none", "groups": "speaker"},
            {"folds": 3},
            [],
            id="none of its own",
        ),
        pytest.param(
            {"folds": 2, "groups": "speaker", "select": "last"},
            {"folds": 3, "select": "last"},
            ["all 2 folds", "all 3 folds"],
            id="one model for both, as nothing is drawn",
        ),
    ],
)
def test_a_final_model_shows_the_score_of_its_own_cross_validation_alone(
    settings: dict[str, Any],
    other_settings: dict[str, Any],
    names: list[str],
    tmp_path: Path,
) -> None:
    speakers = [f"speaker {row % 10}" for row in range(40)]
    splits = {"train": (random_states(), [0, 1] * 20)}
    gaam_cache.write(
        tmp_path / "cache", splits, columns={"speaker": {"train": speakers}}
    )
    config = change(config_of(tmp_path / "cache", tmp_path / "runs"), attn=("none",))
    gaam_decoder.train(change(config, **other_settings))
    has_folds = "folds" in settings
    runs = gaam_decoder.train(change(config, final=has_folds, **settings))
    [final] = [run for run in runs if not run.evaluated]
    lines = cross_validations_in_words(final)
    assert len(lines) == len(names)
    assert all(any(name in line for line in lines) for name in names)
    words = inspect(final.path).in_words()
    assert words.count("cross-validated") == len(names)


def test_of_several_data_sets_the_recommended_runs_are_named(
    config: TrainConfig, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        cache = tmp_path / name
        seed = len(list(tmp_path.iterdir()))
        states = random_states() + np.float32(seed)
        splits = {"train": (states, [0, 1] * 20), "test": (-states, [0, 1] * 20)}
        gaam_cache.write(cache, splits, dataset_name=name)
        gaam_decoder.train(change(config, cache=cache, attn=("none",)))
    with pytest.raises(ConfigError, match="the report has 2 tables") as caught:
        gaam_decoder.load(config.runs)
    found = caught.value.details["found"].split(", ")
    assert [name.split(" ")[1] for name in found] == ["(one)", "(two)"]


def test_without_a_final_model_the_folds_are_listed(config: TrainConfig) -> None:
    gaam_decoder.train(change(config, attn=("none",), folds=2))
    with pytest.raises(ConfigError, match="'none' has 2 runs") as caught:
        gaam_decoder.load(config.runs)
    assert "--final" in caught.value.details["to do"]
