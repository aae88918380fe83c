from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

import gaam_cache
import gaam_decoder
from gaam_cache.cache import open_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import CacheError, ConfigError
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.decoder import DecoderSpec, build_decoder
from gaam_decoder.training import work as seed_groups
from gaam_decoder.training.grid import plan_items
from gaam_decoder.training.group import Group, train_group
from tests.tiny import WORDS, write_csv


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("gaam",), cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1, 2), epochs=3, lr=0.01
    )


def one(config: TrainConfig) -> RunResult:
    runs = gaam_decoder.train(config)
    assert len(runs) == 1
    return runs[0]


def specs(config: TrainConfig) -> list[DecoderSpec]:
    items = plan_items(config, open_cache(config.cache), torch.device("cpu"))
    return [item.spec for item in items]


def weights(run: RunResult) -> dict[str, torch.Tensor]:
    return load_file(run.path / "weights.safetensors")


def test_two_runs_give_the_same_bits_and_other_seeds_others(
    config: TrainConfig, tmp_path: Path
) -> None:
    first, second = one(config), one(replace(config, runs=tmp_path / "again"))
    for file in ("weights.safetensors", "test.safetensors"):
        assert (first.path / file).read_bytes() == (second.path / file).read_bytes()
    assert not np.array_equal(first.logits[0], first.logits[1])


