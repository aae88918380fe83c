"""Runs that the first release wrote stay readable, and are reported beside new ones."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from gaam_cache import registry
from gaam_cache.errors import CacheError
from gaam_decoder import load_runs
from gaam_decoder.reports._base import build_tables
from gaam_decoder.runs import RUN_VERSION

OLD = Path(__file__).parents[1] / "first_release_run"
"""``none`` and ``gaam``, two seeds, two epochs, 24 test rows; written by commit 4db993a."""


def test_every_part_of_an_old_run_is_read() -> None:
    gaam, none = load_runs(OLD)
    assert (gaam.attention, none.attention) == ("gaam", "none")
    assert gaam.seeds == (0, 1)
    tensors = load_file(OLD / gaam.path.name / "test.safetensors")
    np.testing.assert_array_equal(gaam.logits, tensors["logits"])
    right = tensors["logits"].argmax(-1) == tensors["labels"]
    np.testing.assert_allclose(gaam.accuracy, right.mean(1))
    assert gaam.attention_map is not None
    assert gaam.attention_map.shape == (2, 6, 32)
    assert none.attention_map is None
    assert gaam.learned == {}
    assert [(entry["seed"], entry["epoch"]) for entry in gaam.log] == [
        (0, 1),
        (0, 2),
        (1, 1),
        (1, 2),
    ]


@pytest.mark.parametrize("name", registry.names("gaam_decoder.reports"))
def test_an_old_run_is_reported_in_every_format(name: str) -> None:
    tables = build_tables(load_runs(OLD))
    assert len(tables) == 1
    assert tables[0].comparisons[0] is not None
    stream = io.StringIO()
    registry.load("gaam_decoder.reports", name, kind="report format")().write(tables, stream)
    assert "gaam" in stream.getvalue()
    assert "tiny" in stream.getvalue()


def test_a_run_of_a_later_version_is_refused_with_both_versions(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path / "runs")
    file = next((tmp_path / "runs").glob("gaam*/run.json"))
    content = json.loads(file.read_text())
    assert content["run_version"] <= RUN_VERSION
    content["run_version"] = RUN_VERSION + 1
    file.write_text(json.dumps(content))
    with pytest.raises(CacheError) as error:
        load_runs(tmp_path / "runs")
    assert f"run version {RUN_VERSION + 1}, this gaam reads up to {RUN_VERSION}" in str(error.value)
