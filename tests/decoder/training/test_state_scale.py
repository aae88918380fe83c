"""Large states are divided before a decoder reads them: ``state-scale``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import gaam_cache
import gaam_decoder
from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError, GaamNote
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.decoder import StateScale
from gaam_decoder.use.load import load
from tests.decoder.configs import (
    change,
    loose_config,
    probabilities_of,
    train_single_run,
)

N, L, D = 60, 6, 16
NUM_TRAIN = 40
MECHANISMS = plugins.names("gaam_decoder.attention")


def states(unit: Any = 1.0) -> np.ndarray[Any, Any]:
    """States (N, L, D) near a root mean square of 1, times a unit."""
    generator = np.random.default_rng(3)
    x_NLD = generator.normal(size=(N, L, D)) * np.array([0.5, 1, 1, 1, 1, 2])[:, None]
    # one feature is far larger than the others, as in a Llama
    x_NLD[:, 2, 5] += 8
    return (x_NLD.astype(np.float32) * unit).astype(np.float32)


def config_of(
    folder: Path, x_NLD: np.ndarray[Any, Any], **settings: Any
) -> TrainConfig:
    """A short training on a new cache of these states."""
    label_N = np.arange(N) % 3
    splits = {
        "train": (x_NLD[:NUM_TRAIN], label_N[:NUM_TRAIN]),
        "test": (x_NLD[NUM_TRAIN:], label_N[NUM_TRAIN:]),
    }
    gaam_cache.write(folder / "cache", splits, storage_dtype="float32")
    common = {
        "attn": ("none",),
        "seeds": (0, 1),
        "epochs": 2,
        "lr": 0.01,
        "probe": False,
        "device": "cpu",
        "compile": "off",
    }
    return loose_config(
        cache=folder / "cache", runs=folder / "runs", **(common | settings)
    )


def train_quietly(config: TrainConfig, **settings: Any) -> RunResult:
    """Train one run, without the note that states are large."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GaamNote)
        return train_single_run(config, **settings)


@pytest.mark.parametrize("size", [1e-3, 0.3, 1.0, 1.4, 23.0, 5e3])
def test_a_factor_is_a_power_of_two_and_brings_the_size_near_1(size: float) -> None:
    x_NLD = torch.from_numpy(states(size))
    scale = StateScale(L)
    scale.fit(x_NLD.double().square().mean((0, 2)))

    mantissa_L, _exponent_L = torch.frexp(scale.factor)
    assert (mantissa_L == 0.5).all()
    scaled_NLD = scale(x_NLD)
    size_L = scaled_NLD.square().mean((0, 2)).sqrt()
    assert (size_L > 0.5**0.5 - 1e-6).all()
    assert (size_L < 2**0.5 + 1e-6).all()
    # nothing is rounded
    assert torch.equal(scaled_NLD / scale.factor[:, None], x_NLD)


def test_a_layer_of_zeros_stays_as_it_is() -> None:
    scale = StateScale(2)
    scale.fit(torch.tensor([0.0, 64.0**2], dtype=torch.float64))
    assert scale.factor.tolist() == [1, 1 / 64]


@pytest.mark.parametrize("attention", MECHANISMS)
def test_the_units_of_the_layers_change_no_bit(attention: str, tmp_path: Path) -> None:
    units = {"a": 1.0, "b": 2.0 ** np.arange(-2, L - 2)[:, None]}
    runs: list[RunResult] = []
    for name, unit in units.items():
        config = config_of(
            tmp_path / name, states(unit), attn=(attention,), state_scale="layer"
        )
        runs.append(train_single_run(config))
    first, second = runs
    np.testing.assert_array_equal(first.logits, second.logits)
    np.testing.assert_array_equal(first.attention_map, second.attention_map)


@pytest.mark.parametrize(
    ("size", "resolved"),
    [
        pytest.param(1.8, "none", id="not large"),
        pytest.param(2.2, "layer", id="large"),
        pytest.param(0.018, "none", id="not small"),
        pytest.param(0.012, "layer", id="small"),
        pytest.param(0.0, "none", id="zeros"),
    ],
)
def test_auto_divides_large_and_small_states_and_says_so(
    size: float, resolved: str, tmp_path: Path
) -> None:
    x_NLD = states()
    size_L = np.sqrt(np.square(x_NLD[:NUM_TRAIN]).mean((0, 2)))
    x_NLD *= size / size_L.max()
    config = config_of(tmp_path, x_NLD)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = train_single_run(config)
    notes = [str(entry.message) for entry in caught if entry.category is GaamNote]
    assert run.recipe.state_scale == resolved
    assert len(notes) == (resolved == "layer")
    assert all(f"up to {size}" in note for note in notes)
    # the resolved value is the same run, and nothing is trained again
    assert train_single_run(config, state_scale=resolved).path == run.path


