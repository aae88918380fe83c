"""A study of several data sets and encoders: records, resumption and page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas
import pytest
import scipy.stats

import gaam_decoder
from gaam_cache.common.errors import CacheError, ConfigError
from gaam_decoder.grids import running
from gaam_decoder.grids.answers import answer_against_probe, answers_of
from gaam_decoder.grids.page import make_files
from gaam_decoder.grids.recipe import Cell, GridStudy, Sources, read_grid_study
from gaam_decoder.grids.records import (
    CellCost,
    DecoderRow,
    Records,
    SeedRow,
    check_other_rows,
    read_records,
    records_of_cell,
    write_records,
)
from gaam_decoder.reports.over_sets_text import sentence
from gaam_decoder.stats.across import (
    SetDifference,
    combine_sets,
    difference_of_claim,
)
from gaam_decoder.stats.crossed import Crossed
from gaam_decoder.stats.mean_test import MeanTest
from tests.conftest import Outcome
from tests.decoder.reports.conftest import answers, build_run
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
THEMES = ("light", "dark")


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
    assert (whole.results / "seeds.csv").read_bytes() == (
        study.results / "seeds.csv"
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
    assert b"there is no mean difference: every table has fewer than 6 seeds" in page


def made_up_records(
    study: GridStudy, num_cells: int, few_seeds: Collection[str] = ()
) -> Records:
    """Records of the first cells, in which laplace is 2 points better.

    Decoders have six seeds; in the data sets of ``few_seeds`` they have five.
    """
    generator = np.random.default_rng(0)
    [grid] = study.grids
    rows: list[DecoderRow] = []
    seeds: list[SeedRow] = []
    for cell in list(grid.cells())[:num_cells]:
        num_seeds = 5 if cell.dataset in few_seeds else 6
        for decoder, difference in (("gaam:heads=1", None), ("laplace", 0.02)):
            if difference is not None:
                difference += float(generator.normal(0, 0.002))
            score = 0.8 + (difference or 0.0)
            row = made_up_row(cell, decoder, difference, score)
            rows.append(replace(row, seeds=num_seeds))
            seeds += [
                SeedRow(
                    grid=grid.name,
                    dataset=cell.dataset,
                    encoder=cell.encoder,
                    decoder=decoder,
                    seed=seed,
                    score=score,
                )
                for seed in range(num_seeds)
            ]
    return Records(tuple(rows), tuple(seeds))


def made_up_row(
    cell: Cell, decoder: str, difference: float | None, score: float
) -> DecoderRow:
    """The record of a decoder; one without a difference is the baseline."""
    return DecoderRow(
        grid=cell.grid.name,
        dataset=cell.dataset,
        encoder=cell.encoder,
        settings=cell.grid.settings_digest,
        cache=sha256(cell.dataset.encode()).hexdigest()[:12],
        train_rows=100,
        test_rows=5000,
        test_groups=None,
        classes=2,
        extract_seconds=1.0,
        train_seconds=1.0,
        decoder=decoder,
        attention=decoder,
        head="linear",
        parameters=9,
        lr="0.001",
        seeds=6,
        failed=0,
        undertrained=False,
        score=score,
        sd=None,
        baseline="gaam:heads=1",
        difference=difference,
        std_error=None if difference is None else 0.003,
        from_seeds=None,
        from_rows=None if difference is None else 0.002**2,
        from_tuning=None,
        p=None,
        p_equivalent=None,
        verdict="" if difference is None else "better",
    )


@pytest.fixture
def many_sets(recipe: Path, tmp_path: Path) -> GridStudy:
    study = read_grid_study(recipe, out=tmp_path / "studies")
    datasets = {f"set{number}": "nowhere" for number in range(6)}
    grid = replace(study.grids[0], datasets=datasets, encoders={"bert": "nowhere"})
    return replace(study, grids=(replace(grid, baselines=("gaam:heads=1",)),))


def page_of(study: GridStudy, records: Records) -> str:
    return make_files(study, records)[1]["README.md"].decode()


@pytest.mark.parametrize(
    ("num_sets", "verdict", "words"),
    [
        (
            1,
            "no claim",
            " points. A verdict over data sets takes 5 of them",
        ),
        (
            4,
            "no claim",
            "there is no verdict, which takes 5 data sets with both decoders: mean ",
        ),
        (5, "better", "Over 5 data sets through bert laplace is better than"),
    ],
    ids=["one", "four", "five"],
)
def test_fewer_than_five_data_sets_have_no_verdict(
    num_sets: int, verdict: str, words: str, many_sets: GridStudy
) -> None:
    records = made_up_records(many_sets, num_sets)
    [answer] = answers_of(many_sets.grids[0], records)
    [laplace] = answer.decoders
    assert laplace.combined.verdict == verdict
    page = page_of(many_sets, records)
    assert words in page
    assert re.search(f"{num_sets} of 6 cells (is|are) in", page)
    assert "set5 through bert" in page, "a missing cell is named"


def test_a_study_answers_as_a_report_does_from_the_same_numbers(
    many_sets: GridStudy,
) -> None:
    """The mean is that of ``combine_sets`` from the differences of the records."""
    records = made_up_records(many_sets, 6)
    [answer] = answers_of(many_sets.grids[0], records)
    sets = [
        SetDifference(name=row.dataset, difference=row.difference, variance=0.003**2)
        for row in records.rows
        if row.difference is not None
    ]
    expected = combine_sets(sets, margin=many_sets.grids[0].margin)
    [laplace] = answer.decoders
    assert laplace.combined.difference == pytest.approx(expected.difference)
    assert laplace.combined.interval == pytest.approx(expected.interval)
    assert laplace.mean_rank == 1
    words = sentence(answer)
    assert words.startswith(
        "Over 6 data sets through bert laplace is better than 'gaam:heads=1'; the "
        "uncorrected 95% interval is +1."
    )


def test_cells_with_few_seeds_are_in_no_mean_and_are_named(
    many_sets: GridStudy,
) -> None:
    records = made_up_records(many_sets, 6, few_seeds=["set1", "set4"])
    [answer] = answers_of(many_sets.grids[0], records)
    [laplace] = answer.decoders
    assert [entry.name for entry in laplace.combined.sets] == [
        *("set0", "set2", "set3", "set5")
    ]
    assert laplace.combined.verdict == "no claim"
    named = "fewer than 6 seeds, so left out: set1 through bert, set4 through bert"
    assert named in page_of(many_sets, records)


def test_a_seed_that_failed_makes_no_pair(many_sets: GridStudy) -> None:
    records = made_up_records(many_sets, 6)
    first, *others = records.seeds
    assert first.decoder == "gaam:heads=1"
    changed = Records(records.rows, (replace(first, score=None), *others))
    [answer] = answers_of(many_sets.grids[0], changed)
    assert "fewer than 6 seeds, so left out: set0 through bert" in answer.left_out


def test_a_probe_that_a_cell_lacks_has_no_mean_and_is_shown_where_it_is(
    many_sets: GridStudy,
) -> None:
    records = made_up_records(many_sets, 6)
    probes = [
        replace(
            made_up_row(cell, "none + lbfgs", None, 0.75),
            attention="none",
            head="lbfgs",
        )
        for cell in list(many_sets.grids[0].cells())[:5]
    ]
    with_probes = Records((*records.rows, *probes), records.seeds)
    [answer] = answers_of(many_sets.grids[0], with_probes)
    assert answer.other_means == {"none + lbfgs": None}
    gap = "none + lbfgs has no mean score: it has none on set5 through bert"
    assert gap in answer.left_out
    assert answer.baseline_mean == pytest.approx(0.8)
    assert "| set0 | bert | 100 + 5,000 | 80.0 | 75.0 |" in page_of(
        many_sets, with_probes
    )


def test_every_data_set_of_an_answer_is_read_by_all_its_encoders(
    many_sets: GridStudy,
) -> None:
    """Six data sets through one encoder, five of them through another: 5 x 2 cells.

    Four of them are too few for a verdict, and six through one encoder are not.
    """
    grid = replace(many_sets.grids[0], encoders={"bert": "", "gpt2": ""})
    study = replace(many_sets, grids=(grid,))
    [answer] = answers_of(grid, made_up_records(study, 11))
    assert answer.encoders == ("bert", "gpt2")
    assert answer.data_sets == ("set0", "set1", "set2", "set3", "set4")
    assert "set5 is left out: it has no results of gpt2 that count" in answer.left_out

    [answer] = answers_of(grid, made_up_records(study, 10))
    assert answer.encoders == ("bert",)
    assert len(answer.data_sets) == 6
    assert "of encoder bert alone; others: gpt2" in answer.left_out


def test_a_recorded_interval_is_that_of_the_report(many_sets: GridStudy) -> None:
    """It is rebuilt from recorded parts, of few test rows and of rare unseen rows."""
    anova = Crossed(
        mean=0.02,
        ms_seeds=0.09,
        ms_rows=0.3,
        ms_rest=0.04,
        num_seeds=6,
        num_units=12,
        tuning_variance=0.0004,
    )
    reported = MeanTest(anova=anova, variance_from_unseen_rows=0.0009)
    grid = replace(many_sets.grids[0], datasets={"set0": "nowhere"})
    records = made_up_records(replace(many_sets, grids=(grid,)), 1)
    baseline, laplace = records.rows
    recorded = replace(
        laplace,
        test_rows=anova.num_units,
        difference=anova.mean,
        std_error=reported.variance**0.5,
        from_seeds=anova.variance_from_seeds,
        from_rows=anova.variance_from_rows,
        from_tuning=anova.tuning_variance,
    )
    [answer] = answers_of(grid, Records((baseline, recorded), records.seeds))
    [difference] = answer.decoders[0].differences.values()
    assert difference.interval == pytest.approx(reported.interval())


def test_a_study_counts_a_cell_as_a_report_over_data_sets_does(
    many_sets: GridStudy,
) -> None:
    """Rare rows that the test rows may lack count once: few rows differ here."""
    right_SN = answers(6, 0.8, 1)
    changed_SN = right_SN.copy()
    changed_SN[:, 0] = ~changed_SN[:, 0]
    runs = [
        build_run("gaam:heads=1", right_SN),
        build_run("laplace", changed_SN),
    ]
    [table] = gaam_decoder.report(runs, baseline="gaam:heads=1").tables
    [(_, comparison)] = table.compared_entries
    reported = difference_of_claim("set0", comparison.claim)
    assert reported is not None
    test = comparison.claim.test_over_rows
    assert test is not None
    assert reported.variance > 1.5 * test.anova.variance

    grid = many_sets.grids[0]
    cell = next(iter(grid.cells()))
    tables = {"gaam:heads=1": table}
    records = records_of_cell(cell, tables, CellCost(None, 1.0))
    [answer] = answers_of(grid, records)
    [recorded] = answer.decoders[0].combined.sets
    assert recorded.variance == pytest.approx(reported.variance)
    assert recorded.shared_variance == pytest.approx(reported.shared_variance)


def test_a_page_has_all_decoders_in_a_picture_and_the_first_in_forest_plots(
    many_sets: GridStudy,
) -> None:
    _, files = make_files(many_sets, made_up_records(many_sets, 6))
    pictures = ["texts-overview-1", "texts-forest-1"]
    assert sorted(files) == sorted(
        ["README.md", *(f"{name}-{theme}.svg" for name in pictures for theme in THEMES)]
    )
    page = files["README.md"].decode()
    for name in pictures:
        assert f'src="{name}-light.svg"' in page


@pytest.mark.parametrize(
    ("task", "scores", "difference"),
    [
        ("regression", "R2 of gaam:heads=1 in", r"0\.8000 \| \+0\.0... \(0\.003\)"),
        ("multi-label", "Micro-F1 % of", r"80\.0 \| \+[12]\... \(0\.30\)"),
    ],
)
def test_a_page_has_the_unit_of_its_task(
    task: str, scores: str, difference: str, many_sets: GridStudy
) -> None:
    grid = replace(many_sets.grids[0], extract={"task": task})
    study = replace(many_sets, grids=(grid,))
    page = page_of(study, made_up_records(study, 6))
    assert scores in page
    assert re.search(difference, page)
    assert ("points" in page) == (task == "multi-label")
    with pytest.raises(ConfigError, match=r"\[grids.extract\]"):
        running._check_task(next(grid.cells()), "classification")


@pytest.mark.parametrize("column", ["score", "accuracy"], ids=["now", "before 0.3.0"])
def test_records_are_read_as_they_were_written(
    column: str, many_sets: GridStudy
) -> None:
    records = made_up_records(many_sets, 3)
    write_records(many_sets.results, records)
    for file in many_sets.results.iterdir():
        file.write_text(file.read_text().replace(",score", f",{column}", 1))
    again = read_records(many_sets, many_sets.results)
    assert [row.cell for row in again.rows] == [row.cell for row in records.rows]
    for row, row_again in zip(records.rows, again.rows, strict=True):
        nine_digits = f"{row.difference:.9g}" if row.difference else ""
        assert row_again == replace(
            row,
            difference=float(nine_digits) if nine_digits else None,
            score=float(f"{row.score:.9g}"),
        )


def test_records_of_other_settings_do_not_count(many_sets: GridStudy) -> None:
    write_records(many_sets.results, made_up_records(many_sets, 3))
    grid = replace(many_sets.grids[0], extract={"limit": 7})
    changed = replace(many_sets, grids=(grid,))
    assert not read_records(changed, many_sets.results).rows
    assert not read_records(with_margin(many_sets, 0.02), many_sets.results).rows

    # they stay in the file: a person may change the recipe back
    write_records(many_sets.results, Records())
    assert read_records(many_sets, many_sets.results).cells() == cells_of(many_sets, 3)
    write_records(many_sets.results, made_up_records(changed, 1))
    assert read_records(many_sets, many_sets.results).cells() == (
        cells_of(many_sets, 3) - cells_of(many_sets, 1)
    )


def with_margin(study: GridStudy, margin: float) -> GridStudy:
    return replace(study, grids=(replace(study.grids[0], margin=margin),))


def cells_of(study: GridStudy, count: int) -> set[tuple[str, str, str]]:
    """The first cells of a study."""
    return {cell.key for cell in list(study.cells())[:count]}


def test_a_rate_that_all_decoders_have_was_not_chosen(many_sets: GridStudy) -> None:
    records = made_up_records(many_sets, 6)
    assert "learning rate, 0.001" not in page_of(many_sets, records)
    grid = many_sets.grids[0]
    options = {**grid.train[0], "attn": ["laplace", "gaam:heads=1"]}
    for rates, edge in (("1e-3,1e-2", "smallest"), ("1e-4,1e-3", "largest")):
        tuned = replace(grid, train=({**options, "lr": rates},))
        page = page_of(replace(many_sets, grids=(tuned,)), records)
        assert f"laplace chose its {edge} learning rate, 0.001" in page


def test_the_same_rows_under_two_names_are_refused(many_sets: GridStudy) -> None:
    records = made_up_records(many_sets, 2)
    first, second, *_others = many_sets.grids[0].cells()
    [cache] = {row.cache for row in records.rows if row.cell == first.key}
    check_other_rows(records, first, cache)
    with pytest.raises(CacheError, match="set1 has the rows and labels of set0"):
        check_other_rows(records, second, cache + "0" * 52)


def with_other_score(rows: tuple[DecoderRow, ...]) -> list[DecoderRow]:
    return [replace(rows[0], score=0.9), *rows[1:]]


def with_other_sign(rows: tuple[DecoderRow, ...]) -> list[DecoderRow]:
    """The first difference has the other sign."""
    at = next(number for number, row in enumerate(rows) if row.difference)
    difference = rows[at].difference
    assert difference is not None
    return [*rows[:at], replace(rows[at], difference=-difference), *rows[at + 1 :]]


def without_baseline(rows: tuple[DecoderRow, ...]) -> list[DecoderRow]:
    """The first cell lacks its baseline."""
    return [
        row for row in rows if row.cell != rows[0].cell or row.attention != row.baseline
    ]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (with_other_score, "disagree"),
        (with_other_sign, "disagree"),
        (without_baseline, "no line of a baseline"),
    ],
)
def test_records_that_disagree_are_refused(
    damage: Callable[[tuple[DecoderRow, ...]], list[DecoderRow]],
    message: str,
    many_sets: GridStudy,
) -> None:
    records = made_up_records(many_sets, 3)
    damaged = replace(records, rows=tuple(damage(records.rows)))
    write_records(many_sets.results, damaged)
    with pytest.raises(CacheError, match=message):
        read_records(many_sets, many_sets.results)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("lr = 1e-3", "lrr = 1e-3", "lrr"),
        ("lr = 1e-3", 'device = "cpu"', "device"),
        ('one = "nowhere"', '"o/e" = "nowhere"', "bad name"),
        ("[[grids]]", "[[gird]]", "gird"),
        ("seeds = 2", 'seeds = 2\nlayers = ["1", "all"]', "2 of gaam:heads=1"),
        ("seeds = 2", 'seeds = 2\nhead = ["knn:k=3", "knn:k=5"]', "2 of gaam"),
        (
            "probe = false",
            'probe = false\n[[grids.train]]\nattn = ["none"]\nlayers = ["1"]',
            "2 of none",
        ),
    ],
    ids=[
        "unknown option",
        "a setting of the machine",
        "name",
        "table",
        "decoders of other layers",
        "decoders of other options of a head",
        "decoders of another training",
    ],
)
def test_a_wrong_grid_is_refused(
    old: str, new: str, message: str, recipe: Path
) -> None:
    (recipe / "grid.toml").write_text(RECIPE.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message):
        read_grid_study(recipe)


def test_a_decoder_in_two_trainings_is_one(recipe: Path) -> None:
    """The baseline may be in every training: its runs are the same."""
    [training] = re.findall(r"(?s)\[\[grids.train\]\].*", RECIPE)
    more_seeds = training.replace("seeds = 2", "seeds = 3")
    (recipe / "grid.toml").write_text(RECIPE + training + more_seeds)
    assert len(read_grid_study(recipe).grids[0].train) == 3


def test_a_missing_data_set_is_named(
    gaam: Callable[..., Outcome], recipe: Path, tmp_path: Path
) -> None:
    command = ("study", recipe, "--out", tmp_path / "o", "--data", tmp_path)
    outcome = gaam(*command)
    assert outcome.code == 2
    assert "get it from nowhere" in outcome.err


def test_differences_to_the_probe_are_those_of_a_t_test_over_data_sets() -> None:
    [file] = [path for path in BUNDLED if path.parent.name == "distributions"]
    study = read_grid_study(file.parent)
    records = read_records(study, file.parent)
    grids = {grid.name: grid for grid in study.grids}
    answer = answer_against_probe(grids["texts"], records)
    assert answer is not None
    frame = pandas.DataFrame([asdict(row) for row in records.rows])
    frame = frame[(frame["grid"] == "texts") & (frame["baseline"] == "none")]
    scores = frame.pivot_table("score", ["dataset", "encoder"], "decoder").dropna()
    for decoder in answer.decoders:
        difference_N = scores[decoder.name] - scores["none + lbfgs"]
        means = difference_N.groupby("dataset").mean()
        test = scipy.stats.ttest_1samp(means, 0)
        assert decoder.combined.difference == pytest.approx(means.mean())
        assert decoder.combined.p == pytest.approx(test.pvalue, rel=1e-3)
        expected = pytest.approx(tuple(test.confidence_interval(0.95)), abs=1e-6)
        assert decoder.combined.interval == expected
    # an observed difference of zero is no evidence that two are equivalent
    assert {decoder.combined.verdict for decoder in answer.decoders} == {
        "worse",
        "undecided",
    }
    failed = [replace(row, failed=1) for row in records.rows]
    assert answer_against_probe(grids["texts"], Records(tuple(failed))) is None
    # decoders of other layers are not compared with the probe
    trainings = ({"attn": ["none"]}, {"attn": ["mha"], "layers": "1", "probe": False})
    other = replace(grids["texts"], train=trainings)
    assert answer_against_probe(other, records) is None
    # a single data set has no such mean
    assert answer_against_probe(grids["speech"], records) is None


@pytest.mark.parametrize("file", BUNDLED, ids=lambda path: path.parent.name)
def test_a_bundled_page_is_that_of_its_records(file: Path, tmp_path: Path) -> None:
    study = read_grid_study(file.parent, out=tmp_path)
    records = read_records(study, file.parent)
    if not records.rows:
        pytest.skip("no cell is recorded yet")
    _, files = make_files(study, records)
    assert file.with_name("README.md").read_bytes() == files["README.md"]