def test_training_learns(config: TrainConfig, encoders: dict[str, Path], tmp_path: Path) -> None:
    generator = random.Random(0)
    for split, count in (("train", 120), ("test", 40)):
        rows = [
            (label, " ".join(generator.choices(words, k=6)))
            for label, words in (("a", WORDS[:8]), ("b", WORDS[8:]))
            for _ in range(count // 2)
        ]
        write_csv(tmp_path / "data" / f"{split}.csv", rows)
    extract = ExtractConfig(
        encoder=str(encoders["gpt2"]), dataset=str(tmp_path / "data"), out=tmp_path / "cache"
    )
    gaam_cache.extract(extract)
    run = one(replace(config, cache=extract.out, attn=("none",), epochs=40, seeds=(0, 1)))
    log = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    assert [entry["epoch"] for entry in log] == 2 * list(range(1, 41))
    for place in (0, 1):
        assert log[40 * place + 39]["loss"] < 0.5 * log[40 * place]["loss"]
        assert run.accuracy[place] > run.majority_accuracy + 0.35


def test_accuracy_is_that_of_the_stored_logits(config: TrainConfig) -> None:
    run = one(config)
    with safe_open(run.path / "test.safetensors", "np") as file:
        logits, labels = file.get_tensor("logits"), file.get_tensor("labels")
        attention_map = file.get_tensor("attention_map")
    assert logits.shape == (3, 24, 2)
    assert attention_map.shape == (3, 6, 32)
    np.testing.assert_allclose(run.accuracy, (logits.argmax(-1) == labels).mean(1))


def test_stored_weights_reproduce_the_stored_logits(config: TrainConfig) -> None:
    run = one(config)
    cache = open_cache(config.cache)
    decoder = build_decoder(*specs(config), seed=0)
    x = torch.from_numpy(cache["test"].embeddings[:]).float()
    for place in range(3):
        decoder.load_state_dict({name: value[place] for name, value in weights(run).items()})
        with torch.inference_mode():
            logits = decoder(x).numpy()
        np.testing.assert_allclose(logits, run.logits[place], atol=1e-6)


@pytest.mark.parametrize("select", ["val", "test", "last"])
def test_the_kept_epoch_follows_the_protocol(select: str, config: TrainConfig) -> None:
    run = one(replace(config, select=select, epochs=12, lr=0.05))
    log = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    for place, seed in enumerate(run.seeds):
        entries = [entry for entry in log if entry["seed"] == seed]
        if select == "last":
            assert run.epochs[seed] == 12
            assert "accuracy" not in entries[0]
            continue
        best = max(entries, key=lambda e: (e["accuracy"], -e["selection_loss"], -e["epoch"]))
        assert run.epochs[seed] == best["epoch"]
        if select == "test":
            assert run.accuracy[place] == pytest.approx(best["accuracy"])


def test_existing_seeds_are_not_trained_again_and_new_ones_are_added(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = one(config)
    trained: list[int] = []

    def count(spec, data, recipe, seeds, **options):
        trained.extend(seeds)
        return train_group(spec, data, recipe, seeds, **options)

    monkeypatch.setattr(seed_groups, "train_group", count)
    assert one(config).path == first.path
    assert trained == []
    runs = gaam_decoder.train(replace(config, seeds=(1, 2, 3, 5)))
    assert trained == [3, 5]
    assert [run.seeds for run in runs] == [(0, 1, 2), (3, 5)]
    gaam_decoder.train(replace(config, lr=0.02))
    assert trained == [3, 5, 0, 1, 2]
    assert len(gaam_decoder.load_runs(config.runs)) == 3


def test_an_interruption_keeps_finished_seeds(config: TrainConfig, tmp_path: Path) -> None:
    config = replace(config, seed_batch=1)

    def interrupt(done: int, total: int, text: str) -> None:
        if "seed 1" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gaam_decoder.train(config, progress=interrupt)
    with pytest.raises(CacheError, match="1 unfinished"):
        gaam_decoder.load_runs(config.runs)
    seen: list[str] = []
    resumed = gaam_decoder.train(config, progress=lambda done, total, text: seen.append(text))[0]
    assert not any("seed 0" in text for text in seen)
    whole = one(replace(config, runs=tmp_path / "whole"))
    assert (resumed.path / "weights.safetensors").read_bytes() == (
        whole.path / "weights.safetensors"
    ).read_bytes()
    assert not list(config.runs.glob(".*"))


def test_a_run_whose_logits_are_not_finite_fails_the_seed(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of the last step was still a number, its update made the weights something else."""
    logits = Group.logits

    def lost(self, subset, state):
        found = logits(self, subset, state)
        if subset is self.data.test:
            found = found.clone()
            found[1, 3, 0] = torch.inf
        return found

    monkeypatch.setattr(Group, "logits", lost)
    run = one(config)
    assert run.failed == {1: "the logits of the test rows are not finite"}
    assert run.finished == (0, 2)
    assert np.isnan(run.logits[1]).all()


def test_a_non_finite_loss_fails_the_seed_and_is_kept_as_failed(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = build_decoder

    def poisoned(spec, seed):
        decoder = build(spec, seed)
        if seed == 1 and not decoder.head.fc.weight.is_meta:
            with torch.no_grad():
                decoder.head.fc.weight.fill_(torch.nan)
        return decoder

    monkeypatch.setattr("gaam_decoder.training.group.build_decoder", poisoned)
    run = one(config)
    assert run.failed == {1: "the loss became nan in epoch 1"}
    assert run.finished == (0, 2)
    assert len(run.accuracy) == 2
    assert np.isnan(run.logits[1]).all()


@pytest.mark.parametrize("share", [0.5, 0.0])
def test_some_layers_equal_a_decoder_on_a_slice_of_the_cache(
    share: float, config: TrainConfig
) -> None:
    run = one(replace(config, layers=(2, 3, 5, 6), memory_share=share))
    assert run.recipe["layers"] == "2-3,5-6"
    assert run.parameters["attention"] == 2 * 32  # one head of four layers
    cache = open_cache(config.cache)
    x = torch.from_numpy(cache["test"].embeddings[:][:, [1, 2, 4, 5]]).float()
    decoder = build_decoder(*specs(replace(config, layers=(1, 2, 3, 4))), seed=0)
    decoder.load_state_dict({name: value[1] for name, value in weights(run).items()})
    with torch.inference_mode():
        np.testing.assert_allclose(decoder(x).numpy(), run.logits[1], atol=1e-6)
        own_map = decoder.attention.attention_map(x).mean(0)
    np.testing.assert_allclose(own_map.numpy(), run.attention_map[1], atol=1e-6)


def test_layers_that_the_encoder_lacks_are_refused_before_training(config: TrainConfig) -> None:
    with pytest.raises(ConfigError, match=r"no such layer(.|\n)*1 to 6(.|\n)*7,9"):
        gaam_decoder.train(replace(config, layers=(2, 7, 9)))
    with pytest.raises(ConfigError, match="heads=3 does not fit"):
        gaam_decoder.train(replace(config, attn=("gaam:heads=3",), layers=(2, 3, 4)))
    assert not config.runs.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test_split": "dev"}, "no split 'dev'"),
        ({"pool": "last"}, "no pooling 'last'"),
    ],
)
def test_what_the_cache_lacks_is_named(options: dict, message: str, config: TrainConfig) -> None:
    with pytest.raises(ConfigError, match=message):
        gaam_decoder.train(replace(config, **options))


def test_a_session_that_would_change_the_numbers_is_refused(config: TrainConfig) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ConfigError, match="session"):
            gaam_decoder.train(config)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ConfigError, match="session"):
        gaam_decoder.train(config)
    with torch.device("meta"), pytest.raises(ConfigError, match="session"):
        gaam_decoder.train(config)
    assert len(gaam_decoder.train(config)) == 1
