"""The commands as a person runs them: what they print, where, and with which exit code."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gaam_cache.config import ExtractConfig
from tests.conftest import Outcome, needs_minilm

Gaam = Callable[..., Outcome]


@pytest.fixture
def runs(gaam: Gaam, tiny_cache: Path, tmp_path: Path) -> Path:
    """Two mechanisms, three seeds each."""
    out = tmp_path / "runs"
    options = ["--cache", tiny_cache, "--runs", out, "--seeds", 3, "--epochs", 2, "--lr", 0.01]
    outcome = gaam("train", "--attn", "laplace", "--attn", "none", *options)
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith("laplace:heads=2 + linear, pool mean, lr 0.01: ")
    assert outcome.out.count(" over 3 seeds") == 2  # each once
    content = json.loads(gaam("train", "--attn", "laplace", *options, "--json").out)
    assert [seed["seed"] for seed in content[0]["seeds"]] == [0, 1, 2]
    return out


def test_extract_says_what_it_made(gaam: Gaam, tiny_config: ExtractConfig) -> None:
    arguments = ["extract", "--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset]
    arguments += ["--out", tiny_config.out]
    first = gaam(*arguments)
    assert first.code == 0
    assert "is complete" in first.out
    assert "84 rows" in first.out
    assert "texts/s" in first.out
    assert "nothing to do" in gaam(*arguments).out
    summary = json.loads(gaam(*arguments, "--json").out)
    assert summary["rows"] == {"train": 60, "test": 24}


def test_inspect_speaks_of_caches_and_runs(gaam: Gaam, runs: Path, tiny_cache: Path) -> None:
    words = gaam("inspect", tiny_cache).out
    assert "complete" in words
    assert "6 layers x 32" in words
    assert "train        60 rows" in words
    assert "laplace:heads=2 + linear" in gaam("inspect", runs).out
    run = next(runs.glob("laplace*"))
    about = json.loads(gaam("inspect", run, "--json").out)
    assert about["recipe"]["epochs"] == 2
    assert len(about["seeds"]) == 3


def test_inspect_tells_an_incomplete_cache(gaam: Gaam, tiny_cache: Path, tmp_path: Path) -> None:
    cache = Path(shutil.copytree(tiny_cache, tmp_path / "cache"))
    (cache / "shards" / "test-00000.json").unlink()
    outcome = gaam("inspect", cache)
    assert outcome.code == 0
    assert "incomplete, 1 shards are missing" in outcome.out


@needs_minilm
def test_the_three_commands_without_arguments(
    gaam: Gaam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert gaam("extract").code == 0
    assert gaam("train", "--attn", "laplace").code == 0
    outcome = gaam("report", "--json")
    assert outcome.code == 0
    report = json.loads(outcome.out)
    assert report["cache"]["dataset"] == "news-sample"
    assert report["cache"]["encoder"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert report["rows"][0]["seeds"] == list(range(10))
    assert 0.85 < report["rows"][0]["accuracy"]["mean"] < 1.0
    assert report["majority_accuracy"] == 0.25


def test_describe_lists_and_explains(gaam: Callable[..., Outcome]) -> None:
    listed = gaam("describe", "--layers", 6, "--hidden-size", 384)
    assert listed.code == 0
    for name in ("generalized-gaussian", "mlp", "focal", "2,304"):
        assert name in listed.out
    one = gaam("describe", "--attn", "mqa:published=true", "--json")
    about = json.loads(one.out)
    assert about["spec"] == "mqa:init=xavier-normal,published=true"
    assert about["output_shape"] == ["B", 40, 512]
    assert one.err == ""
