"""The commands as a person runs them: what they print, where, and with which exit code."""

from __future__ import annotations

import json
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
    assert outcome.out.count(" over 3 seeds") == 2  # each once
    assert " over 3 seeds" not in outcome.err
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


def test_every_option_of_extract_reaches_the_cache(
    gaam: Gaam, encoders: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "one.csv").write_text("y,title,body\n" + "p,goal,cup\nq,bank,vote\n" * 4)
    outcome = gaam(
        *("extract", "--encoder", encoders["llama"], "--dataset", tmp_path / "d"),
        *("--text-column", "title", "--text-column", "body", "--label-column", "y"),
        *("--split", "one", "--out", tmp_path / "c", "--pool", "last,mean", "--max-length", 9),
        *("--dtype", "bfloat16", "--storage-dtype", "bfloat16", "--set", "batch-tokens=64"),
        *("--set", "shard-rows=2", "--limit", 5, "--device", "cpu", "--quiet"),
    )
    assert (outcome.code, outcome.err) == (0, "")
    about = json.loads(gaam("inspect", tmp_path / "c", "--json").out)
    assert about["pooling"] == ["last", "mean"]
    assert (about["compute_dtype"], about["storage_dtype"]) == ("bfloat16", "bfloat16")
    assert about["splits"]["one"]["rows"] == 5
    assert about["splits"]["one"]["rows_per_class"] == {"p": 3, "q": 2}
    assert about["splits"]["one"]["mean_tokens"] == 3.0  # bos, title, body
    assert len(list((tmp_path / "c" / "shards").glob("*.h5"))) == 3


def test_train_prints_a_line_per_run_and_json(gaam: Gaam, runs: Path, tiny_cache: Path) -> None:
    options = ["--cache", tiny_cache, "--runs", runs, "--seeds", 3, "--epochs", 2, "--lr", 0.01]
    outcome = gaam("train", "--attn", "laplace", *options)
    assert outcome.out.startswith("laplace + linear, pool mean, lr 0.01: ")
    assert "over 3 seeds" in outcome.out
    content = json.loads(gaam("train", "--attn", "laplace", *options, "--json").out)
    assert [seed["seed"] for seed in content[0]["seeds"]] == [0, 1, 2]


def test_inspect_speaks_of_caches_and_runs(gaam: Gaam, runs: Path, tiny_cache: Path) -> None:
    words = gaam("inspect", tiny_cache).out
    assert "complete" in words
    assert "6 layers x 32" in words
    assert "train        60 rows" in words
    assert "laplace + linear" in gaam("inspect", runs).out
    run = next(runs.glob("laplace*"))
    about = json.loads(gaam("inspect", run, "--json").out)
    assert about["recipe"]["epochs"] == 2
    assert len(about["seeds"]) == 3


def test_inspect_tells_an_incomplete_cache(gaam: Gaam, tiny_config: ExtractConfig) -> None:
    gaam("extract", "--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset,
         "--out", tiny_config.out, "--set", "shard-rows=10")  # fmt: skip
    (tiny_config.out / "shards" / "train-00003.json").unlink()
    outcome = gaam("inspect", tiny_config.out)
    assert outcome.code == 0
    assert "incomplete, 1 shards are missing" in outcome.out
    outcome = gaam("train", "--cache", tiny_config.out)
    assert outcome.code == 3
    assert "train-00003" in outcome.err


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
    wrong = gaam("describe", "--attn", "gaam:heads=7")
    assert (wrong.code, wrong.out) == (2, "")
    assert "heads=7" in wrong.err
