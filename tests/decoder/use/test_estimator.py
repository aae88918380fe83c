"""An estimator trains as ``gaam train`` does, and scikit-learn takes it."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
import tempfile
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn import model_selection, preprocessing
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.pipeline import make_pipeline

import gaam_cache
import gaam_decoder
from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError, DataError, GaamError, GaamWarning
from gaam_decoder import Estimator, TrainConfig
from gaam_decoder.runs.files import WEIGHTS_FILE
from gaam_decoder.runs.loading import load_runs
from gaam_decoder.use import estimator as module
from gaam_decoder.use.results import NumberPredictions
from tests.conftest import Outcome

# rows that are few
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

Gaam = Callable[..., Outcome]
QUICK: dict[str, Any] = {"seeds": 2, "epochs": 8, "lr": 0.03}
RNG = np.random.default_rng(0)
CLASS = RNG.integers(0, 3, 80)
STATES = RNG.normal(size=(80, 3, 8)).astype("f4")
STATES[:, 1, :3] += 3 * np.eye(3)[CLASS]
NUMBERS = STATES[:, 1, :2] + 0.1 * RNG.normal(size=(80, 2))
FLAGS = (NUMBERS > 1).astype(int)
WORDS = np.array(["cat", "dog", "owl"])[CLASS]
GROUPS = RNG.integers(0, 16, 80)
TRAINING, TEST = slice(60), slice(60, 80)


@pytest.mark.parametrize(
    ("targets", "task", "states", "options", "settings"),
    [
        pytest.param(
            WORDS,
            "classification",
            STATES,
            ["--attn", "gaam", "--seeds", "2", "--epochs", "1"],
            {"attn": "gaam", "seeds": 2, "epochs": 1},
            id="words, tuned",
        ),
        pytest.param(
            CLASS,
            "classification",
            STATES.astype("f2"),
            [
                "--attn",
                "mha",
                "--seeds",
                "3,5",
                "--epochs",
                "2",
                "--lr",
                "0.01",
                "--groups",
                "speaker",
            ],
            {"attn": "mha", "seeds": (3, 5), "epochs": 2, "lr": 0.01},
            id="whole numbers in groups, float16",
        ),
        pytest.param(
            NUMBERS,
            "regression",
            STATES.astype("f8"),
            [
                "--attn",
                "none",
                "--head",
                "mlp",
                "--seeds",
                "2",
                "--epochs",
                "8",
                "--lr",
                "0.01",
                "--layers",
                "1-2",
            ],
            {"attn": "none", "head": "mlp", **QUICK, "lr": 0.01, "layers": "1-2"},
            id="numbers, float64",
        ),
        pytest.param(
            FLAGS,
            "multi-label",
            STATES,
            [
                "--attn",
                "laplace",
                "--seeds",
                "2",
                "--epochs",
                "8",
                "--lr",
                "0.03",
                "--select",
                "last",
            ],
            {"attn": "laplace", **QUICK, "select": "last"},
            id="label sets",
        ),
        pytest.param(
            NUMBERS[:, 0],
            "regression",
            STATES,
            ["--attn", "none", "--head", "nadaraya-watson:kernel=boxcar"],
            {"attn": "none", "head": "nadaraya-watson:kernel=boxcar"},
            id="a fitted head",
        ),
    ],
)
def test_weights_and_outputs_are_those_of_gaam_train(
    gaam: Gaam,
    tmp_path: Path,
    targets: np.ndarray,
    task: str,
    states: np.ndarray,
    options: list[str],
    settings: dict[str, Any],
) -> None:
    cache, runs = tmp_path / "cache", tmp_path / "runs"
    splits = {
        name: (states[rows], targets[rows])
        for name, rows in (("train", TRAINING), ("test", TEST))
    }
    speakers = {
        name: [str(group) for group in (GROUPS[rows] if name == "train" else [99] * 20)]
        for name, rows in (("train", TRAINING), ("test", TEST))
    }
    gaam_cache.write(cache, splits, task=task, columns={"speaker": speakers})
    outcome = gaam("train", "--cache", cache, "--runs", runs, "--no-probe", *options)
    assert outcome.code == 0, outcome.err
    [run] = [run for run in load_runs(runs) if not run.tuning_only]

    groups = GROUPS[TRAINING] if "--groups" in options else None
    estimator = Estimator(task=task, **settings)
    estimator.fit(states[TRAINING], targets[TRAINING], groups=groups)
    weights = estimator._learned().weights
    with run.tensors(WEIGHTS_FILE) as file:
        assert set(weights) == set(file.keys())
        for name, tensor in weights.items():
            np.testing.assert_array_equal(tensor.numpy(), file.get_tensor(name))
    assert (estimator.lr_, estimator.seeds_) == (run.recipe.lr, run.finished)

    theirs = gaam_decoder.load(run.path).predict_states(states[TEST])
    if isinstance(theirs, NumberPredictions):
        expected, tested = theirs.numbers_NK, run.logits.mean(0, dtype="f8")
        expected = expected.reshape(targets[TEST].shape)
        predicted = estimator.predict(states[TEST])
        tested = tested.reshape(targets[TEST].shape)
    else:
        to_probability = (
            softmax if task == "classification" else lambda x, axis: expit(x)
        )
        tested = to_probability(run.logits.astype("f8"), axis=-1).mean(0)
        expected, predicted = (
            theirs.probabilities_NC,
            estimator.predict_proba(states[TEST]),
        )
    np.testing.assert_array_equal(predicted, expected)
    np.testing.assert_allclose(predicted, tested, atol=1e-5)


def test_settings_have_the_defaults_of_gaam_train() -> None:
    settings = {
        name: value
        for name, value in Estimator().get_params().items()
        if name not in module.OWN_SETTINGS and value is not None
    }
    assert TrainConfig(**settings) == TrainConfig()
    names = {field.name for field in fields(TrainConfig)}
    assert set(Estimator().get_params()) <= names | set(module.OWN_SETTINGS)


@pytest.mark.parametrize(
    ("targets", "task", "head", "score"),
    [
        pytest.param(WORDS, "classification", "linear", "accuracy", id="words"),
        pytest.param(CLASS > 1, "classification", "lbfgs", "accuracy", id="truth"),
        pytest.param(FLAGS, "multi-label", "linear", "f1_micro", id="label sets"),
        pytest.param(NUMBERS, "regression", "ridge", "r2", id="numbers"),
    ],
)
def test_scikit_learn_takes_it(
    targets: np.ndarray, task: str, head: str, score: str
) -> None:
    estimator = Estimator(task=task, attn="none", head=head, **QUICK)
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    assert (is_classifier(copy), is_regressor(copy)) == (
        task != "regression",
        task == "regression",
    )

    # its own score is the score of that name there
    folds = model_selection.KFold(2)
    by_both = [
        model_selection.cross_val_score(
            estimator, STATES, targets, cv=folds, scoring=name, error_score="raise"
        )
        for name in (None, score)
    ]
    np.testing.assert_allclose(by_both[0], by_both[1], rtol=1e-6)
    assert by_both[0].mean() > 0.5


def test_a_search_a_pipeline_and_groups() -> None:
    search = model_selection.GridSearchCV(
        Estimator(attn="none", **QUICK), {"layers": ["1", "2"]}, cv=2
    )
    assert search.fit(STATES, WORDS).best_params_ == {"layers": "2"}
    assert search.predict_proba(STATES).shape == (80, 3)

    # a two-dimensional step gives states of one layer
    pipeline = make_pipeline(preprocessing.StandardScaler(), clone(search.estimator))
    pipeline.fit(STATES[:, 1], WORDS)
    assert pipeline.score(STATES[:, 1], WORDS) > 0.8

    scores = model_selection.cross_val_score(
        search.estimator,
        STATES,
        WORDS,
        groups=GROUPS,
        params={"groups": GROUPS},
        cv=model_selection.GroupKFold(2),
    )
    assert scores.mean() > 0.5


@pytest.mark.parametrize("is_fitted", [True, False], ids=["fitted", "new"])
def test_a_pickled_copy_is_the_same(is_fitted: bool) -> None:
    """Processes of joblib get and return such copies."""
    estimator = Estimator(attn="none", **QUICK)
    if is_fitted:
        estimator.fit(STATES, WORDS).predict(STATES)
    copy = pickle.loads(pickle.dumps(estimator))
    assert repr(copy) == repr(estimator)
    if is_fitted:
        expected = estimator.predict_proba(STATES)
        np.testing.assert_array_equal(copy.predict_proba(STATES), expected)


OWN_GATE = """
import torch
from gaam_decoder.attention import Attention
K = 1.0

