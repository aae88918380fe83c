"""A run on disk: its bytes are those of the library, and a seed counts once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

import gaam_decoder
from gaam_cache.errors import CacheError
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.analysis.ablate import _group
from gaam_decoder.analysis.importance import importance_of
from gaam_decoder.analysis.learned import learned_ranges
from gaam_decoder.reports.pictures.pictures import _log
from gaam_decoder.reports.table import build_tables
from gaam_decoder.runs.loading import records
from gaam_decoder.runs.result import read_run
from gaam_decoder.runs.tuning import first_runs
from tests.conftest import GOLDEN
from tests.decoder.reports.conftest import build_run


def test_files_of_0_1_are_read_and_are_those_that_are_written_now(
    tiny_cache: Path, tmp_path: Path
) -> None:
    config = TrainConfig(cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1, 2), epochs=2)
    made = gaam_decoder.train(config)[0].path
    for run in (made, *(GOLDEN / "v0.1.0" / "runs").iterdir()):
        assert read_run(run).accuracy.size
        for path in run.glob("*.safetensors"):
            with safe_open(path, "np") as file:
                assert save(file.get_tensors(), file.metadata()) == path.read_bytes()


def test_what_another_version_wrote_is_refused_by_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_decoder.runs.result.RUN_VERSION", 2)
    with pytest.raises(CacheError, match="run version 1, this gaam reads 2"):
        read_run(next((GOLDEN / "v0.1.0" / "runs").iterdir()))


def seeds_twice() -> list[RunResult]:
    """Run a: seeds 0 (failed), 1, 2. Run b: seeds 0 to 3. What each says tells them apart."""
    made = []
    for name, seeds, failed, value in (
        ("a", (0, 1, 2), {0: "lost"}, 1),
        ("b", (0, 1, 2, 3), {}, 9),
    ):
        right = np.zeros((len(seeds), 40), bool)
        right[:, : 4 * value] = True
        maps = np.zeros((len(seeds), 6, 8), np.float32)
        maps[:, value % 6] = 1
        run = build_run(
            "gaam",
            right,
            seeds=seeds,
            failed=failed,
            path=name,
            attention_map=maps,
            learned={"xi": np.full((len(seeds), 1, 2), value, np.float32)},
            log=[{"seed": seed, "epoch": 1, "loss": float(value)} for seed in seeds],
        )
        run.epochs.update(dict.fromkeys(seeds, value))
        run.seconds.update(dict.fromkeys(seeds, float(value)))
        made.append(run)
    return made


@pytest.mark.parametrize("order", [1, -1])
def test_the_first_run_that_holds_a_seed_counts_everywhere(order: int) -> None:
    first, second = seeds_twice()
    runs = [first, second][::order]
    expected = {0: first, 1: first, 2: first, 3: second}
    counted = first_runs(runs)
    assert list(counted) == [0, 1, 2, 3]
    assert all(counted[seed] is run for seed, run in expected.items())
    (table,) = build_tables(runs)
    (row,) = table.rows
    assert row.scores.seeds == (1, 2, 3)
    np.testing.assert_allclose(row.scores.accuracy, [0.1, 0.1, 0.9])
    assert row.failed == {0: "lost"}
    assert row.seconds == {0: 1.0, 1: 1.0, 2: 1.0, 3: 9.0}
    counting = [one for one in records(runs) if one["counts"]]
    assert {one["seed"]: one["seconds"] for one in counting} == row.seconds
    found = importance_of(runs)
    assert found is not None
    assert found.seeds == (1, 2, 3)
    np.testing.assert_allclose(np.array(found.contribution)[[1, 3]], [200 / 3, 100 / 3])
    xi = learned_ranges(runs)["xi"]
    assert (xi.min, xi.median, xi.max) == (1.0, 1.0, 9.0)
    curve = _log(row, "loss", 1)
    assert curve is not None
    np.testing.assert_array_equal(curve[:, 0], [1, 1, 1, 9])
    group = _group("all", (1,), runs, (0, 1, 2, 3))
    assert group.accuracy == pytest.approx({1: 0.1, 2: 0.1, 3: 0.9})
    assert group.failed == {0: "lost"}
