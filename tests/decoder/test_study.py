"""A study: commands in a row, what is recorded of them, and whether it comes out again."""

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


def test_what_came_out_is_recorded_and_comes_out_again(
    gaam: Callable[..., Outcome], tmp_path: Path
) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "study.toml").write_text(RECIPE)
    words = ("study", folder, "--out", tmp_path / "studies", "--set", "device=cpu")
    assert gaam(*words, "--record").code == 0
    made = {
        path: path.stat().st_mtime_ns
        for path in tmp_path.glob("studies/tiny/runs/*/run.json")
    }
    rows, seeds = (
        pandas.read_csv(folder / f"{name}.csv") for name in ("rows", "seeds")
    )
    assert set(rows["report"]) == {"both", "one"}
    assert set(seeds["seed"]) == set(range(2, 8)), "seeds that chose do not report"
    checked = gaam(*words, "--check", "--json")
    assert (checked.code, json.loads(checked.out)["differences"]) == (0, [])
    assert {
        path: path.stat().st_mtime_ns for path in made
    } == made  # nothing was trained again


def test_a_check_compares_within_its_tolerances_and_only_what_is_of_the_same_states() -> (
    None
):
    rows = pandas.read_csv(STUDIES[0].with_name("rows.csv"))
    assert study.compare(rows, rows, study.TOLERANCES) == []
    changes = {
        "accuracy": 0.0029,
        "p_holm": 0.5,
        "parameters": 1,
        "difference": -0.0031,
    }
    for column, by in changes.items():
        other = rows.copy()
        other.loc[2, column] += by
        found = study.compare(rows, other, study.TOLERANCES)
        assert [column in one for one in found] == [True] * (column in [*changes][2:])
    assert "not recorded" in study.compare(rows[1:], rows, study.TOLERANCES)[0]
    assert "not there" in study.compare(rows, rows[1:], study.TOLERANCES)[0]
    with pytest.raises(CacheError, match="0" * 12):
        study.compare(rows.assign(cache="0" * 12), rows, study.TOLERANCES)


def test_what_is_wrong_with_a_recipe_is_said_before_anything_is_run(
    tmp_path: Path,
) -> None:
    for old, new, words in (
        ('question = "Is', 'qestion = "Is', "qestion"),
        ('seeds = "2-7"', 'seeds = "0-7"', "--tune-seeds"),
        ("lr =", 'device = "cpu"\nlr =', "study --set"),
        ('name = "one"', 'name = "both"', "reports"),
        ("[[train]]", "[[train", "line 11"),
    ):
        (tmp_path / "study.toml").write_text(RECIPE.replace(old, new, 1))
        with pytest.raises(ConfigError, match=words):
            study.read_study(tmp_path)


@pytest.mark.parametrize("file", STUDIES, ids=lambda path: path.parent.name)
def test_recorded_rows_are_means_of_recorded_seeds(file: Path) -> None:
    """The table that people read follows from the seeds beside it."""
    rows, seeds = (
        pandas.read_csv(file.with_name(f"{name}.csv")) for name in ("rows", "seeds")
    )
    keys = ["attention", "head", "select", "layers", "train_rows"]
    means = seeds.groupby(["fingerprint", *keys], dropna=False)["accuracy"].agg(
        ["mean", "std"]
    )
    both = rows.merge(means, left_on=["cache", *keys], right_index=True)
    assert len(both) == len(rows) > 0
    assert (both["accuracy"] - both["mean"]).abs().max() < 2e-6
    assert (both["sd"] - both["std"]).abs().max() < 2e-6
    page = file.with_name("README.md").read_text().replace("\\", "")
    assert len(page.split()) <= 1000
    assert all(label in page for label in rows["label"])
