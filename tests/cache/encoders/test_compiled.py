"""Compiled layers have the states of plain ones; who cannot be compiled runs plainly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gaam_cache
from gaam_cache.common.compiling import missing_compiler
from gaam_cache.common.errors import GaamWarning
from gaam_cache.encoders import _compiled
from gaam_cache.encoders._compiled import reason_not_to_compile
from tests.cache.encoders.test_states import config_for
from tests.conftest import ARCHITECTURES
from tests.contract.test_1_states import POOLINGS

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def _compiler() -> None:
    """Skip where there is none: to know takes seconds, and few runs ask."""
    if missing_compiler("cpu") is not None:
        pytest.skip("no C++ compiler here")


def states_of(config: Any) -> dict[str, np.ndarray]:
    split = gaam_cache.open_cache(config.out)["train"]
    return {pool: split.pooled(pool)[:] for pool in POOLINGS}


@pytest.mark.usefixtures("_compiler")
@pytest.mark.slow
@pytest.mark.filterwarnings("error:.*not compiled:gaam_cache.common.errors.GaamWarning")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_compiled_layers_have_the_states_of_plain_ones(
    architecture: str, encoders: dict[str, Path], tmp_path: Path
) -> None:
    plain = replace(config_for(encoders[architecture], tmp_path), pool=tuple(POOLINGS))
    compiled = replace(plain, compile="on", out=tmp_path / "compiled")
    for config in (plain, compiled):
        gaam_cache.extract(config)
    expected = states_of(plain)
    for pool, states in states_of(compiled).items():
        np.testing.assert_allclose(states, expected[pool], atol=1e-5, rtol=1e-5)
    assert gaam_cache.verify(compiled.out, recompute_rows=8).good


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        pytest.param("an operation\nat line 7", "an operation", id="with a message"),
        pytest.param("", "Unsupported", id="without a message"),
    ],
)
def test_a_compiler_that_fails_leaves_plain_states_and_a_warning(
    message: str,
    reason: str,
    encoders: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def fail(plain: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        def forward(*arguments: Any, **keywords: Any) -> Any:
            calls.append(options)
            raise torch._dynamo.exc.Unsupported(message)

        return forward

    monkeypatch.setattr(torch, "compile", fail)
    monkeypatch.setattr(_compiled, "missing_compiler", lambda device_type: None)
    config = replace(config_for(encoders["llama"], tmp_path), pool=tuple(POOLINGS))
    gaam_cache.extract(config)
    failing = replace(config, compile="on", out=tmp_path / "failing")
    with pytest.warns(GaamWarning, match=f"not compiled, so slower: {reason}$"):
        gaam_cache.extract(failing)
    # one failure is enough
    assert len(calls) == 1
    for pool, states in states_of(failing).items():
        np.testing.assert_array_equal(states, states_of(config)[pool])


def test_layers_that_accelerate_has_placed_are_not_compiled() -> None:
    hooks = pytest.importorskip("accelerate.hooks")
    model = nn.Sequential(nn.Linear(2, 2))
    assert reason_not_to_compile(model, CPU) == missing_compiler("cpu")
    hooks.add_hook_to_module(model[0], hooks.ModelHook())
    reason = reason_not_to_compile(model, CPU)
    assert reason == "another library has replaced methods of its modules"


def test_an_encoder_that_cannot_be_compiled_says_so(
    encoders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_compiled, "missing_compiler", lambda device_type: "no Triton")
    config = replace(config_for(encoders["bert"], tmp_path), compile="on")
    with pytest.warns(GaamWarning, match=r"compile=on has no effect .*: no Triton$"):
        gaam_cache.extract(config)
