"""Probabilities that are scaled by a temperature that validation gave, and what is said of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import gaam_decoder
from gaam_cache.errors import CacheError, ConfigError
from gaam_cache.store.digest import sealed_text, unsealed
from gaam_decoder import RunResult, TrainConfig, load_runs, report
from gaam_decoder.reports.writing.section import sections
from gaam_decoder.reports.writing.unit import all_scores
from gaam_decoder.runs.result import VALIDATION_FILE
from tests.decoder.reports.conftest import FORMATS

SEEDS = tuple(range(6))


@pytest.fixture(scope="module")
def runs(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two mechanisms on the test split, and in two folds."""
    folder = tmp_path_factory.mktemp("temperature")
    for folds in (1, 2):
        gaam_decoder.train(
            TrainConfig(
                attn=("none", "gaam"),
                cache=tiny_cache,
                runs=folder,
                seeds=SEEDS,
                epochs=4,
                lr=0.05,
                folds=folds if folds > 1 else None,
                probe=False,
            )
        )
    return folder


def as_before(run: RunResult) -> None:
    """A run as an earlier version wrote it."""
    (run.path / VALIDATION_FILE).unlink()
    about = unsealed(json.loads((run.path / "run.json").read_text()))
    del about["files"][VALIDATION_FILE]
    (run.path / "run.json").write_text(sealed_text(about))


def test_scores_of_probabilities_are_of_scaled_logits_and_no_other_changes(runs: Path) -> None:
    """Which temperatures, and what the scores are, the contract holds against SciPy."""
    plain = report(runs)
    of_probabilities = {name for name, one in all_scores().items() if one.of_sizes}
    assert of_probabilities == {"log-loss", "brier", "ece"}
    changed = 0
    for score in of_probabilities:
        divided = report(runs, score=score, temperature=True)
        for before, after in zip(plain.tables, divided.tables, strict=True):
            for one, other in zip(before.rows, after.rows, strict=True):
                for name in one.scores.every.keys() - of_probabilities:
                    np.testing.assert_array_equal(one.scores.every[name], other.scores.every[name])
                np.testing.assert_array_equal(one.scores.confusion, other.scores.confusion)
                chosen = other.scores.chosen.scored.values
                np.testing.assert_allclose(chosen, other.scores.every[score], atol=1e-12)
                changed += (one.scores.every[score] != other.scores.every[score]).sum()
            assert any(after.comparisons)
    assert changed > len(SEEDS)


@pytest.mark.usefixtures("undrawn")
def test_every_format_says_it(runs: Path) -> None:
    plain, divided = report(runs), report(runs, temperature=True)
    for format in FORMATS:
        assert "temperature" in divided.text(format), format
    table = json.loads(divided.text("json"))
    assert table["temperature"] is True
    for row in table["rows"]:
        assert len(row["temperature"]["per_seed"]) == len(SEEDS)
    assert "temperature" not in json.loads(plain.text("json"))
    (found,) = [one for one in sections(divided.tables[0]) if one.name == "calibration"]
    assert found.sheets[0].header[-1] == "temperature"


def test_rows_that_cannot_be_scaled_are_named_and_not_compared_with_others(
    runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    there = [run for run in load_runs(tmp_path / "runs") if not run.recipe.get("fold")]
    as_before(next(run for run in there if run.attention.startswith("gaam")))
    mixed = load_runs([run.path for run in there])
    for score, compared in (("accuracy", 1), ("auroc", 1), ("log-loss", 0), ("brier", 0)):
        found = report(mixed, score=score, temperature=True)
        assert sum(c is not None for t in found.tables for c in t.comparisons) == compared, score
        assert "No temperature was fitted for gaam" in found.text("terminal")
        by = {
            row["attention"]: row["temperature"] for row in json.loads(found.text("json"))["rows"]
        }
        assert by[next(name for name in by if name.startswith("gaam"))] is None
        assert by["none"]["mean"] > 0
        both = report(mixed, score=score)
        assert sum(c is not None for t in both.tables for c in t.comparisons) == 1
    as_before(next(run for run in there if run.attention == "none"))
    with pytest.raises(ConfigError, match="no run has what a temperature is fitted on"):
        report([run.path for run in there], temperature=True)
    assert report([run.path for run in there])


def test_damage_is_said(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "runs")
    for path in (tmp_path / "runs").glob(f"gaam*/{VALIDATION_FILE}"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    report(tmp_path / "runs")
    with pytest.raises(CacheError, match="damaged"):
        report(tmp_path / "runs", temperature=True)
