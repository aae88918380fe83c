from __future__ import annotations

import importlib
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders import text as of_text
from gaam_cache.encoders._model.choices import choose_dtype
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.errors import ConfigError
from gaam_cache.extraction.assumptions import Assumptions
from gaam_cache.extraction.cards import CARDS, DEFAULT_CARD
from tests.conftest import Outcome

MODULE = importlib.import_module("gaam_cache.extraction.estimate")
RATE = importlib.import_module("gaam_cache.extraction.rate")


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RATE, "SAMPLE_SECONDS", 0.05)


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


@pytest.fixture
def bare(tiny_config: ExtractConfig, tmp_path: Path) -> ExtractConfig:
    """The same encoder with its weights gone: configuration and tokenizer are all there is."""
    folder = Path(shutil.copytree(tiny_config.encoder, tmp_path / "bare"))
    for file in folder.glob("*.safetensors"):
        file.unlink()
    return replace(tiny_config, encoder=str(folder))


def test_a_gpu_that_is_not_here_is_assumed_and_no_weights_are_needed(
    bare: ExtractConfig, tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    summary = gaam_cache.extract(tiny_config)
    for device in ("cuda", "cuda:7"):
        said = gaam_cache.estimate(replace(bare, device=device))
        assert said.device == device
        assert (said.tokens, said.shards) == (summary.tokens, summary.shards)
        assert said.bytes == 84 * 3 * 32 * 2
        assert said.parameters is not None
        assert not said.batching_measured
        assert f"one {CARDS[DEFAULT_CARD].label}" in said.rate_from
        assert "assumed, not measured: 40%" in said.rate_from
        with pytest.raises(ConfigError, match="no device"):
            gaam_cache.extract(replace(tiny_config, device=device))


@pytest.fixture
def outlined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shape and cost of one encoder are those of its configuration, in every estimate."""
    outline_of_text = of_text.outline_of_text
    found: dict[Any, Any] = {}

    def outlined(config: Any, *arguments: Any) -> Any:
        key = (config.to_json_string(), *arguments)
        if key not in found:
            found[key] = outline_of_text(config, *arguments)
        return found[key]

    monkeypatch.setattr(of_text, "outline_of_text", outlined)


@pytest.mark.usefixtures("outlined_once")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "auto"])
def test_cards_and_shares_decide_the_time(
    bare: ExtractConfig, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time on a card times what it does is the same for all of them; tokenising takes none."""
    monkeypatch.setattr(MODULE.time, "perf_counter", lambda: 0.0)
    operations = []
    for name, card in CARDS.items():
        for share in (0.1, 1.0):
            assumed = Assumptions(card=name, share=share)
            config = replace(bare, dtype=dtype)
            if dtype != "auto" and dtype not in card.peaks:
                with pytest.raises(ConfigError, match=f"no arithmetic in {dtype}"):
                    gaam_cache.estimate(config, assumed=assumed)
                continue
            said = gaam_cache.estimate(config, assumed=assumed)
            assert said.dtype in card.peaks
            assert said.dtype == dtype or dtype == "auto"
            assert said.seconds == pytest.approx(said.tokens / said.tokens_per_second)
            operations.append(said.seconds * share * card.peaks[said.dtype])
    np.testing.assert_allclose(operations, operations[0])


@pytest.mark.usefixtures("outlined_once")
def test_workers_share_shards(bare: ExtractConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE.time, "perf_counter", lambda: 0.0)
    for rows in (1, 5, 10, 84):
        config = replace(bare, shard_rows=rows)
        for workers in range(1, 20):
            assumed = Assumptions(workers=workers, assume_tokens_per_second=100.0)
            said = gaam_cache.estimate(config, assumed=assumed)
            shards = -(-60 // rows) + -(-24 // rows)
            assert (said.shards, said.workers) == (shards, workers)
            alone = said.tokens / 100.0
            assert said.seconds == pytest.approx(alone * -(-shards // workers) / shards)
            assert bool(said.warnings) == (shards < workers)
            if said.warnings:
                asked = int(said.warnings[0].split("shard-rows ")[1].split()[0])
                better = gaam_cache.estimate(replace(config, shard_rows=asked), assumed=assumed)
                assert not better.warnings


def test_no_rate_is_beyond_that_of_the_tokenizer(bare: ExtractConfig) -> None:
    said = gaam_cache.estimate(bare, assumed=Assumptions(assume_tokens_per_second=1e15))
    assert said.tokens_per_second < 1e9
    assert "that of the tokenizer here" in said.rate_from


def test_the_command_says_what_it_assumes(
    gaam: Callable[..., Outcome], bare: ExtractConfig
) -> None:
    options = ["--encoder", bare.encoder, "--dataset", bare.dataset, "--out", bare.out, "--dry-run"]
    more = ["--device", "cuda", "--workers", 16, "--card", "h200", "--share", 0.25]
    outcome = gaam("extract", *options, *more)
    assert outcome.code == 0, outcome.err
    for text in (
        "assumed, the encoder was not loaded",
        "with 16 workers, each",
        "25% (--share) of 67 TFLOP/s, the dense float32 peak of one H200 SXM",
        "2 shards for 16 workers",
    ):
        assert text in outcome.out
    about = json.loads(gaam("extract", *options, *more, "--json").out)
    assert about["workers"] == 16
    assert len(about["warnings"]) == 1
    assert about["batching_measured"] is False
    assert not bare.out.exists()


WRONG = {
    "--workers": ["0", "-1", "3000000000"],
    "--assume-tokens-per-second": ["0", "-5", "nan", "inf"],
    "--share": ["0", "1.5", "nan", "-0.4"],
    "--card": ["h1000", "H 100"],
}


def test_values_that_cannot_be_meant_are_refused(gaam: Callable[..., Outcome]) -> None:
    for option, values in WRONG.items():
        for value in values:
            outcome = gaam("extract", "--dry-run", f"{option}={value}")
            assert outcome.code == 2, (option, value)
            assert option in outcome.err
    for words in (
        ["--card", "h100", "--assume-tokens-per-second", 5],
        ["--share", 0.5, "--assume-tokens-per-second", 5],
        ["--card", "h100", "--device", "cpu"],
        ["--share", 0.5, "--device", "cpu"],
        ["--card", "v100", "--dtype", "bfloat16"],
        ["--card", "h100", "--encoder", "tfidf"],
    ):
        outcome = gaam("extract", "--dry-run", *words)
        assert outcome.code == 2, words
        assert outcome.err.startswith("error: ")


def test_nothing_is_assumed_of_an_extraction(
    gaam: Callable[..., Outcome], tiny_config: ExtractConfig
) -> None:
    options = ["--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset]
    for words in (
        ["--workers", 2],
        ["--card", "h100"],
        ["--share", 0.4],
        ["--assume-tokens-per-second", 1000],
        ["--workers", 2, "--card", "h100"],
    ):
        outcome = gaam("extract", *options, "--out", tiny_config.out, *words)
        assert outcome.code == 2
        assert "for estimates only" in outcome.err
        assert "--dry-run beside it" in outcome.err
    assert not tiny_config.out.exists()


def test_cards_are_as_data_sheets_have_them() -> None:
    for name, card in CARDS.items():
        assert re.fullmatch(r"[a-z0-9-]+", name)
        assert {"float16", "float32"} <= set(card.peaks) <= {"float16", "float32", "bfloat16"}
        assert all(1e12 < peak < 1e16 for peak in card.peaks.values())
        assert card.peaks["float32"] < card.peaks["float16"]
        assert card.peaks.get("bfloat16", card.peaks["float16"]) == card.peaks["float16"]
    assert len({card.label for card in CARDS.values()}) == len(CARDS)
    assert DEFAULT_CARD in CARDS


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
