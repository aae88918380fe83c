"""Large states are divided before a decoder reads them: ``state-scale``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

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
MODES = ("all", "layer")


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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1e-3, 0.3, 1.0, 1.4, 23.0, 5e3])
def test_a_factor_is_a_power_of_two_and_brings_the_size_near_1(
    size: float, mode: str
) -> None:
    x_NLD = torch.from_numpy(states(size))
    scale = StateScale(L)
    mean_square_L = x_NLD.double().square().mean((0, 2))
    scale.fit(mean_square_L, by_layer=mode == "layer")

    mantissa_L, _exponent_L = torch.frexp(scale.factor)
    assert (mantissa_L == 0.5).all()
    scaled_NLD = scale(x_NLD)
    axes = (0, 2) if mode == "layer" else (0, 1, 2)
    root_mean_square = scaled_NLD.square().mean(axes).sqrt()
    assert (root_mean_square > 0.5**0.5 - 1e-6).all()
    assert (root_mean_square < 2**0.5 + 1e-6).all()
    # nothing is rounded
    assert torch.equal(scaled_NLD / scale.factor[:, None], x_NLD)


def test_a_layer_of_zeros_stays_as_it_is() -> None:
    scale = StateScale(2)
    scale.fit(torch.tensor([0.0, 64.0**2], dtype=torch.float64), by_layer=True)
    assert scale.factor.tolist() == [1, 1 / 64]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("attention", MECHANISMS)
def test_the_unit_of_the_states_changes_no_bit(
    attention: str, mode: str, tmp_path: Path
) -> None:
    units = {"all": 64.0, "layer": 2.0 ** np.arange(-2, L - 2)[:, None]}
    runs = [
        train_quietly(
            config_of(folder, states(unit), attn=(attention,), state_scale=mode)
        )
        for folder, unit in [(tmp_path / "a", 1.0), (tmp_path / "b", units[mode])]
    ]
    logits, other_logits = [run.logits for run in runs]
    assert np.array_equal(logits, other_logits)
    maps, other_maps = [run.attention_map for run in runs]
    assert (maps is None) == (other_maps is None)
    if maps is not None and other_maps is not None:
        assert np.array_equal(maps, other_maps)


@pytest.mark.parametrize(
    ("unit", "resolved"),
    [
        pytest.param(1.0, "none", id="small"),
        pytest.param(30.0, "all", id="large"),
    ],
)
def test_auto_divides_large_states_and_says_so(
    unit: float, resolved: str, tmp_path: Path
) -> None:
    config = config_of(tmp_path, states(unit))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = train_single_run(config)
    notes = [str(entry.message) for entry in caught if entry.category is GaamNote]
    assert run.recipe.state_scale == resolved
    assert len(notes) == (resolved == "all")
    assert all("root mean square" in note for note in notes)
    # the resolved value is the same run, and nothing is trained again
    assert train_single_run(config, state_scale=resolved).path == run.path


def test_scaled_decoders_predict_as_they_were_tested(tmp_path: Path) -> None:
    x_NLD = states(30)
    run = train_quietly(config_of(tmp_path, x_NLD, attn=("gaam:heads=1",)))
    predictor = load(run.path)
    predictions = predictor.predict_states(x_NLD[NUM_TRAIN:])
    expected_SNC = torch.softmax(torch.from_numpy(run.logits).double(), -1)
    np.testing.assert_allclose(
        probabilities_of(predictions), expected_SNC.mean(0), atol=1e-6
    )


def test_an_ablation_scales_as_its_run_does(tmp_path: Path) -> None:
    config = config_of(tmp_path, states(30), attn=("gaam:heads=1",), state_scale="none")
    run = train_quietly(config)
    gaam_decoder.ablate(run.path, num_layers=3, random_sets=1)
    ablated = gaam_decoder.load_runs(run.path.parent / "ablation")
    assert {part.recipe.state_scale for part in ablated} == {"none"}


def test_a_head_that_is_fitted_at_once_reads_states_as_they_are(tmp_path: Path) -> None:
    config = config_of(tmp_path, states(30))
    fitted = train_quietly(config, head=("lbfgs",))
    assert fitted.recipe.state_scale == "none"
    with pytest.raises(ConfigError, match="training in steps"):
        change(config, head=("lbfgs",), state_scale="all")
