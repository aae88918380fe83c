"""A study: commands in a row, what is recorded of them, and whether it comes out again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest

from gaam_cache.errors import CacheError, ConfigError, GaamError
from gaam_decoder import study
from tests.conftest import Outcome

ROOT = Path(__file__).parents[2]
STUDIES = sorted(file.parent for file in (ROOT / "data" / "studies").glob("*/study.toml"))
RECIPE = """
title = "Tiny"
question = "Is anything there?"

[caches.small]
command = "plant"
gate = "laplace"
rows = 90
layers = 4
width = 4

[caches.again]
command = "plant"
from = "small"
gate = "none"

[[train]]
cache = "small"
attn = ["laplace:heads=1", "none"]
lr = "1e-3,1e-2"
tune-seeds = "0-1"
seeds = "2-7"
epochs = 2
compile = "off"

[[train]]
cache = "again"
attn = ["gaam", "none"]
seeds = "2-7"
epochs = 2
compile = "off"

[[ablate]]
of = "laplace"
num-layers = 2

[[report]]
name = "both"
title = "Both"
baseline = "none"

[[report]]
name = "one"
cache = "small"
pairs = "layers"

[check]
accuracy = 0.1
"""


def carry_out(folder: Path, **options: Any) -> study.Outcome:
    recipe = study.read_study(folder, out=folder.parent / "studies", machine={"device": "cpu"})
    return study.carry_out(recipe, **options)


def test_what_came_out_is_recorded_and_comes_out_again(
    gaam: Callable[..., Outcome], tmp_path: Path
) -> None:
    folder, file = tmp_path / "tiny", tmp_path / "tiny" / "study.toml"
    folder.mkdir()
    file.write_text(RECIPE)
    carry_out(folder, record=True)
    runs = tmp_path.glob("studies/tiny/runs/*/run.json")
    made = {path: path.stat().st_mtime_ns for path in runs}
    rows, seeds = (pandas.read_csv(folder / f"{name}.csv") for name in ("rows", "seeds"))
    assert set(rows["report"]) == {"both", "one"}
    compared = rows.dropna(subset="difference_low")
    outside = (compared["difference_low"] > 0) | (compared["difference_high"] < 0)
    assert len(compared) > 0
    assert (outside == compared["verdict"].isin(["better", "worse"])).all()
    assert set(seeds["seed"]) == set(range(2, 8)), "seeds that chose do not report"
    page = (folder / "README.md").read_text()
    for text in (
        "# Tiny",
        "Is anything there?",
        "gaam train --attn laplace:heads=1",
        "both-2-light",
    ):
        assert text in page
    assert "--device" not in page
    assert {path.name for path in folder.glob("*.svg")} == {
        f"{name}-{theme}.svg" for name in ("both-1", "both-2", "one") for theme in ("dark", "light")
    }
    words = ("study", folder, "--out", tmp_path / "studies", "--set", "device=cpu")
    checked = gaam(*words, "--check", "--json")
    assert (checked.code, json.loads(checked.out)["differences"]) == (0, [])
    said = [line.split()[1] for line in checked.err.splitlines() if line.startswith("gaam ")]
    assert said == ["plant", "plant", "train", "train", "ablate"]
    assert "gaam train --attn laplace:heads=1" in gaam(*words, "--dry-run").out
    assert {path: path.stat().st_mtime_ns for path in made} == made  # nothing was trained again
    file.write_text(RECIPE.replace('["gaam", "none"]', '["none"]'))
    assert "gaam:heads=1" in set(rows["attention"])
    carry_out(folder, record=True)  # what is not asked for is in no report
    assert "gaam:heads=1" not in set(pandas.read_csv(folder / "rows.csv")["attention"])


def test_a_check_compares_within_its_tolerances_and_only_what_is_of_the_same_states() -> None:
    rows = pandas.read_csv(STUDIES[0] / "rows.csv")
    assert study.compare(rows, rows, study.TOLERANCES) == []
    for column, by, differs in (
        ("accuracy", 0.0029, False),
        ("accuracy", 0.0031, True),
        ("difference", -0.0031, True),
        ("parameters", 1, True),
        ("p_holm", 0.5, False),
    ):
        other = rows.copy()
        other.loc[2, column] += by
        found = study.compare(rows, other, study.TOLERANCES)
        assert [column in line for line in found] == [True] * differs, column
    assert "not recorded" in study.compare(rows[1:], rows, study.TOLERANCES)[0]
    assert "not there" in study.compare(rows, rows[1:], study.TOLERANCES)[0]
    with pytest.raises(CacheError, match="other states"):
        study.compare(rows.assign(cache="0" * 12), rows, study.TOLERANCES)


WRONG = [
    ('question = "Is', 'qestion = "Is', "qestion"),
    ("rows = 90", "rowz = 90", "rowz"),
    ("rows = 90", 'out = "there"', "out"),
    ('"again"\nattn = ["gaam", "none"]\nseeds = "2-7"', '"again"\nseeds = "0-7"', "tune-seeds"),
    ('from = "small"', 'from = "smal"', "smal"),
    ("lr =", 'device = "cpu"\nlr =', "study --set"),
    ('of = "laplace"', 'of = "laplce"', "laplce"),
    ('name = "one"', 'name = "both"', "different names"),
    ('name = "one"', 'name = "O N E"', "small letters"),
    ("[check]", "[check", "study.toml"),
]


def test_what_is_wrong_with_a_recipe_is_said_before_anything_is_run(tmp_path: Path) -> None:
    for old, new, words in WRONG:
        assert old in RECIPE
        (tmp_path / "study.toml").write_text(RECIPE.replace(old, new, 1))
        with pytest.raises(ConfigError) as refused:
            study.read_study(tmp_path)
        assert words in str(refused.value), new
        assert "study.toml" in str(refused.value)
    (tmp_path / "study.toml").write_text(RECIPE)
    plant, again, train, *_ = (step.words() for step in study.read_study(tmp_path).steps)
    assert plant.startswith("gaam plant studies/caches/small --gate laplace")
    assert again.endswith("--from studies/caches/small")
    assert f"--cache studies/caches/small --runs studies/{tmp_path.name}/runs" in train
    with pytest.raises(GaamError, match="did you mean 'ag-news-minilm'"):
        study.read_study("ag-news")


@pytest.mark.parametrize("folder", STUDIES, ids=lambda path: path.name)
def test_recorded_rows_are_means_of_recorded_seeds(folder: Path) -> None:
    """The table that people read follows from the seeds beside it."""
    rows, seeds = (pandas.read_csv(folder / f"{name}.csv") for name in ("rows", "seeds"))
    keys = ["attention", "head", "select", "layers", "train_rows"]
    means = seeds.groupby(["fingerprint", *keys], dropna=False)["accuracy"].agg(["mean", "std"])
    both = rows.merge(means, left_on=["cache", *keys], right_index=True)
    assert len(both) == len(rows) > 0
    assert (both["accuracy"] - both["mean"]).abs().max() < 2e-6
    assert (both["sd"] - both["std"]).abs().max() < 2e-6
    page = (folder / "README.md").read_text()
    assert all(label in page for label in rows["label"])
    assert len(page.splitlines()) <= 150
