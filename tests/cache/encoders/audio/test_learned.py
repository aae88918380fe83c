"""Sounds in folders, through the command line: extract, train, report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import transformers

from tests.cache.encoders.audio import sounds, spoken
from tests.conftest import Outcome

CHANCE = 1 / len(spoken.CLASSES)


def test_ten_kinds_of_sounds_are_told_apart_by_states_of_an_untrained_encoder(
    tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    wide = {"hidden_size": 64, "intermediate_size": 128, "conv_dim": (64,) * 7}
    config = transformers.WavLMConfig(
        **sounds.SMALL | wide, feat_extract_norm="layer", do_stable_layer_norm=True, conv_bias=True
    )
    config.save_pretrained(tmp_path / "encoder")
    sounds.extractor_for(config).save_pretrained(tmp_path / "encoder")
    spoken.write(tmp_path / "data", {"train": 30, "test": 10})
    cache, runs = tmp_path / "cache", tmp_path / "runs"
    said = gaam(
        "extract", "--encoder", tmp_path / "encoder", "--untrained-encoder",
        "--dataset", tmp_path / "data", "--out", cache,
    )  # fmt: skip
    assert "train 300, test 100" in said.out
    assert "sounds/s" in said.out
    gaam("train", "--cache", cache, "--attn", "none", "--head", "lbfgs", "--runs", runs)
    gaam(
        "train", "--cache", cache, "--attn", "laplace", "--seeds", 2, "--epochs", 80,
        "--lr", 0.003, "--runs", runs,
    )  # fmt: skip
    rows = json.loads(gaam("report", runs, "--format", "json").out)["rows"]
    accuracy = {row["attention"]: row["accuracy"]["mean"] for row in rows}
    print(accuracy)
    assert accuracy.keys() == {"none", "laplace"}
    assert min(accuracy.values()) > 4 * CHANCE
