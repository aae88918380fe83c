"""A validation split: its rows choose, and every training row is learned from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import gaam_cache
import gaam_decoder
from gaam_cache.common.errors import ConfigError, GaamNote, GaamWarning
from gaam_decoder import TrainConfig
from gaam_decoder.training.data import labels_by_seed, prepare_data
from gaam_decoder.training.experiments import plan_experiments
from tests.decoder.configs import loose_config, train_config, train_single_run

NUM_ROWS = {"train": 60, "validation": 45, "test": 40, "copy": 45}
CPU = torch.device("cpu")
TASKS = ("classification", "regression", "multi-label")


def labels_of(task: str, class_N: NDArray[np.int64]) -> NDArray[Any]:
    """Labels of a task that follow the classes of the rows."""
    if task == "regression":
        return class_N.astype(np.float32)[:, None] / 2
    if task == "multi-label":
        return np.eye(3, dtype=np.bool_)[class_N]
    return class_N


def write_cache(folder: Path, task: str = "classification") -> Path:
    """States that tell three classes apart in part; 'copy' is 'validation' again."""
    splits: dict[str, Any] = {}
    columns: dict[str, dict[str, list[str]]] = {"speaker": {}, "shared": {}}
    for number, (split, num_rows) in enumerate(NUM_ROWS.items()):
        generator = np.random.default_rng(1 if split == "copy" else number)
        class_N = generator.permutation(np.arange(num_rows) % 3)
        x_NLD = generator.normal(size=(num_rows, 2, 5))
        x_NLD[:, :, :3] += np.eye(3)[class_N][:, None]
        splits[split] = (x_NLD.astype(np.float32), labels_of(task, class_N))
        speakers = [str(row // 5) for row in range(num_rows)]
        columns["speaker"][split] = [f"{split} {name}" for name in speakers]
        is_tested = split == "test"
        columns["shared"][split] = [f"{is_tested} {name}" for name in speakers]
    gaam_cache.write(folder, splits, task=task, columns=columns)
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cache(tmp_path_factory.mktemp("splits") / "cache")


def config_for(cache: Path, runs: Path, **settings: Any) -> TrainConfig:
    usual: dict[str, Any] = {"attn": "none", "seeds": (0, 1), "lr": 0.1}
    return train_config(cache, runs, **(usual | settings))


@pytest.mark.parametrize("task", TASKS)
def test_every_training_row_is_learned_from_and_the_validation_split_chooses(
    task: str, tmp_path: Path
) -> None:
    folder = write_cache(tmp_path / "cache", task)
    config = config_for(
        folder,
        tmp_path / "runs",
        seeds=(3,),
        epochs=8,
        schedule="constant",
        state_scale="none",
    )
    result = train_single_run(config, val_split="validation")
    split = gaam_cache.open_cache(folder)["validation"]
    validation = result.validation
    assert validation is not None
    np.testing.assert_array_equal(validation.labels, split.labels)
    assert validation.rows.tolist() == list(range(len(split)))

    # the kept weights are those of all training rows after the best epoch ...
    epoch = result.epochs[3]
    key = "accuracy" if task == "classification" else "score"
    scores = [entry[key] for entry in result.log]
    assert scores[epoch - 1] == max(scores)
    last = {"select": "last", "epochs": epoch}
    tested = train_single_run(config, **last)
    np.testing.assert_array_equal(result.logits, tested.logits)
    # ... and the validation logits are theirs
    tested = train_single_run(config, **last, test_split="validation")
    np.testing.assert_array_equal(validation.logits, tested.logits)


def test_the_probe_takes_all_training_rows_too(cache: Path, tmp_path: Path) -> None:
    """Its penalty is the best of those tried, in the scores of the validation split."""
    config = config_for(cache, tmp_path / "runs", head="lbfgs")
    result = train_single_run(config, val_split="validation")
    assert result.fit is not None
    scores = [entry["accuracy"] for entry in result.log]
    assert len(result.log) == result.fit.tried
    assert scores[result.epochs[0] - 1] == max(scores)
    validation = result.validation
    assert validation is not None
    is_right_V = validation.logits[0].argmax(1) == validation.labels
    assert is_right_V.mean() == pytest.approx(max(scores))


def test_all_tuning_seeds_choose_by_the_same_rows(cache: Path, tmp_path: Path) -> None:
    config = config_for(
        cache,
        tmp_path / "runs",
        lr=(1e-5, 0.1),
        tune_seeds=(7, 9),
        val_split="validation",
    )
    runs = gaam_decoder.train(config)
    tuning_runs = [run for run in runs if run.seeds == (7, 9)]
    assert [run.recipe.lr for run in tuning_runs] == [1e-5, 0.1]
    score_by_rate = {}
    for run in tuning_runs:
        assert run.validation is not None
        assert run.validation.labels.shape == (NUM_ROWS["validation"],)
        is_right_SV = run.validation.logits.argmax(-1) == run.validation.labels
        score_by_rate[run.recipe.lr] = is_right_SV.mean()
    [reported] = [run for run in runs if run.seeds == (0, 1)]
    assert reported.recipe.lr == max(
        score_by_rate, key=lambda rate: score_by_rate[rate]
    )
    [table] = gaam_decoder.report(config.runs).tables
    [entry] = table.entries
    assert entry.seeds == (0, 1)
    [tuning] = entry.tunings
    assert [candidate.accuracy for candidate in tuning.candidates] == [
        pytest.approx(score) for score in score_by_rate.values()
    ]


def test_labels_are_shuffled_among_training_and_validation_rows(
    cache: Path, tmp_path: Path
) -> None:
    config = config_for(
        cache, tmp_path / "runs", val_split="validation", shuffle_labels=True
    )
    [experiment] = plan_experiments(config, gaam_cache.open_cache(cache), CPU)
    data = prepare_data(gaam_cache.open_cache(cache), experiment.recipe, CPU)
    assert data.selection is not None
    train_SN, validation_SV = labels_by_seed(data, [4, 9], shuffle=True)
    assert validation_SV is not None
    true_N = torch.cat([data.train.label_N, data.selection.label_N])
    for label_N in torch.cat([train_SN, validation_SV], dim=1):
        assert torch.equal(label_N.sort().values, true_N.sort().values)
        assert not torch.equal(label_N, true_N)


REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing to choose": ({"select": "last"}, "would choose nothing"),
    "the test rows": ({"val_split": "test"}, "neither the training nor the test"),
    "the training rows": ({"val_split": "train"}, "neither the training nor the test"),
    "the test rows by another name": (
        {"test_split": "copy"},
        "the validation rows are rows of 'copy'",
    ),
    "a share too": ({"val_fraction": 0.2}, "has all validation rows"),
    "parts too": ({"val_folds": 3}, "has all validation rows"),
    "folds": ({"folds": 3}, "plays no part with --folds"),
    "a final model": ({"final": True}, "trains what is tested already"),
    "few rows": ({"train_rows": (30,)}, "which --train-rows counts"),
    "no such split": ({"val_split": "dev"}, "no split with labels 'dev'"),
    "a split seed": ({"split_seed": 3}, "has all validation rows"),
    "speakers who train": (
        {"groups": "shared"},
        "groups of 'train' are validation rows of 'validation' too",
    ),
    "speakers who train, where training rows are tested": (
        {"groups": "shared", "test_split": "train", "allow_train_as_test": True},
        "groups of 'train' are validation rows of 'validation' too",
    ),
    "a file of speakers": ({"groups": "lines.txt"}, "no training row is held out"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_a_validation_split_cannot_have_is_refused(
    case: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lines.txt").write_text("".join(f"{row // 5}\n" for row in range(60)))
    settings, message = REFUSALS[case]
    usual = {"attn": "none", "lr": 0.1, "val_split": "validation", "probe": False}
    with pytest.raises(ConfigError, match=message):
        gaam_decoder.train(
            loose_config(cache=cache, runs=tmp_path / "runs", **(usual | settings))
        )
    assert not (tmp_path / "runs").exists()


def test_speakers_of_one_split_each_are_accepted(cache: Path, tmp_path: Path) -> None:
    config = config_for(cache, tmp_path / "runs", groups="speaker")
    result = train_single_run(config, val_split="validation")
    validation = result.validation
    assert validation is not None
    [speaker_V] = validation.relations_of_seed(0, ["speaker"])
    assert len(np.unique(speaker_V)) == NUM_ROWS["validation"] // 5
    assert result.learned_groups["speaker"] == NUM_ROWS["train"] // 5


def test_an_unused_validation_split_is_named(cache: Path, tmp_path: Path) -> None:
    config = config_for(cache, tmp_path / "runs")
    with pytest.warns(GaamNote, match="--set val-split=validation"):
        train_single_run(config)
    text = gaam_decoder.report(tmp_path / "runs").text()
    assert "'validation' is not used: rows held out of 'train' chose epochs" in text


@pytest.mark.parametrize(
    ("val_split", "to_do"),
    [("dev", "--set val-split=validation"), ("more", "--split more --out ANOTHER")],
)
def test_a_missing_validation_split_has_a_remedy(
    val_split: str, to_do: str, cache: Path, tmp_path: Path
) -> None:
    config = config_for(cache, tmp_path / "runs", val_split=val_split)
    with pytest.raises(ConfigError) as caught:
        train_single_run(config)
    assert to_do in caught.value.details["to do"]


def test_a_report_tells_decoders_with_and_without_the_split_apart(
    cache: Path, tmp_path: Path
) -> None:
    for val_split in (None, "validation"):
        config = config_for(
            cache, tmp_path / "runs", val_split=val_split, probe=True, seeds="0-5"
        )
        gaam_decoder.train(config)
    report = gaam_decoder.report(tmp_path / "runs", pairs="val_split")
    text = report.text()
    assert (
        "select val: validation rows, a part of the training split, or the rows of the "
        "split 'validation' choose the epoch"
    ) in text
    assert "val-split validation minus val-split held-out rows" in text
    assert "the rows of 'validation' chose epochs, rates and penalties, where" in text
    titles = [run.title for run in gaam_decoder.load_runs(tmp_path / "runs")]
    assert len(set(titles)) == len(titles) == 4
    # each decoder is compared with the probe of the same validation rows
    [table] = report.tables
    means = {
        (entry.head, entry.recipe.get("val_split")): entry.default_score.mean
        for entry in table.entries
    }
    for entry in table.entries:
        if entry.probe_comparison:
            val_split = entry.recipe.get("val_split")
            mean = means["linear", val_split]
            mean_of_probe = means["lbfgs", val_split]
            assert mean is not None
            assert mean_of_probe is not None
            found = entry.probe_comparison.claim.difference
            assert found == pytest.approx(mean - mean_of_probe)
    assert sum(entry.probe_comparison is not None for entry in table.entries) == 2


def test_validation_rows_that_were_learned_from_are_named(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    label_N = np.arange(60) % 3
    x_NLD = generator.normal(size=(60, 2, 5)).astype(np.float32)
    splits = {
        "train": (x_NLD, label_N),
        "validation": (np.concatenate([x_NLD[:30], -x_NLD[:9]]), np.arange(39) % 3),
        "test": (2 * x_NLD, label_N),
    }
    with pytest.warns(GaamWarning):
        gaam_cache.write(tmp_path / "cache", splits)
    config = config_for(tmp_path / "cache", tmp_path / "runs", val_split="validation")
    with pytest.warns(GaamWarning, match="30 of the 39 rows of 'validation' have"):
        train_single_run(config)
    text = gaam_decoder.report(tmp_path / "runs").text()
    assert "30 of the 39 rows of 'validation' have a text that 'train' has, too" in text


@pytest.mark.parametrize("num_tested", [30, 12])
def test_validation_rows_that_are_tested_are_refused_or_named(
    num_tested: int, tmp_path: Path
) -> None:
    """In another order they are another split, and the same rows."""
    generator = np.random.default_rng(0)
    x_NLD = generator.normal(size=(120, 2, 5)).astype(np.float32)
    label_N = np.arange(120) % 3
    tested_N = generator.permutation(np.arange(60, 120))[:num_tested]
    others_N = np.arange(60)[: 30 - num_tested]
    row_N = {
        "train": np.arange(30, 60),
        "validation": np.concatenate([tested_N, others_N]),
        "test": np.arange(60, 120),
    }
    splits = {split: (x_NLD[rows], label_N[rows]) for split, rows in row_N.items()}
    with pytest.warns(GaamWarning):
        gaam_cache.write(tmp_path / "cache", splits)
    config = config_for(tmp_path / "cache", tmp_path / "runs", val_split="validation")
    if num_tested == 30:
        with pytest.raises(ConfigError, match="the validation rows are rows of 'test'"):
            train_single_run(config)
    else:
        with pytest.warns(
            GaamWarning, match="12 of the 30 rows.*test rows, which a score"
        ):
            train_single_run(config)


@pytest.mark.parametrize("groups", [None, "shared"])
def test_of_one_validation_row_or_speaker_the_choice_is_a_guess(
    groups: str | None, tmp_path: Path
) -> None:
    """Any rate counts as likely, so that the interval is wider, and known."""
    generator = np.random.default_rng(4)
    num_rows = {"train": 30, "validation": 6 if groups else 1, "test": 40}
    splits: dict[str, Any] = {}
    for split, count in num_rows.items():
        class_N = np.arange(count) % 3
        x_NLD = generator.normal(size=(count, 2, 5)) + class_N[:, None, None]
        splits[split] = (x_NLD.astype(np.float32), class_N)
    columns = {
        "shared": {
            "train": [str(row // 3) for row in range(30)],
            "validation": ["one"] * num_rows["validation"],
            "test": [f"test {row // 2}" for row in range(40)],
        }
    }
    gaam_cache.write(tmp_path / "cache", splits, columns=columns)
    config = config_for(
        tmp_path / "cache",
        tmp_path / "runs",
        lr=(1e-5, 0.1),
        tune_seeds=(7, 8),
        seeds="0-5",
        groups=groups,
        val_split="validation",
    )
    gaam_decoder.train(config)
    [table] = gaam_decoder.report(config.runs).tables
    [entry] = table.entries
    [choices] = entry.simulated_choices
    assert choices.share == 0.5
    assert np.isfinite(choices.variance)
    interval = entry.default_score.seeds_rows_interval
    assert interval is not None
    assert np.isfinite(interval).all()
    assert "(edge)" not in entry.label


def test_a_final_model_has_no_line_for_its_tuning_seeds(
    cache: Path, tmp_path: Path
) -> None:
    config = config_for(
        cache,
        tmp_path / "runs",
        lr=(1e-5, 0.1),
        tune_seeds=(7, 8),
        test_split="none",
        val_split="validation",
    )
    gaam_decoder.train(config)
    [table] = gaam_decoder.report(config.runs).tables
    assert [model.seeds for model in table.final_models] == [(0, 1)]
