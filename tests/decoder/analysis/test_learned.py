from __future__ import annotations

import io
import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import gaam_decoder
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.analysis.learned import learned_ranges, parameter_range
from gaam_decoder.reports.formats.json import Json
from gaam_decoder.reports.table import build_tables


def fake_run(
    learned: dict[str, np.ndarray],
    *,
    attention: str = "generalized-gaussian",
    seeds: tuple[int, ...] = (0, 1, 2),
    failed: dict[int, str] | None = None,
) -> RunResult:
    """A run whose learned parameters are given, with two test rows."""
    run = RunResult(
        path=Path("nowhere"),
        key="k",
        attention=attention,
        head="linear",
        recipe={"select": "last", "train_split": "train"},
        cache={
            "fingerprint": "f" * 64,
            "encoder": "e",
            "dataset": "d",
            "layers": 6,
            "hidden_size": 5,
            "rows": {"train": 2},
            "class_names": ["a", "b"],
        },
        environment={"code": {}},
        parameters={"attention": 1, "total": 2},
        majority_accuracy=0.5,
        seeds=seeds,
        failed=failed or {},
        epochs=dict.fromkeys(seeds, 1),
        seconds=dict.fromkeys(seeds, 0.1),
        learned_start={"beta": [2.0, 2.0]},
    )
    logits = np.zeros((len(seeds), 2, 2), np.float32)
    vars(run).update(learned=learned, logits=logits, labels=np.array([0, 1]), attention_map=None)
    vars(run)["log"] = []
    return run


@given(arrays(np.float32, (3, 2, 5), elements=st.floats(0.0625, 8, width=32)))
def test_ranges_and_quantiles_equal_plain_python(beta: np.ndarray) -> None:
    found = parameter_range(beta, [2.0, 2.0], exponents=True)
    flat = sorted(float(value) for value in beta.ravel())
    assert (found["start"], found["min"], found["max"]) == ([2.0, 2.0], flat[0], flat[-1])
    assert found["median"] == pytest.approx(statistics.median(flat))
    medians = [statistics.median(map(float, seed.ravel())) for seed in beta]
    assert found["seed_medians_sd"] == pytest.approx(statistics.stdev(medians), abs=1e-9)
    about = found["distribution"]
    cuts = statistics.quantiles(flat, n=20, method="inclusive")
    assert list(about["quantiles"]) == ["5", "25", "50", "75", "95"]
    expected = [cuts[0], cuts[4], cuts[9], cuts[14], cuts[18]]
    assert list(about["quantiles"].values()) == pytest.approx(expected)
    assert about["nearer_to_laplace"] == sum(value < 1.5 for value in flat) / 30
    assert about["below_laplace"] == sum(value < 1 for value in flat) / 30
    assert about["above_gaussian"] == sum(value > 2 for value in flat) / 30
    for head in (0, 1):
        values = map(float, beta[:, head].ravel())
        assert about["head_medians"][head] == pytest.approx(statistics.median(values))


def test_failed_seeds_are_left_out_and_runs_of_other_seeds_are_joined() -> None:
    beta = np.array([1.0, np.nan, 3.0], np.float32).reshape(3, 1, 1)
    first = fake_run({"beta": beta}, failed={1: "nan"})
    second = fake_run({"beta": np.full((1, 1, 1), 9.0, np.float32)}, seeds=(7,))
    found = learned_ranges([first, second])["beta"]
    assert (found["min"], found["median"], found["max"]) == (1.0, 3.0, 9.0)
    assert learned_ranges([second])["beta"]["seed_medians_sd"] is None
    none_left = fake_run({"beta": beta}, failed=dict.fromkeys((0, 1, 2), "nan"))
    assert learned_ranges([none_left]) == {}


def test_only_the_generalised_gaussian_has_a_distribution_of_exponents() -> None:
    values = {"beta": np.ones((3, 2, 5), np.float32), "alpha": np.ones((3, 2, 5), np.float32)}
    found = learned_ranges([fake_run(values, attention="generalized-gaussian:heads=2")])
    assert "distribution" in found["beta"]
    assert "distribution" not in found["alpha"]
    assert "distribution" not in learned_ranges([fake_run(values, attention="other")])["beta"]


def test_a_real_run_keeps_where_its_parameters_started(tiny_cache: Path, tmp_path: Path) -> None:
    config = TrainConfig(
        attn=("gaam", "scalar-mix", "mha"),
        cache=tiny_cache,
        runs=tmp_path,
        seeds=(0, 1),
        epochs=2,
        lr=0.01,
    )
    gaam, mix, mha = gaam_decoder.train(config)
    found = learned_ranges([gaam])
    assert set(found) == {"offset", "xi"}
    assert (found["xi"]["start"], found["offset"]["start"]) == ([2.0, 2.0], [0.0, 0.0])
    assert found["xi"]["max"] == gaam.learned["xi"].max() != 2.0
    assert learned_ranges([mix])["weight"]["start"] == pytest.approx((1 / 6, 1 / 6))
    assert learned_ranges([mha]) == {}


def test_reports_show_the_distribution_of_beta() -> None:
    tables = build_tables([fake_run({"beta": np.linspace(0.5, 2.5, 30).reshape(3, 2, 5)})])
    numbers = io.StringIO()
    Json().write(tables, numbers)
    about = json.loads(numbers.getvalue())["rows"][0]["learned"]["beta"]
    assert about["distribution"]["quantiles"]["50"] == pytest.approx(1.5)
