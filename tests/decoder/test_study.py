"""A study: commands in a row, their record, and whether the same comes out again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest

from gaam_cache.common.errors import CacheError, ConfigError
from gaam_decoder import study
from tests.conftest import Outcome

STUDIES = sorted((Path(__file__).parents[2] / "data" / "studies").glob("*/study.toml"))
RECIPE = """
title = "Tiny"
question = "Is anything there?"
caches.small = { command = "plant", gate = "laplace", rows = 90, layers = 4, width = 4 }
caches.again = { command = "plant", from = "small", gate = "none" }
report = [
    { name = "both", title = "Both", baseline = "none" },
    { name = "one", cache = "small", pairs = "layers" },
]
check.accuracy = 0.1
[[train]]
cache = "small"
attn = ["laplace:heads=1", "none"]
layers = ["all", "1-2"]
lr = "1e-3,1e-2"
tune-seeds = "0-1"
seeds = "2-7"
epochs = 2
compile = "off"
probe = false
[[train]]
cache = "again"
attn = ["gaam", "none"]
seeds = "2-7"
epochs = 2
compile = "off"
probe = false
"""


def times_of_runs(folder: Path) -> dict[Path, int]:
    """When the record of every run of a study was written."""
    return {
        path: path.stat().st_mtime_ns for path in folder.glob("tiny/runs/*/run.json")
    }


def test_a_result_is_recorded_and_comes_out_again(
    gaam: Callable[..., Outcome], tmp_path: Path
) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "study.toml").write_text(RECIPE)
    out = tmp_path / "studies"
    command = ("study", folder, "--out", out, "--set", "device=cpu")
    assert gaam(*command, "--record").code == 0
    times = times_of_runs(out)
    assert times
    rows = pandas.read_csv(folder / "rows.csv")
    seeds = pandas.read_csv(folder / "seeds.csv")
    assert set(rows["report"]) == {"both", "one"}
    assert set(seeds["seed"]) == set(range(2, 8)), "tuning seeds do not report"
    check = gaam(*command, "--check", "--json")
    assert check.code == 0
    assert json.loads(check.out)["differences"] == []
    assert times_of_runs(out) == times, "nothing was trained again"


@pytest.fixture
def recorded_rows() -> pandas.DataFrame:
    return pandas.read_csv(STUDIES[0].with_name("rows.csv"))


def test_a_check_of_the_same_rows_finds_no_difference(
    recorded_rows: pandas.DataFrame,
) -> None:
    assert study.compare(recorded_rows, recorded_rows, study.TOLERANCES) == []


@pytest.mark.parametrize(("column", "change"), [("accuracy", 0.0029), ("p_holm", 0.5)])
def test_a_change_within_its_tolerance_is_no_difference(
    column: str, change: float, recorded_rows: pandas.DataFrame
) -> None:
    rows = recorded_rows.copy()
    rows.loc[2, column] += change
    assert study.compare(recorded_rows, rows, study.TOLERANCES) == []


@pytest.mark.parametrize(
    ("column", "change"), [("parameters", 1), ("difference", -0.0031)]
)
def test_a_change_beyond_its_tolerance_is_a_difference(
    column: str, change: float, recorded_rows: pandas.DataFrame
) -> None:
    rows = recorded_rows.copy()
    rows.loc[2, column] += change
    [difference] = study.compare(recorded_rows, rows, study.TOLERANCES)
    assert column in difference


LABELS_OF_EQUAL_KEYS = {
    "losses": ("none loss=cross-entropy", "none loss=focal"),
    "candidates": ("none lr=0.01", "none lr=0.05"),
    "optimizers and tuned rates": (
        "none lr=0.05, optimizer=adamw",
        "none lr=0.01, optimizer=sgd",
    ),
    "rows that nothing tells apart": ("none #1", "none #2"),
}


@pytest.mark.parametrize("name", LABELS_OF_EQUAL_KEYS)
def test_rows_that_share_the_columns_of_settings_are_compared_one_to_one(
    name: str, recorded_rows: pandas.DataFrame
) -> None:
    labels = LABELS_OF_EQUAL_KEYS[name]
    first_row = recorded_rows[:1]
    recorded = pandas.concat(
        [
            first_row.assign(label=label, accuracy=accuracy)
            for label, accuracy in zip(labels, (0.6, 0.8), strict=True)
        ],
        ignore_index=True,
    )
    # the order of the rows is that of their scores
    current = recorded[::-1].reset_index(drop=True)
    assert study.compare(recorded, current, study.TOLERANCES) == []
    current.loc[0, "accuracy"] = 0.7
    [difference] = study.compare(recorded, current, study.TOLERANCES)
    assert f"{labels[1]} " in difference
    assert "accuracy 0.7, recorded: 0.8" in difference
    [missing] = study.compare(recorded, recorded[:1], study.TOLERANCES)
    assert f"{labels[1]} " in missing
    assert "is not there" in missing


def test_another_tuned_rate_pairs_the_same_rows(
    recorded_rows: pandas.DataFrame,
) -> None:
    adamw = recorded_rows[:1].assign(label="none lr=0.01, optimizer=adamw")
    sgd = recorded_rows[:1].assign(label="none lr=0.05, optimizer=sgd", accuracy=0.1)
    recorded = pandas.concat([adamw, sgd], ignore_index=True)
    current = recorded.assign(
        label=["none lr=0.05, optimizer=adamw", "none lr=0.01, optimizer=sgd"]
    )
    assert study.compare(recorded, current, study.TOLERANCES) == []


def test_a_row_too_many_or_too_few_is_a_difference(
    recorded_rows: pandas.DataFrame,
) -> None:
    fewer = recorded_rows[1:]
    added = study.compare(fewer, recorded_rows, study.TOLERANCES)
    missing = study.compare(recorded_rows, fewer, study.TOLERANCES)
    assert "not recorded" in added[0]
    assert "not there" in missing[0]


def test_rows_of_other_states_are_not_compared(recorded_rows: pandas.DataFrame) -> None:
    other_states = recorded_rows.assign(cache="0" * 12)
    with pytest.raises(CacheError, match="0" * 12):
        study.compare(other_states, recorded_rows, study.TOLERANCES)


# what is replaced, by what, and what the refusal names
WRONG_RECIPES = {
    "unknown key": ('question = "Is', 'qestion = "Is', "qestion"),
    "seeds that tune and report": ('seeds = "2-7"', 'seeds = "0-7"', "--tune-seeds"),
    "a device": ("lr =", 'device = "cpu"\nlr =', "study --set"),
    "a name twice": ('name = "one"', 'name = "both"', "reports"),
    "no TOML": ("[[train]]", "[[train", "line 11"),
}


@pytest.mark.parametrize(
    ("old", "new", "message"), WRONG_RECIPES.values(), ids=WRONG_RECIPES.keys()
)
def test_a_wrong_recipe_is_refused_before_anything_is_run(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "study.toml").write_text(RECIPE.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        study.read_study(tmp_path)


@pytest.mark.parametrize("file", STUDIES, ids=lambda path: path.parent.name)
def test_recorded_rows_are_means_of_recorded_seeds(file: Path) -> None:
    """The table that people read follows from the seeds beside it."""
    rows = pandas.read_csv(file.with_name("rows.csv"))
    seeds = pandas.read_csv(file.with_name("seeds.csv"))
    keys = ["attention", "head", "select", "layers", "train_rows"]
    by_decoder = seeds.groupby(["fingerprint", *keys], dropna=False)["accuracy"]
    means = by_decoder.agg(["mean", "std"])
    merged = rows.merge(means, left_on=["cache", *keys], right_index=True)
    assert len(merged) == len(rows) > 0
    assert (merged["accuracy"] - merged["mean"]).abs().max() < 2e-6
    assert (merged["sd"] - merged["std"]).abs().max() < 2e-6
    page = file.with_name("README.md").read_text().replace("\\", "")
    assert len(page.split()) <= 1000
    assert all(label in page for label in rows["label"])


NUMBERS = """
title = "Numbers"
caches.numbers = { dataset = "DATA", encoder = "tfidf", label-column = "y", task = "regression" }
report = [{ name = "all" }]
[[train]]
cache = "numbers"
attn = ["none"]
seeds = "0-1"
lr = 0.01
epochs = 2
compile = "off"
probe = false
"""


def test_the_scores_of_numbers_are_recorded_and_compared(
    gaam: Callable[..., Outcome], tmp_path: Path
) -> None:
    words = ["red", "green", "blue", "white", "black"]
    (tmp_path / "data").mkdir()
    for split, first in (("train", 0), ("test", 60)):
        rows = [f"{n % 5 + 0.5},{words[n % 5]} {n}" for n in range(first, first + 60)]
        text = "\n".join(["y,text", *rows])
        (tmp_path / "data" / f"{split}.csv").write_text(text)
    folder = tmp_path / "numbers"
    folder.mkdir()
    recipe = NUMBERS.replace("DATA", str(tmp_path / "data"))
    (folder / "study.toml").write_text(recipe)
    command = ("study", folder, "--out", tmp_path / "studies", "--set", "device=cpu")
    assert gaam(*command, "--record").code == 0
    rows = pandas.read_csv(folder / "rows.csv")
    seeds = pandas.read_csv(folder / "seeds.csv")
    assert seeds["r2"].mean() == pytest.approx(rows["score"][0], abs=1e-5)
    assert gaam(*command, "--check").code == 0
    # another learning rate is another result of the same decoder
    (folder / "study.toml").write_text(recipe.replace("lr = 0.01", "lr = 0.1"))
    check = gaam(*command, "--check")
    assert check.code == 1
    assert "score" in check.out + check.err
