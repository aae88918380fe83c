"""The examples of the page on mechanisms, heads and losses run as they stand there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gaam_cache
import gaam_decoder
from gaam_cache.common import plugins
from tests.decoder.configs import loose_config

PAGE = Path(__file__).parents[2] / "docs/contributing/parts.md"
EXAMPLE = re.compile(r"^`(\w+\.py)`[^\n]*:\n\n```python\n(.*?)```", re.M | re.S)


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write the examples into the current folder; the names of their files."""
    monkeypatch.chdir(tmp_path)
    examples = EXAMPLE.findall(PAGE.read_text("utf-8"))
    for name, code in examples:
        Path(name).write_text(code, "utf-8")
    return [name for name, _ in examples]


def test_the_mechanism_and_the_head_of_the_page_train(examples: list[str]) -> None:
    assert examples == ["sech.py", "cosine.py", "brier.py", "signed.py"]
    states = np.random.default_rng(0).normal(size=(40, 6, 8)).astype(np.float32)
    labels = np.arange(40) % 2
    splits = {"train": (states, labels), "test": (states + 1, labels)}
    gaam_cache.write("cache", splits)
    settings: dict[str, Any] = {
        "attn": "sech.py:Sech",
        "head": "cosine.py:Cosine",
        "cache": "cache",
        "seeds": 2,
        "epochs": 1,
        "lr": 1e-3,
        "probe": False,
    }
    [run] = gaam_decoder.train(loose_config(**settings))
    assert not run.failed
    assert "s" in run.learned


SCORE = """
from gaam_decoder.stats.scores.accuracy import Accuracy

class Again(Accuracy):
    title = "accuracy again"
"""


def test_a_loss_an_optimizer_and_a_score_may_be_from_a_file(
    examples: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "_REGISTERED", {})
    Path("again.py").write_text(SCORE, "utf-8")
    states = np.random.default_rng(0).normal(size=(40, 6, 8)).astype(np.float32)
    labels = np.arange(40) % 2
    splits = {"train": (states, labels), "test": (states + 1, labels)}
    gaam_cache.write("cache", splits)
    config = loose_config(
        attn="none",
        loss="brier.py:BrierLoss",
        optimizer="signed.py:SignedMomentum:momentum=0.5",
        cache="cache",
        seeds=2,
        epochs=1,
        tune_seeds="7,8",
        probe=False,
    )
    assert config.rates == (1e-3, 1e-2)
    run = gaam_decoder.train(config)[-1]
    assert str(run.recipe.loss) == "BrierLoss"
    assert str(run.recipe.optimizer) == "SignedMomentum:momentum=0.5"
    (table,) = gaam_decoder.report(run, score="again.py:Again").tables
    (usual,) = gaam_decoder.report(run).tables
    assert table.score_name == "Again"
    assert table.entries[0].compared_score.mean == usual.entries[0].compared_score.mean


def test_the_loss_of_the_page_is_its_formula(examples: list[str]) -> None:
    spec = importlib.util.spec_from_file_location("brier", "brier.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()
    label = torch.tensor([0, 1, 2, 1, 0])
    distance = logits.softmax(1) - torch.eye(3)[label]
    expected = distance.square().sum(1).mean()
    torch.testing.assert_close(module.BrierLoss()(logits, label), expected)
