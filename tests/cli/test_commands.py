"""The three commands as a person runs them first."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Outcome, needs_minilm

Gaam = Callable[..., Outcome]


@needs_minilm
def test_the_three_commands_without_arguments(
    gaam: Gaam, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert gaam("extract").code == 0
    assert gaam("train", "--attn", "laplace", "--lr", 0.05, "--epochs", 4, "--no-probe").code == 0
    outcome = gaam("report", "--json")
    assert outcome.code == 0
    report = json.loads(outcome.out)
    assert report["cache"]["dataset"] == "news-sample"
    assert report["cache"]["encoder"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert report["rows"][0]["seeds"] == list(range(10))
    assert 0.85 < report["rows"][0]["accuracy"]["mean"] < 1.0
    assert report["majority_accuracy"] == 0.25
