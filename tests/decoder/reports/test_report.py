"""The one call behind the command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import gaam_decoder
from gaam_cache.errors import ConfigError, NotFoundError
from gaam_decoder import TrainConfig
from tests.conftest import Outcome
from tests.decoder.reports.conftest import FORMATS


@pytest.fixture(scope="module")
def runs(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "runs"
    attn = ("gaam", "none")
    config = TrainConfig(
        attn=attn, cache=tiny_cache, runs=folder, seeds=(0, 1), epochs=2, probe=False
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


def test_runs_may_be_given_as_they_are(runs: Path) -> None:
    loaded = gaam_decoder.load_runs(runs)
    assert gaam_decoder.report(loaded).text("json") == gaam_decoder.report(str(runs)).text("json")
    assert repr(gaam_decoder.report(loaded)) == "<Report: 1 tables, 2 rows>"
    assert len(gaam_decoder.report(loaded[:1]).tables[0].rows) == 1


def test_what_cannot_be_reported_is_said(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nothing to report on"):
        gaam_decoder.report([])
    with pytest.raises(NotFoundError):
        gaam_decoder.report(tmp_path)
    with pytest.raises(ConfigError, match="did you mean"):
        gaam_decoder.report(runs).text("markdwn")
    with pytest.raises(ConfigError, match="mha"):
        gaam_decoder.report(runs, baseline="mha")


def test_figures_are_written(runs: Path, tmp_path: Path) -> None:
    saved = gaam_decoder.report(runs).save_figures(tmp_path / "figures")
    assert saved
    assert all(Path(path).exists() for path in saved)
