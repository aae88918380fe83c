"""The one call behind the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import gaam_decoder
from gaam_cache.common.errors import ConfigError, NotFoundError
from gaam_decoder.reports import columns
from gaam_decoder.reports.report import FORMAT_BY_ENDING
from tests.conftest import Outcome
from tests.decoder.configs import loose_config
from tests.decoder.reports.conftest import FORMATS

Gaam = Callable[..., Outcome]


@pytest.fixture(scope="module")
def runs(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "runs"
    config = loose_config(
        lr=3e-4,
        attn=("gaam", "none"),
        cache=tiny_cache,
        runs=folder,
        seeds=(0, 1),
        epochs=2,
        probe=False,
    )
    gaam_decoder.train(config)
    return folder


@pytest.mark.usefixtures("undrawn")
def test_the_call_says_what_the_command_prints(
    runs: Path, gaam: Gaam, tmp_path: Path
) -> None:
    report = gaam_decoder.report(runs, baseline="gaam")
    file = tmp_path / "report"
    for report_format in FORMATS:
        options = ("--format", report_format, "--baseline", "gaam")
        printed = gaam("report", runs, *options).out
        assert report.text(report_format) == printed, report_format
        report.save(file, report_format)
        assert file.read_bytes().decode() == printed, report_format
    for ending, report_format in FORMAT_BY_ENDING.items():
        report.save(tmp_path / f"report{ending}")
        by_command = tmp_path / f"by-command{ending}"
        assert gaam("report", runs, "-o", by_command, "--baseline", "gaam").code == 0
        expected = report.text(report_format)
        assert (tmp_path / f"report{ending}").read_text("utf-8") == expected, ending
        assert by_command.read_text("utf-8") == expected, ending
    assert str(report) == report.text("terminal")
    assert report._repr_markdown_() == report.text("markdown")


def test_how_columns_are_made_is_said_once(
    gaam: Gaam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a folder without runs
    monkeypatch.chdir(tmp_path)
    outcome = gaam("report", "--explain")
    assert outcome.code == 0
    words = " ".join(outcome.out.split())
    missing = [column.note for column in columns.COLUMNS if column.note not in words]
    assert missing == []


def test_a_new_column_is_one_object(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = columns.Column(
        header="number of folds",
        cell=lambda entry: str(entry.folds),
        note="the last one",
        screen=columns.ScreenColumn("folds", position=99),
    )
    monkeypatch.setattr(columns, "COLUMNS", (*columns.COLUMNS, column))
    report = gaam_decoder.report(runs)
    for report_format in set(FORMATS) - {"json", "csv"}:
        assert "folds" in report.text(report_format), report_format
    assert "number of folds: the last one" in columns.explain_columns()


@pytest.mark.parametrize(
    ("option", "name"),
    [
        pytest.param("--out", "folder", id="a folder for a file"),
        pytest.param("--figures", "file", id="a file for a folder"),
    ],
)
def test_a_bad_place_is_refused_before_anything_is_read(
    option: str, name: str, gaam: Gaam, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    place = tmp_path / name
    outcome = gaam("report", tmp_path / "nothing", option, place)
    assert outcome.code == 2
    assert f"{place}'" in outcome.err
    assert option in outcome.err


def test_a_score_that_says_nothing_of_so_few_classes_is_refused(runs: Path) -> None:
    with pytest.raises(ConfigError, match="11 classes or more"):
        gaam_decoder.report(runs, score="top-5")


def test_a_cache_in_place_of_runs_is_named(tiny_cache: Path) -> None:
    with pytest.raises(NotFoundError, match="a cache: 'gaam train --cache'"):
        gaam_decoder.report(tiny_cache)