def test_all_layers_decide_so_that_layers_stay_comparable(tmp_path: Path) -> None:
    unit_L1 = np.ones((L, 1))
    unit_L1[-1] = 30
    config = config_of(
        tmp_path, states(unit_L1), layers=((1, 2), (L,), None), attn=("last-layer",)
    )
    with pytest.warns(GaamNote, match="are large"):
        runs = gaam_decoder.train(config)
    scale_by_layers = {run.recipe.layers: run.recipe.state_scale for run in runs}
    assert scale_by_layers == {(1, 2): "layer", (L,): "layer", None: "layer"}


@pytest.mark.parametrize("row", [0, 3, NUM_TRAIN - 1])
@pytest.mark.parametrize("factor", [1e3, 1e6])
def test_a_broken_row_divides_no_other_row(
    row: int, factor: float, tmp_path: Path
) -> None:
    x_NLD = states(0.5)
    x_NLD[row] *= factor
    run = train_single_run(config_of(tmp_path, x_NLD))
    assert run.recipe.state_scale == "none"

    scaled = train_quietly(config_of(tmp_path / "scaled", x_NLD), state_scale="layer")
    whole = train_quietly(
        config_of(tmp_path / "whole", states(0.5)), state_scale="layer"
    )
    np.testing.assert_array_equal(factors_of(scaled), factors_of(whole))


def test_rows_of_zeros_do_not_hide_large_rows(tmp_path: Path) -> None:
    x_NLD = states(30)
    x_NLD[: 3 * NUM_TRAIN // 4] = 0
    with pytest.warns(GaamNote, match="are large"):
        run = train_single_run(config_of(tmp_path, x_NLD))
    assert run.recipe.state_scale == "layer"


@pytest.mark.parametrize(
    ("spread", "offset", "warned"),
    [
        pytest.param(1.0, 0.0, False, id="centred"),
        pytest.param(1.0, 10.0, False, id="ten deviations from zero"),
        pytest.param(1.0, 500.0, True, id="five hundred deviations from zero"),
        pytest.param(1e-7, 1.0, False, id="equal but for rounding"),
    ],
)
def test_rows_that_hardly_differ_are_named(
    spread: float, offset: float, warned: bool, tmp_path: Path
) -> None:
    x_NLD = states()
    x_NLD[:, 1] = spread * x_NLD[:, 1] + offset
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train_single_run(config_of(tmp_path, x_NLD))
    messages = [str(entry.message) for entry in caught]
    named = any("rows of layer 2 differ from one another" in text for text in messages)
    assert named == warned


def test_rows_that_a_decoder_does_not_learn_from_choose_no_factor(
    tmp_path: Path,
) -> None:
    def train_on(folder: Path, x_NLD: np.ndarray[Any, Any]) -> RunResult:
        config = config_of(folder, x_NLD, folds=4, fold=1, state_scale="layer")
        return train_single_run(config)

    run = train_on(tmp_path / "a", states())
    assert run.test_rows is not None
    assert run.validation is not None
    held_out = np.union1d(run.test_rows, run.validation.rows)
    assert 0 < len(held_out) < NUM_TRAIN
    larger_NLD = states()
    larger_NLD[held_out] *= 64
    other = train_on(tmp_path / "b", larger_NLD)
    np.testing.assert_array_equal(factors_of(run), factors_of(other))


def factors_of(run: RunResult) -> np.ndarray[Any, Any]:
    """The factors of the states in the weights of a run, (S, L)."""
    return load_file(run.path / "weights.safetensors")["states.factor"]


def test_scaled_decoders_predict_as_they_were_tested(tmp_path: Path) -> None:
    x_NLD = states(30)
    run = train_quietly(config_of(tmp_path, x_NLD, attn=("gaam:heads=1",)))
    predictor = load(run.path)
    predictions = predictor.predict_states(x_NLD[NUM_TRAIN:])
    expected_SNC = torch.softmax(torch.from_numpy(run.logits).double(), -1)
    np.testing.assert_allclose(
        probabilities_of(predictions), expected_SNC.mean(0), atol=1e-6
    )


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"state_scale": "none"}, id="states"),
        pytest.param({"dtype": "float16", "loss_scale": "none"}, id="losses"),
    ],
)
def test_an_ablation_scales_as_its_run_does(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    config = config_of(tmp_path, states(30), attn=("gaam:heads=1",), **settings)
    run = train_quietly(config)
    gaam_decoder.ablate(run.path, num_layers=3, random_sets=1)
    for ablated in gaam_decoder.load_runs(run.path.parent / "ablation"):
        assert ablated.recipe.state_scale == run.recipe.state_scale
        assert ablated.recipe.loss_scale == run.recipe.loss_scale


def test_a_head_that_is_fitted_at_once_reads_states_as_they_are(tmp_path: Path) -> None:
    config = config_of(tmp_path, states(30))
    fitted = train_quietly(config, head=("lbfgs",))
    assert fitted.recipe.state_scale == "none"
    with pytest.raises(ConfigError, match="training in steps"):
        change(config, head=("lbfgs",), state_scale="layer")
