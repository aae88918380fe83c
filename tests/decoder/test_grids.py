"""A study of several data sets and encoders: records, resumption and page."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest

from gaam_cache.common.errors import CacheError, ConfigError
from gaam_decoder.grids import running
from gaam_decoder.grids.answers import answers_of
from gaam_decoder.grids.page import make_files
from gaam_decoder.grids.recipe import GridStudy, Sources, read_grid_study
from gaam_decoder.grids.records import (
    DecoderRow,
    Records,
    SeedRow,
    read_records,
    write_records,
)
from tests.conftest import Outcome
from tests.tiny import random_rows, write_csv

RECIPE = """
title = "Tiny"
question = "Is anything there?"
[[grids]]
name = "texts"
title = "Texts"
baselines = ["gaam:heads=1", "none"]
[grids.datasets]
one = "nowhere"
two = "nowhere"
[grids.encoders]
bert = "nowhere"
gpt2 = "nowhere"
[[grids.train]]
attn = ["gaam:heads=1", "none"]
lr = 1e-3
seeds = 2
epochs = 1
compile = "off"
probe = false
"""
BUNDLED = sorted((Path(__file__).parents[2] / "data" / "studies").glob("*/grid.toml"))
SECONDS = ["extract_seconds", "train_seconds"]


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "grid.toml").write_text(RECIPE)
    return folder


@pytest.fixture
def sources(tmp_path: Path, encoders: dict[str, Path]) -> Sources:
    for number, name in enumerate(("one", "two")):
        for split in ("train", "test"):
            rows = random_rows(24, 10 * number + len(split))
            write_csv(tmp_path / "data" / name / f"{split}.csv", rows)
    folder = tmp_path / "encoders"
    folder.mkdir()
    for name in ("bert", "gpt2"):
        (folder / name).symlink_to(encoders[name])
    return Sources(tmp_path / "data", folder, {"device": "cpu"})


class Interrupted:
    """Stands for a command, and stops the program at one of its calls."""

    def __init__(self, command: Callable[..., object], at: int) -> None:
        self.command = command
        self.calls = 0
        self.at = at

    def __call__(self, *arguments: object, **keywords: object) -> object:
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return self.command(*arguments, **keywords)


def test_an_interrupted_study_ends_with_the_same_page(
    recipe: Path, sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = read_grid_study(recipe, out=tmp_path / "whole")
    assert running.carry_out_grid(whole, sources).values["missing"] == 0

    # between cells, then inside a cell
    study = read_grid_study(recipe, out=tmp_path / "parts")
    for command, call in (("extract", 2), ("train", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(
                running, command, Interrupted(getattr(running, command), call)
            )
            with pytest.raises(KeyboardInterrupt):
                running.carry_out_grid(study, sources)
        # caches and runs of recorded cells may be lost
        shutil.rmtree(study.results / "runs")
        shutil.rmtree(study.out / "caches" / "one-bert", ignore_errors=True)
    assert 0 < len(read_records(study, study.results).cells()) < 4
    running.carry_out_grid(study, sources)
    assert not (study.out / "caches" / "one-bert").exists(), "recorded: not run again"

    tables = [pandas.read_csv(s.results / "rows.csv") for s in (whole, study)]
    first, second = (table.drop(columns=SECONDS) for table in tables)
    pandas.testing.assert_frame_equal(first, second)
    for name in ("seeds.csv", "texts-forest-light.svg"):
        assert (whole.results / name).read_bytes() == (
            study.results / name
        ).read_bytes()

    # the page is made from the records alone
    shutil.rmtree(study.out / "caches")
    page = (study.results / "README.md").read_bytes()
    shutil.copy(study.results / "rows.csv", recipe)
    shutil.copy(study.results / "seeds.csv", recipe)
    elsewhere = read_grid_study(recipe, out=tmp_path / "elsewhere")
    running.carry_out_grid(elsewhere, None)
    assert (elsewhere.results / "README.md").read_bytes() == page
    assert b"4 of 4 cells are in" in page
    assert b"estimates without a verdict" in page


def made_up_records(study: GridStudy, num_sets: int) -> Records:
    """Records of the first data sets, in which laplace is 2 points better."""
    generator = np.random.default_rng(0)
    [grid] = study.grids
    rows: list[DecoderRow] = []
    seeds: list[SeedRow] = []
    for cell in list(grid.cells())[:num_sets]:
        for decoder, difference in (("gaam:heads=1", None), ("laplace", 0.02)):
            if difference is not None:
                difference += float(generator.normal(0, 0.002))
            names = {
                "grid": grid.name,
                "dataset": cell.dataset,
                "encoder": cell.encoder,
                "decoder": decoder,
            }
            accuracy = 0.8 + (difference or 0.0)
            rows.append(
                DecoderRow(
                    **names,
                    settings=grid.settings_digest,
                    cache="0" * 12,
                    train_rows=100,
                    test_rows=100,
                    test_groups=None,
                    classes=2,
                    extract_seconds=1.0,
                    train_seconds=1.0,
                    attention=decoder,
                    head="linear",
                    parameters=9,
                    lr="0.001",
                    seeds=1,
                    failed=0,
                    undertrained=False,
                    accuracy=accuracy,
                    sd=None,
                    baseline="gaam:heads=1",
                    difference=difference,
                    std_error=None if difference is None else 0.003,
                    from_seeds=None,
                    from_rows=None,
                    from_tuning=None,
                    p=None,
                    p_equivalent=None,
                    verdict="" if difference is None else "better",
                )
            )
            seeds.append(SeedRow(**names, seed=0, accuracy=accuracy))
    return Records(tuple(rows), tuple(seeds))


@pytest.fixture
def many_sets(recipe: Path, tmp_path: Path) -> GridStudy:
    study = read_grid_study(recipe, out=tmp_path / "studies")
    datasets = {f"set{number}": "nowhere" for number in range(6)}
    grid = replace(study.grids[0], datasets=datasets, encoders={"bert": "nowhere"})
    return replace(study, grids=(replace(grid, baselines=("gaam:heads=1",)),))


@pytest.mark.parametrize(
    ("num_sets", "verdict"), [(4, "no claim"), (5, "better")], ids=["four", "five"]
)
def test_fewer_than_five_data_sets_have_no_verdict(
    num_sets: int, verdict: str, many_sets: GridStudy
) -> None:
    records = made_up_records(many_sets, num_sets)
    [answer] = answers_of(many_sets.grids[0], records)
    [laplace] = answer.compared
    assert laplace.across is not None
    assert laplace.across.verdict == verdict
    page = make_files(many_sets, records)[1]["README.md"].decode()
    assert f"{num_sets} of 6 cells are in" in page
    assert "set5 through bert" in page, "a missing cell is named"


def test_records_are_read_as_they_were_written(many_sets: GridStudy) -> None:
    records = made_up_records(many_sets, 3)
    write_records(many_sets.results, records)
    again = read_records(many_sets, many_sets.results)
    assert [row.cell for row in again.rows] == [row.cell for row in records.rows]
    for row, row_again in zip(records.rows, again.rows, strict=True):
        nine_digits = f"{row.difference:.9g}" if row.difference else ""
        assert row_again == replace(
            row,
            difference=float(nine_digits) if nine_digits else None,
            accuracy=float(f"{row.accuracy:.9g}"),
        )


def test_records_of_other_settings_do_not_count(many_sets: GridStudy) -> None:
    write_records(many_sets.results, made_up_records(many_sets, 3))
    grid = replace(many_sets.grids[0], extract={"limit": 7})
    changed = replace(many_sets, grids=(grid,))
    assert not read_records(changed, many_sets.results).rows


def test_rows_that_disagree_with_their_seeds_are_refused(many_sets: GridStudy) -> None:
    records = made_up_records(many_sets, 3)
    changed = replace(records.rows[0], accuracy=0.9)
    write_records(
        many_sets.results, Records((changed, *records.rows[1:]), records.seeds)
    )
    with pytest.raises(CacheError, match="disagree"):
        read_records(many_sets, many_sets.results)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lr = 1e-3", "lrr = 1e-3", "lrr"),
        ("lr = 1e-3", 'device = "cpu"', "device"),
        ('one = "nowhere"', '"o/e" = "nowhere"', "bad name"),
        ("[[grids]]", "[[gird]]", "gird"),
    ],
    ids=["unknown option", "a setting of the machine", "name", "table"],
)
def test_a_wrong_grid_is_refused(
    old: str, new: str, message: str, recipe: Path
) -> None:
    (recipe / "grid.toml").write_text(RECIPE.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        read_grid_study(recipe)


def test_a_missing_data_set_is_named(
    gaam: Callable[..., Outcome], recipe: Path, tmp_path: Path
) -> None:
    command = ("study", recipe, "--out", tmp_path / "o", "--data", tmp_path)
    outcome = gaam(*command)
    assert outcome.code == 2
    assert "get it from nowhere" in outcome.err


@pytest.mark.parametrize("file", BUNDLED, ids=lambda path: path.parent.name)
def test_a_bundled_page_is_that_of_its_records(file: Path, tmp_path: Path) -> None:
    study = read_grid_study(file.parent, out=tmp_path)
    records = read_records(study, file.parent)
    if not records.rows:
        pytest.skip("no cell is recorded yet")
    _, files = make_files(study, records)
    assert file.with_name("README.md").read_bytes() == files["README.md"]
