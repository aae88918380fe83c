from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._text.choices import choose_dtype
from gaam_cache.encoders.text import TextEncoder
from tests.conftest import Outcome

MODULE = importlib.import_module("gaam_cache.extraction.estimate")


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "SAMPLE_SECONDS", 0.05)


def test_a_dry_run_counts_tokens_and_bytes_and_writes_nothing(tiny_config: ExtractConfig) -> None:
    said = gaam_cache.estimate(tiny_config)
    assert not tiny_config.out.exists()
    summary = gaam_cache.extract(tiny_config)
    assert said.exact_tokens
    assert said.tokens == summary.tokens
    assert said.rows == summary.rows
    assert said.bytes == 84 * 3 * 32 * 2
    assert said.bytes < summary.bytes
    assert said.seconds > 0


def test_many_rows_are_estimated_from_a_sample(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "SAMPLE_ROWS", 30)
    said = gaam_cache.estimate(tiny_config)
    tokens = gaam_cache.extract(tiny_config).tokens
    assert not said.exact_tokens
    assert abs(said.tokens - tokens) < 0.3 * tokens


def test_the_command_says_it(gaam: Callable[..., Outcome], tiny_config: ExtractConfig) -> None:
    options = ["--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset]
    outcome = gaam("extract", *options, "--out", tiny_config.out, "--dry-run")
    assert outcome.code == 0
    assert "nothing was written" in outcome.out
    assert "tokens/s" in outcome.out
    assert not tiny_config.out.exists()


def test_auto_chooses_by_device_and_is_recorded_as_what_it_chose(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = torch.device("cpu")
    for features, chosen in (({"avx512_bf16": True}, "bfloat16"), ({}, "float32")):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda f=features: f, raising=False)
        assert choose_dtype("auto", cpu) == chosen
        assert choose_dtype("float16", cpu) == "float16"
        encoder = TextEncoder.open(replace(tiny_config, dtype="auto"))
        explicit = TextEncoder.open(replace(tiny_config, dtype=chosen))
        assert encoder.dtype == chosen
        assert encoder.identity() == explicit.identity()
