"""Final models learn from all rows of train, bit for bit as with a test split."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import gaam_decoder
from gaam_cache import plugins
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.heads._fitted import FittedHead
from gaam_decoder.runs.result import WEIGHTS_FILE
from gaam_decoder.training.train_group import why_unusable
from tests.decoder.tensors import tensors

HEADS = plugins.names("gaam_decoder.heads")
FITTED = [
    name
    for name in HEADS
    if issubclass(plugins.load("gaam_decoder.heads", name, kind="head"), FittedHead)
]


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("gaam",), cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1), epochs=2, lr=0.01
    )


def same_training(evaluated: RunResult, final: RunResult) -> None:
    """Every bit that training decides is the same; what a test decides is not there."""
    mine, theirs = tensors(final, WEIGHTS_FILE), tensors(evaluated, WEIGHTS_FILE)
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        assert value.tobytes() == mine[name].tobytes(), (final.title, name)
    for name, value in evaluated.learned.items():
        assert value.tobytes() == final.learned[name].tobytes(), (final.title, name)
    timeless = [[e | {"seconds": 0} for e in run.log] for run in (evaluated, final)]
    assert timeless[0] == timeless[1]
    assert (evaluated.epochs, evaluated.failed) == (final.epochs, final.failed)
    assert evaluated.evaluated
    assert not final.evaluated
    assert evaluated.key != final.key
    classes = len(final.cache["class_names"])
    assert final.logits.shape == (len(final.seeds), 0, classes)
    for empty in (final.labels, final.accuracy, final.macro_f1):
        assert empty.shape == (0,)
    assert final.predictions.shape == (len(final.finished), 0)
    assert final.majority_accuracy is final.attention_map is final.test_rows is None


def both(config: TrainConfig) -> list[tuple[RunResult, RunResult]]:
    """Every run of a config, and the same without test rows."""
    evaluated = gaam_decoder.train(config)
    finals = gaam_decoder.train(replace(config, test_split="none"))
    return list(zip(evaluated, finals, strict=True))


@pytest.mark.parametrize("head", [name for name in HEADS if name not in FITTED])
def test_of_every_mechanism_and_head_the_test_split_decides_no_bit(
    head: str, config: TrainConfig
) -> None:
    attn = tuple(plugins.names("gaam_decoder.attention"))
    for select in ("last", "val") if head == "linear" else ("val",):
        wide = replace(config, attn=attn, head=head, select=select, seeds=(0,), epochs=1)
        pairs = both(wide)
        assert len(pairs) == len(attn)
        for evaluated, final in pairs:
            same_training(evaluated, final)


@pytest.mark.parametrize("head", FITTED)
def test_a_head_that_is_fitted_at_once_needs_no_test_rows(head: str, config: TrainConfig) -> None:
    for attn in ("none", "layer-mean", "last-layer"):
        [(evaluated, final)] = both(replace(config, attn=(attn,), head=head))
        same_training(evaluated, final)
        assert final.fit == evaluated.fit


WAYS: dict[str, dict[str, Any]] = {
    "float16 and its scaling": {"dtype": "float16"},
    "bfloat16": {"dtype": "bfloat16", "eval_dtype": "float32"},
    "a window": {"shuffle": "window:20"},
    "rows on disk": {"memory_share": 0.0},
    "a window of rows on disk": {"memory_share": 0.0, "shuffle": "window:20"},
    "weights of classes": {"class_weights": "balanced"},
    "a schedule and clipping": {"schedule": "plateau", "clip_grad_norm": 0.1, "epochs": 15},
    "published forms": {"attn": ("mha:published=true", "mha-bn"), "batch_size": 7},
    "some layers": {"layers": ((1, 2), (3, 5))},
    "one seed at a time": {"seed_batch": 1},
    "rates": {"lr": (1e-3, 1e-1), "weight_decay": (0.0, 0.1)},
    "another loss": {"loss": "focal"},
    "first of equals": {"ties": "first", "val_fraction": 0.3, "split_seed": 4},
}


@pytest.mark.parametrize("way", WAYS)
def test_in_every_way_of_training_the_test_split_decides_no_bit(
    way: str, config: TrainConfig
) -> None:
    for select in ("last", "val"):
        if select == "last" and way == "first of equals":
            continue
        pairs = both(replace(config, **{"select": select, **WAYS[way]}))
        assert pairs
        for evaluated, final in pairs:
            same_training(evaluated, final)


def test_a_seed_that_fails_fails_without_test_rows_too(config: TrainConfig) -> None:
    for select in ("last", "val"):
        [(evaluated, final)] = both(replace(config, lr=1e30, select=select, epochs=4))
        assert evaluated.failed.keys() == final.failed.keys() == {0, 1}
        assert "FAILED" not in final.summary()
        assert "0 of 2 seeds finished" in final.summary()


def test_weights_that_are_no_numbers_are_a_failure() -> None:
    good = {"a": torch.ones(2), "count": torch.tensor(3)}
    none, some = torch.empty(0, 3), torch.ones(2, 3)
    assert why_unusable(good, none) is why_unusable(good, some) is None
    for bad in (torch.inf, -torch.inf, torch.nan):
        assert "weights" in str(why_unusable(good | {"b": torch.tensor([1.0, bad])}, none))
        assert "logits" in str(why_unusable(good, torch.tensor([[1.0, bad]])))
