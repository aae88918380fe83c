"""A run on disk: its bytes are those of the library, and a seed counts once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

import gaam_decoder
from gaam_cache.errors import CacheError
from gaam_decoder import RunResult, Runs, TrainConfig
from gaam_decoder.analysis.importance import importance_of
from gaam_decoder.analysis.learned import learned_ranges
from gaam_decoder.reports.table import build_tables
from gaam_decoder.runs.result import read_run
from gaam_decoder.runs.tuning import first_runs
from tests.conftest import GOLDEN
from tests.decoder.reports.conftest import build_run


def test_files_of_0_1_are_read_and_are_those_that_are_written_now(
    tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig(
        lr=3e-4, cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1, 2), epochs=2
    )
    made = gaam_decoder.train(config)[0].path
    for run in (made, *(GOLDEN / "v0.1.0" / "runs").iterdir()):
        assert read_run(run).accuracy.size
        for path in run.glob("*.safetensors"):
            with safe_open(path, "np") as file:
                assert save(file.get_tensors(), file.metadata()) == path.read_bytes()
    monkeypatch.setattr("gaam_decoder.runs.result.RUN_VERSION", 2)
    with pytest.raises(CacheError, match="run version 1, this gaam reads 2"):
        read_run(made)


def holding(name: str, seeds: tuple[int, ...], failed: dict[int, str], value: int) -> RunResult:
    """A run of which everything says a value."""
    right = np.zeros((len(seeds), 40), bool)
    right[:, : 4 * value] = True
    maps = np.zeros((len(seeds), 6, 8), np.float32)
    maps[:, value % 6] = 1
    learned = {"xi": np.full((len(seeds), 1, 2), value, np.float32)}
    about = {"seeds": seeds, "failed": failed, "attention_map": maps, "learned": learned}
    run = build_run("gaam", right, path=name, **about)  # type: ignore[arg-type]
    run.seconds.update(dict.fromkeys(seeds, float(value)))
    return run


@pytest.mark.parametrize("order", [1, -1])
def test_the_first_run_that_holds_a_seed_counts_everywhere(order: int) -> None:
    first = holding("a", (0, 1, 2), {0: "lost"}, 1)
    second = holding("b", (0, 1, 2, 3), {}, 9)
    runs = [first, second][::order]
    assert first_runs(runs) == {0: first, 1: first, 2: first, 3: second}
    (table,) = build_tables(runs)
    (row,) = table.rows
    assert row.scores.seeds == (1, 2, 3)
    np.testing.assert_allclose(row.scores.accuracy.scored.values, [0.1, 0.1, 0.9])
    assert row.failed == {0: "lost"}
    assert row.seconds == {0: 1.0, 1: 1.0, 2: 1.0, 3: 9.0}
    table = Runs(runs).to_frame()
    counting = table[table["counts"]]
    assert dict(zip(counting["seed"], counting["seconds"], strict=True)) == row.seconds
    found = importance_of(runs)
    assert found is not None
    assert found.seeds == (1, 2, 3)
    np.testing.assert_allclose(np.array(found.contribution)[[1, 3]], [200 / 3, 100 / 3])
    xi = learned_ranges(runs)["xi"]
    assert (xi["min"], xi["median"], xi["max"]) == (1.0, 1.0, 9.0)
