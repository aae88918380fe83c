"""A study: commands in a row, what is recorded of them, and whether it comes out again."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pandas
import pytest

from gaam_cache.errors import CacheError, ConfigError, GaamError
from gaam_decoder import study

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


def gaam(here: Path, *options: str) -> subprocess.CompletedProcess[str]:
    words = [*study.GAAM, "study", "tiny", "-q", *options]
    return subprocess.run(words, cwd=here, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the study was run and recorded."""
    here = tmp_path_factory.mktemp("study")
    (here / "tiny").mkdir()
    (here / "tiny" / "study.toml").write_text(RECIPE)
    outcome = gaam(here, "--record")
    assert outcome.returncode == 0, outcome.stderr
    return here


def test_what_came_out_is_recorded_and_comes_out_again(done: Path) -> None:
    runs = {path: path.stat().st_mtime_ns for path in done.glob("studies/tiny/runs/*/run.json")}
    rows = pandas.read_csv(done / "tiny" / "rows.csv")
    seeds = pandas.read_csv(done / "tiny" / "seeds.csv")
    assert set(rows["report"]) == {"both", "one"}
    assert set(seeds["seed"]) == {0, *range(2, 8)}  # 0 of the probe; seeds that chose do not report
    page = (done / "tiny" / "README.md").read_text()
    for text in (
        "# Tiny",
        "Is anything there?",
        "gaam train --attn laplace:heads=1",
        "both-2-light",
    ):
        assert text in page
    assert {path.name for path in done.glob("tiny/*.svg")} == {
        f"{name}-{theme}.svg" for name in ("both-1", "both-2", "one") for theme in ("dark", "light")
    }
    checked = gaam(done, "--check", "--json")
    assert checked.returncode == 0, checked.stderr
    assert '"differences": []' in checked.stdout
    assert {path: path.stat().st_mtime_ns for path in runs} == runs  # nothing was trained again


def test_a_run_that_the_recipe_does_not_ask_for_is_refused(done: Path, tmp_path: Path) -> None:
    shutil.copytree(done, tmp_path / "here")
    recipe = tmp_path / "here" / "tiny" / "study.toml"
    recipe.write_text(recipe.read_text().replace('["gaam", "none"]', '["none"]'))
    outcome = gaam(tmp_path / "here")
    assert outcome.returncode == 2
    assert "gaam_heads_1-linear-" in outcome.stderr


def test_a_check_compares_within_its_tolerances_and_only_what_is_of_the_same_states() -> None:
    rows = pandas.read_csv(STUDIES[0] / "rows.csv")
    assert study.compare(rows, rows, study.TOLERANCES) == []
    for column, by, differs in (
        ("accuracy", 0.0029, False),
        ("accuracy", 0.0031, True),
        ("difference_low", -0.0031, True),
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
        study.compare(rows, rows.assign(cache="0" * 12), study.TOLERANCES)
    with pytest.raises(CacheError, match="without"):
        study.compare(rows[["report"]], rows, study.TOLERANCES)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('title = "Tiny"', "", "title"),
        ('question = "Is', 'qestion = "Is', "qestion"),
        ("rows = 90", "rowz = 90", "rowz"),
        ("rows = 90", 'rows = "many"', "many"),
        ("rows = 90", 'out = "there"', "out"),
        ('seeds = "2-7"\nepochs = 2\n', 'seeds = "0-7"\nepochs = 2\n', "tune-seeds"),
        ('cache = "again"\nattn = ["gaam", "none"]', 'cache = "small"\nattn = ["none"]', "of none"),
        ('from = "small"', 'from = "smal"', "smal"),
        ('cache = "again"', 'cache = "agan"', "agan"),
        ("lr =", 'device = "cpu"\nlr =', "--set device"),
        ('of = "laplace"', 'of = "laplce"', "laplce"),
        ('baseline = "none"', 'baseline = "nune"', "nune"),
        ('pairs = "layers"', "margin = -1", "margin"),
        ('baseline = "none"', 'baseline = "mha"', "mha"),
        ("[[ablate]]", "[ablate]", "[[ablate]]"),
        ("accuracy = 0.1", 'accuracy = "a"', "accuracy"),
        ('name = "one"', 'name = "both"', "different names"),
        ('name = "one"', 'name = "O N E"', "small letters"),
        ("accuracy = 0.1", "acuracy = 0.1", "acuracy"),
        ("[check]", "[check", "study.toml"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_said_before_anything_is_run(
    old: str, new: str, words: str, tmp_path: Path
) -> None:
    assert old in RECIPE
    (tmp_path / "study.toml").write_text(RECIPE.replace(old, new, 1))
    with pytest.raises(ConfigError) as refused:
        study.read_study(tmp_path)
    assert words in str(refused.value)
    assert "study.toml" in str(refused.value)


def test_one_of_several_ranks_runs_no_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "study.toml").write_text(RECIPE)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    recipe = study.read_study(tmp_path, out=tmp_path / "out")
    with pytest.raises(ConfigError, match="one process"):
        study.carry_out(recipe, check=False, record=False, quiet=True, say=print)
    assert not (tmp_path / "out").exists()


def test_a_study_that_is_not_there_names_those_that_are() -> None:
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