class OwnGate(Attention):
    def forward(self, x_BLD):
        return torch.tanh(K * x_BLD)
"""


@pytest.mark.parametrize("change", ["edited", "set"])
def test_an_estimator_refuses_other_code_than_that_of_its_fit(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"gate_{change}"
    file = tmp_path / f"{name}.py"
    file.write_text(OWN_GATE)
    gate: Any = importlib.import_module(name)
    estimator = Estimator(attn=gate.OwnGate, **QUICK).fit(STATES, WORDS)
    if change == "set":
        gate.K = -3.0
    else:
        pickled = pickle.dumps(estimator)
        file.write_text(OWN_GATE.replace("1.0", "-3.0"))
        importlib.reload(gate)
        estimator = pickle.loads(pickled)
    with pytest.raises(ConfigError, match=r"'OwnGate' is not the code"):
        estimator.predict(STATES)


@pytest.mark.parametrize(
    "targets",
    [
        pytest.param(WORDS, id="words"),
        pytest.param(CLASS + 5, id="whole numbers"),
        pytest.param(CLASS > 1, id="truth values"),
        pytest.param(np.where(CLASS > 1, "", "nan"), id="an empty word"),
    ],
)
def test_a_saved_estimator_is_an_exported_decoder(
    targets: NDArray[Any], tmp_path: Path
) -> None:
    estimator = Estimator(**QUICK).fit(STATES, targets)
    loaded = gaam_decoder.load(estimator.save(tmp_path / "decoder"))
    predictions: Any = loaded.predict_states(STATES)
    classes = estimator.predict(STATES).tolist()
    assert predictions.labels == [str(name) or "(empty)" for name in classes]
    np.testing.assert_array_equal(
        predictions.probabilities_NC, estimator.predict_proba(STATES)
    )
    # as the estimator takes them: an array of states needs no encoder
    assert loaded.predict(STATES) == classes
    np.testing.assert_array_equal(
        loaded.predict_proba(STATES), predictions.probabilities_NC
    )
    with pytest.raises(GaamError, match="exists already"):
        estimator.save(tmp_path / "decoder")
    estimator.save(tmp_path / "decoder", overwrite=True)


DATES = np.array(["2020-01-01", "2021-01-01", "2022-01-01"])
UNSAVED: dict[str, NDArray[Any]] = {
    "bytes": WORDS.astype("S"),
    "bytes as objects": WORDS.astype("S").astype(object),
    "dates": DATES.astype("datetime64[D]")[CLASS],
    "dates in nanoseconds": DATES.astype("datetime64[ns]")[CLASS],
}


@pytest.mark.parametrize("name", UNSAVED)
def test_classes_that_a_file_cannot_give_back_are_not_saved(
    name: str, tmp_path: Path
) -> None:
    targets = UNSAVED[name]
    estimator = clone(FITTED).fit(STATES, targets)
    assert estimator.predict(STATES).dtype == targets.dtype
    with pytest.raises(DataError, match="cannot be saved") as caught:
        estimator.save(tmp_path / "decoder")
    assert "astype(str)" in caught.value.details["to do"]
    assert not list(tmp_path.iterdir())


COLUMNS = [f"feature {number}" for number in range(8)]
TABLE = pd.DataFrame(STATES[:, 1], columns=COLUMNS)
OTHER_TABLES: dict[str, tuple[pd.DataFrame, str]] = {
    "another order": (TABLE[COLUMNS[::-1]], "another order"),
    "other names": (TABLE.add_prefix("new "), "missing: 'feature 0'"),
    "a column too few": (TABLE[COLUMNS[1:]], "missing: 'feature 0'; new: none"),
}


@pytest.fixture(scope="module")
def fitted_on_table() -> Estimator:
    return Estimator(attn="none", **QUICK).fit(TABLE, CLASS)


@pytest.mark.parametrize("name", OTHER_TABLES)
@pytest.mark.parametrize("copy", ["fitted", "pickled", "loaded"])
def test_a_table_has_the_columns_of_fit_in_their_order(
    name: str, copy: str, fitted_on_table: Estimator, tmp_path: Path
) -> None:
    decoder: Any = fitted_on_table
    if copy == "pickled":
        decoder = pickle.loads(pickle.dumps(decoder))
    if copy == "loaded":
        decoder = gaam_decoder.load(decoder.save(tmp_path / "decoder"))
        assert decoder.feature_names == tuple(COLUMNS)
    else:
        assert decoder.feature_names_in_.tolist() == COLUMNS
    expected = fitted_on_table.predict_proba(TABLE)
    np.testing.assert_array_equal(decoder.predict_proba(TABLE), expected)
    table, found = OTHER_TABLES[name]
    with pytest.raises(ValueError, match="feature names should match") as caught:
        decoder.predict(table)
    assert found in str(caught.value)


def test_names_of_one_of_two_tables_are_warned_of(fitted_on_table: Estimator) -> None:
    unnamed = clone(FITTED).fit(TABLE.to_numpy(), CLASS)
    assert not hasattr(unnamed, "feature_names_in_")
    with pytest.warns(GaamWarning, match="fit had none"):
        unnamed.predict(TABLE)
    with pytest.warns(GaamWarning, match="X has no feature names"):
        fitted_on_table.predict(TABLE.to_numpy())
    with pytest.raises(DataError, match="some columns have texts"):
        unnamed.fit(TABLE.rename(columns={COLUMNS[0]: 0}), CLASS)


def test_a_loaded_estimator_of_one_layer_takes_states_without_an_axis_of_layers(
    tmp_path: Path,
) -> None:
    states = STATES[:, 1]
    estimator = clone(FITTED).fit(states, CLASS)
    loaded = gaam_decoder.load(estimator.save(tmp_path / "decoder"))
    expected = estimator.predict(states).tolist()
    for form in (states, torch.from_numpy(states), states[:, None], TABLE):
        assert loaded.predict(form) == expected
    with pytest.raises(DataError, match="another shape"):
        loaded.predict(states[:, :4])


@pytest.mark.parametrize(
    ("targets", "task"),
    [
        pytest.param(WORDS.tolist(), "classification", id="words"),
        pytest.param(CLASS > 1, "classification", id="truth values"),
        pytest.param(NUMBERS[:, 0], "regression", id="fractions"),
        pytest.param(FLAGS.astype(bool), "multi-label", id="several truth values"),
    ],
)
def test_fit_finds_the_task_and_leaves_nothing_behind(
    targets: Any,
    task: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    # scikit-learn need not be installed
    monkeypatch.setitem(sys.modules, "sklearn", None)
    spec = importlib.util.spec_from_file_location("a_copy", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "a_copy", copy)
    spec.loader.exec_module(copy)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    estimator = copy.fit(STATES, targets, attn="none", **QUICK)
    assert estimator.task == task
    assert estimator.predict(STATES).shape == np.shape(targets)
    assert not list((tmp_path / "temporary").glob("gaam-*"))
    assert not list((tmp_path / "work").iterdir())
    assert capfd.readouterr() == ("", "")


def with_nan(values: np.ndarray) -> np.ndarray:
    damaged = values.astype("f4")
    damaged[7, 0] = np.nan
    return damaged


def masked(values: np.ndarray) -> np.ma.MaskedArray[Any, Any]:
    mask = np.zeros(values.shape, bool)
    mask[7] = True
    return np.ma.masked_array(values, mask)


FITTED = Estimator(attn="none", **QUICK)
MISTAKES: dict[str, tuple[Callable[[], object], str, str]] = {
    "nan": (lambda: FITTED.fit(with_nan(STATES), CLASS), "is NaN", "row 8"),
    "nan to predict": (
        lambda: FITTED.fit(STATES, CLASS).predict(with_nan(STATES)),
        "not finite",
        "row 8",
    ),
    "integers": (lambda: FITTED.fit(STATES.astype(int), CLASS), "no states", "int64"),
    "lengths": (lambda: FITTED.fit(STATES, CLASS[:5]), "different lengths", "5"),
    "groups": (
        lambda: FITTED.fit(STATES, CLASS, groups=[1, 2]),
        "different lengths",
        "groups",
    ),
    "other width": (
        lambda: FITTED.fit(STATES, CLASS).predict(STATES[..., :4]),
        "not like those of fit",
        "(80, 3, 4)",
    ),
    "seconds since 1970": (
        lambda: gaam_decoder.fit(STATES, 1.7e9 + 120 * RNG.normal(size=80)),
        "too close together for float32",
        "column '0'",
    ),
    "seconds since 1970, named as regression": (
        lambda: Estimator(task="regression").fit(STATES, 1.7e9 + 60 * NUMBERS),
        "too close together for float32",
        "column '0'",
    ),
    "one-hot fractions": (
        lambda: gaam_decoder.fit(STATES, np.eye(3)[CLASS]),
        "several numbers a row",
        "argmax",
    ),
    "one-hot fractions as classes": (
        lambda: FITTED.fit(STATES, np.eye(3)[CLASS]),
        "no classes",
        "argmax",
    ),
    "masked states": (
        lambda: FITTED.fit(masked(STATES), CLASS),
        "masked",
        "where:    X",
    ),
    "masked targets": (
        lambda: FITTED.fit(STATES, masked(CLASS)),
        "masked",
        "where:    y",
    ),
    "masked numbers": (
        lambda: gaam_decoder.fit(STATES, masked(NUMBERS)),
        "masked",
        "where:    y",
    ),
    "masked groups": (
        lambda: FITTED.fit(STATES, CLASS, groups=masked(GROUPS)),
        "masked",
        "groups",
    ),
    "masked states to predict": (
        lambda: FITTED.fit(STATES, CLASS).predict(masked(STATES)),
        "masked",
        "where:    X",
    ),
    "masked states of a predictor": (
        lambda: FITTED.fit(STATES, CLASS).predictor_.predict_states(masked(STATES)),
        "masked",
        "the states",
    ),
    "masked targets to score": (
        lambda: FITTED.fit(STATES, CLASS).score(STATES, masked(CLASS)),
        "masked",
        "where:    y",
    ),
    "no fit": (lambda: clone(FITTED).predict(STATES), "learned nothing", "Estimator("),
    "fractions": (
        lambda: FITTED.fit(STATES, NUMBERS[:, 0]),
        "no classes",
        "regression",
    ),
    "mixed": (
        lambda: FITTED.fit(STATES, np.array([None, "a"] * 40, object)),
        "no classes",
        "missing",
    ),
    "a list of a number and its text": (
        lambda: FITTED.fit(STATES, [1, "1"] * 40),
        "no classes",
        "several types",
    ),
    "a list of True and a text": (
        lambda: gaam_decoder.fit(STATES, [True, "a"] * 40),
        "no classes",
        "True or False",
    ),
    "True beside a number": (
        lambda: FITTED.fit(STATES, np.array([True, 2] * 40, object)),
        "no classes",
        "True or False",
    ),
    "ragged": (
        lambda: gaam_decoder.fit(STATES, [["a"], ["a", "b"]] * 40),
        "different lengths",
        "MultiLabelBinarizer",
    ),
    "nan target": (
        lambda: gaam_decoder.fit(STATES, with_nan(NUMBERS)),
        "not a finite number",
        "row 8",
    ),
    "score": (
        lambda: FITTED.fit(STATES, CLASS).score(STATES, NUMBERS),
        "not like the targets",
        "(80, 2)",
    ),
    "two mechanisms": (
        lambda: Estimator(attn=["gaam", "none"]).fit(STATES, CLASS),
        "several decoders",
        "GridSearchCV",
    ),
    "two rates": (
        lambda: Estimator(lr=[0.1, 0.2]).fit(STATES, CLASS),
        "tuning seeds",
        "1000-1002",
    ),
    "an axis too many": (
        lambda: gaam_decoder.fit(STATES[..., None], CLASS),
        "no states",
        "pooled before",
    ),
    "an option of a mechanism": (
        lambda: gaam_decoder.fit(STATES, CLASS, heads=2),
        "unknown setting",
        "attn='gaam:heads=2'",
    ),
    "a typo": (lambda: FITTED.set_params(epoch=3), "unknown setting", "'epochs'"),
    "probabilities of numbers": (
        lambda: gaam_decoder.fit(STATES, NUMBERS, **QUICK).predict_proba(STATES),
        "no probabilities",
        "predict",
    ),
}


OTHER_TYPES: dict[str, tuple[Any, Any, str, str]] = {
    "texts of numbers": (CLASS, CLASS.astype(str), "0 (int)", "' (str)"),
    "numbers of texts": (CLASS.astype(str), CLASS, "'0' (str)", "(int)"),
    "codes of words": (WORDS, CLASS, "'cat' (str)", "(int)"),
    "other numbers": (CLASS, CLASS + 10, "0 (int)", "1"),
}


@pytest.mark.parametrize("name", OTHER_TYPES)
def test_targets_of_which_none_is_a_class_of_fit_are_not_scored(name: str) -> None:
    fitted_on, scored, expected, found = OTHER_TYPES[name]
    estimator = clone(FITTED).fit(STATES, fitted_on)
    with pytest.raises(DataError, match="no target is a class of fit") as caught:
        estimator.score(STATES, scored)
    assert expected in caught.value.details["expected"]
    assert found in caught.value.details["found"]
    assert caught.value.details["where"] == "y"


def test_a_class_that_fit_lacked_is_wrong_and_equal_numbers_are_one_class() -> None:
    estimator = clone(FITTED).fit(STATES, CLASS)
    score = estimator.score(STATES, CLASS)
    assert estimator.score(STATES, CLASS.astype(float)) == score
    partly_known = np.where(np.arange(80) < 40, CLASS, 7)
    correct = estimator.predict(STATES) == CLASS
    assert estimator.score(STATES, partly_known) == correct[:40].sum() / 80


def replaced(targets: Any, row: int, value: object) -> list[Any]:
    """The targets as a list, in which one row has another value."""
    values: list[Any] = np.asarray(targets).tolist()
    values[row] = value
    return values


WITH_MISSING: dict[str, tuple[str, Any, Any]] = {
    "nan beside numbers": ("classification", CLASS, replaced(CLASS, 7, np.nan)),
    "nan beside words": ("classification", WORDS, replaced(WORDS, 7, np.nan)),
    "nan as a word": ("classification", WORDS, np.array(replaced(WORDS, 7, "nan"))),
    "None": ("classification", WORDS, replaced(WORDS, 7, None)),
    "NA of words": (
        "classification",
        WORDS,
        pd.Series(replaced(WORDS, 7, None), dtype="string"),
    ),
    "NA of numbers": (
        "classification",
        CLASS,
        pd.Series(replaced(CLASS, 7, None), dtype="Int64"),
    ),
    "a missing label": ("multi-label", FLAGS, with_nan(FLAGS)),
    "soft labels": ("multi-label", FLAGS, 0.4 * FLAGS),
    "labels as words": ("multi-label", FLAGS, FLAGS.astype(str)),
    "a missing number": ("regression", NUMBERS, with_nan(NUMBERS)),
    "numbers as words": ("regression", NUMBERS, NUMBERS.astype(str)),
    "words as classes and a number": (
        "classification",
        WORDS,
        replaced(WORDS, 7, 1),
    ),
    "a truth value beside words": (
        "classification",
        WORDS,
        replaced(WORDS, 7, True),
    ),
    "a truth value beside numbers": (
        "classification",
        CLASS,
        replaced(CLASS, 7, True),
    ),
}
"""The task, targets of ``fit``, and targets that are missing or malformed."""


@pytest.mark.parametrize("name", WITH_MISSING)
def test_targets_that_are_missing_or_malformed_are_refused_and_not_scored(
    name: str,
) -> None:
    task, targets, malformed = WITH_MISSING[name]
    estimator = Estimator(task=task, attn="none", **QUICK).fit(STATES, targets)
    with pytest.raises(DataError) as caught:
        estimator.score(STATES, malformed)
    assert caught.value.details["where"].startswith("y")
    # an array of texts may have a class of this name
    if name != "nan as a word":
        with pytest.raises(DataError):
            estimator.fit(STATES, malformed)


def test_weights_in_the_place_of_groups_are_refused() -> None:
    """scikit-learn takes sample weights as the third argument."""
    fit: Any = clone(FITTED).fit
    with pytest.raises(TypeError, match="positional"):
        fit(STATES, CLASS, np.ones(80))


MISSING_GROUPS: dict[str, Any] = {
    "nan": np.where(GROUPS[4] == GROUPS, np.nan, GROUPS),
    "None": [None if row == 4 else f"speaker {row % 9}" for row in range(80)],
    "nan beside texts": [np.nan if row == 4 else f"{row % 9}" for row in range(80)],
    "NaT": np.where(np.arange(80) == 4, "NaT", "2020-01-01").astype("datetime64[D]"),
    "an empty text": ["" if row == 4 else f"speaker {row % 9}" for row in range(80)],
}


@pytest.mark.parametrize("name", MISSING_GROUPS)
def test_a_missing_group_is_no_group(name: str) -> None:
    first_row = 1 + int(np.argmax(GROUPS[4] == GROUPS)) if name == "nan" else 5
    with pytest.raises(DataError, match="no group") as caught:
        clone(FITTED).fit(STATES, CLASS, groups=MISSING_GROUPS[name])
    assert caught.value.details["where"] == f"groups, row {first_row}"
    assert set(caught.value.details) == {"expected", "found", "where", "to do"}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_one_message(name: str) -> None:
    mistake, problem, detail = MISTAKES[name]
    with pytest.raises(GaamError) as caught:
        mistake()
    assert problem in caught.value.message
    assert detail in str(caught.value)
    assert {"expected", "found", "to do"} <= set(caught.value.details) or (
        "where" in caught.value.details
    )
