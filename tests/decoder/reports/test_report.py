"""The one call behind the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import gaam_decoder
from gaam_decoder import TrainConfig
from gaam_decoder.reports import columns
from tests.conftest import Outcome
from tests.decoder.reports.conftest import FORMATS


@pytest.fixture(scope="module")
def runs(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "runs"
    attn = ("gaam", "none")
    config = TrainConfig(
        lr=3e-4,
        attn=attn,
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
    runs: Path, gaam: Callable[..., Outcome], tmp_path: Path
) -> None:
    report = gaam_decoder.report(runs, baseline="gaam")
    for format in FORMATS:
        printed = gaam("report", runs, "--format", format, "--baseline", "gaam").out
        assert report.text(format) == printed
        report.save(tmp_path / "report", format)
        assert (tmp_path / "report").read_bytes().decode() == printed
    assert str(report) == report.text("terminal")
    assert report._repr_markdown_() == report.text("markdown")


def test_how_columns_are_made_is_said_once_and_stands_in_the_guide(
    gaam: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where no runs are
    shown = gaam("report", "--explain")
    assert shown.code == 0
    guide = Path(gaam_decoder.__file__).with_name("GUIDE.md").read_text("utf-8")
    assert shown.out in guide
    for column in columns.COLUMNS:
        assert column.note in " ".join(shown.out.split())


def test_a_new_column_is_one_object(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = columns.Column(
        header="number of folds",
        cell=lambda entry: str(entry.folds),
        note="the last one",
        screen=columns.Screen("folds", position=99),
    )
    monkeypatch.setattr(columns, "COLUMNS", (*columns.COLUMNS, new))
    report = gaam_decoder.report(runs)
    for format in set(FORMATS) - {"json", "csv"}:
        assert "folds" in report.text(format), format
    assert "number of folds: the last one" in columns.explain()


def test_a_bad_place_is_refused_before_anything_is_read(
    gaam: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for option, place in (("--out", tmp_path), ("--figures", tmp_path / "file")):
        refused = gaam("report", tmp_path / "nothing", option, place)
        assert refused.code == 2
        assert f"{place}'" in refused.err
        assert option in refused.err
