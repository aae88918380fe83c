"""Random weights as a control: the states of the architecture's own initialisation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import gaam_cache
from gaam_cache import settings
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.errors import CacheError, ConfigError
from gaam_cache.extraction.recorded import extract_command, recorded_config
from tests.cache.encoders.test_states import TEXTS, config_for, reference
from tests.cache.hub.test_hub_protocol import MODEL, Command, World, check_failed, extract, world
from tests.cache.store.forgery import edit_plan
from tests.conftest import ARCHITECTURES, Outcome, shard_bytes

__all__ = ["extract", "world"]  # fixtures


def untrained(config: ExtractConfig, seed: int | None = None) -> ExtractConfig:
    return replace(config, untrained_encoder=True, encoder_seed=seed)


def saved_reference(encoder: Path, seed: int, folder: Path) -> Path:
    """A model of transformers' own, built from the configuration under a seed, with tokenizer."""
    shutil.copytree(encoder, folder)
    (folder / "model.safetensors").unlink()
    config = transformers.AutoConfig.from_pretrained(encoder)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.AutoModel.from_config(config)
    model.save_pretrained(folder, safe_serialization=True)
    return folder


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("seed", [None, 7])
def test_states_equal_a_model_built_from_the_configuration(
    architecture: str, seed: int | None, encoders: dict[str, Path], tmp_path: Path
) -> None:
    config = untrained(config_for(encoders[architecture], tmp_path), seed)
    summary = gaam_cache.extract(config)
    assert summary.padding_share > 0
    folder = saved_reference(encoders[architecture], seed or 0, tmp_path / "reference")
    states = gaam_cache.open_cache(config.out)["train"].embeddings[:]
    np.testing.assert_allclose(states, reference(folder, TEXTS, 60), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_probe_tells_causal_models_without_training(
    architecture: str, dtype: str, encoders: dict[str, Path], tmp_path: Path
) -> None:
    config = untrained(config_for(encoders[architecture], tmp_path))
    encoder = TextEncoder.open(replace(config, dtype=dtype))
    encoder.load()
    assert (encoder._forward.mask == "never") is (architecture != "bert")


def test_every_arithmetic_gets_the_same_network(encoders: dict[str, Path], tmp_path: Path) -> None:
    config = untrained(config_for(encoders["gpt2"], tmp_path))
    folder = saved_reference(encoders["gpt2"], 0, tmp_path / "reference")
    gaam_cache.extract(replace(config, dtype="bfloat16"))
    states = gaam_cache.open_cache(config.out)["train"].embeddings[:]
    exact = reference(folder, TEXTS, 60)
    assert 0 < np.linalg.norm(states - exact) / np.linalg.norm(exact) < 3e-2


def test_two_extractions_give_equal_bytes_whatever_was_drawn_before(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    first, second = (replace(untrained(tiny_config), out=tmp_path / name) for name in "ab")
    torch.manual_seed(1)
    gaam_cache.extract(first)
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    gaam_cache.extract(second)
    assert torch.equal(state, torch.random.get_rng_state())
    assert shard_bytes(first.out) == shard_bytes(second.out)


def test_a_resumed_extraction_ends_with_the_same_bytes(tiny_config: ExtractConfig) -> None:
    config = untrained(tiny_config)
    gaam_cache.extract(config)
    whole = shard_bytes(config.out)
    for file in (config.out / "shards").glob("train-0000[135]*"):
        file.unlink()
    assert gaam_cache.extract(config).shards_made == 3
    assert shard_bytes(config.out) == whole


def test_trained_and_untrained_caches_are_never_mixed(tiny_config: ExtractConfig) -> None:
    gaam_cache.extract(untrained(tiny_config))
    with pytest.raises(ConfigError, match=r"holds another cache(.|\n)*encoder\.untrained\.seed"):
        gaam_cache.extract(tiny_config)
    with pytest.raises(ConfigError, match=r"encoder\.untrained\.seed +now 1, in the folder 0"):
        gaam_cache.extract(untrained(tiny_config, 1))


def test_the_plan_says_so_and_the_numbers_can_be_recomputed(tiny_config: ExtractConfig) -> None:
    config = untrained(tiny_config, 5)
    gaam_cache.extract(config)
    plan = gaam_cache.open_cache(config.out).plan
    assert plan.untrained_seed == 5
    identity = plan.fingerprint_fields["encoder"]
    assert identity["untrained"]["seed"] == 5
    assert "model.safetensors" not in identity["files"]
    assert "config.json" in identity["files"]
    again = recorded_config(plan, config.out)
    assert (again.untrained_encoder, again.encoder_seed) == (True, 5)
    assert "--untrained-encoder --set encoder-seed=5" in extract_command(again)
    result = gaam_cache.verify(config.out, recompute_rows=6)
    assert result.good
    assert result.recomputed is not None
    assert max(result.recomputed.deviation) < result.recomputed.limit


def test_another_version_of_the_libraries_is_told(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaam_cache.extract(untrained(tiny_config))
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    with pytest.raises(CacheError, match=r"no longer what(.|\n)*encoder\.untrained\.torch"):
        gaam_cache.verify(tiny_config.out, recompute_rows=2)


def test_no_weights_need_be_there(
    tiny_config: ExtractConfig, encoders: dict[str, Path], tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(encoders["bert"], bare)
    (bare / "model.safetensors").unlink()
    config = replace(tiny_config, encoder=str(bare))
    with pytest.raises(ConfigError, match="no safetensors"):
        gaam_cache.extract(config)
    summary = gaam_cache.extract(untrained(config))
    there = gaam_cache.extract(untrained(replace(tiny_config, out=tmp_path / "with")))
    assert summary.fingerprint == there.fingerprint


@pytest.mark.slow
def test_no_weights_are_fetched_from_the_hub(
    extract: Command,  # noqa: F811
    world: World,  # noqa: F811
) -> None:
    options = ["--untrained-encoder"]
    assert extract(*options, encoder=MODEL).code == 0
    asked = world.hub.asked(MODEL)
    assert {"config.json", "tokenizer.json"} <= asked
    assert not [name for name in asked if name.endswith(".safetensors")]
    assert "model.safetensors" not in extract.plan()["fingerprint_fields"]["encoder"]["files"]
    offline = {"encoder": MODEL, "home": "home", "env": {"HF_HUB_OFFLINE": "1"}}
    again, trained = extract.all({"more": options, **offline}, offline)
    assert again.code == 0, again.err
    assert extract.plan("c0")["fingerprint"] == extract.plan()["fingerprint"]
    check_failed(trained, 1, "no local copy")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_seed": 3}, "--untrained-encoder beside it"),
        ({"untrained_encoder": True, "encoder_seed": -1}, ">= 0"),
        ({"untrained_encoder": True, "device_map": "auto"}, "device-map"),
    ],
)
def test_settings_that_mean_nothing_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ExtractConfig(**options)


def test_a_plan_with_a_bad_seed_is_refused(tiny_config: ExtractConfig) -> None:
    gaam_cache.extract(untrained(tiny_config))
    for bad in ("0", 1.5, True, None, {}):

        def edit(plan: dict, bad: object = bad) -> None:
            plan["fingerprint_fields"]["encoder"]["untrained"]["seed"] = bad

        edit_plan(tiny_config.out, edit)
        with pytest.raises(CacheError, match="whole number"):
            gaam_cache.open_cache(tiny_config.out)
    edit_plan(
        tiny_config.out, lambda plan: plan["fingerprint_fields"]["encoder"].update(untrained=5)
    )
    with pytest.raises(CacheError, match="unusable"):
        gaam_cache.open_cache(tiny_config.out)


def test_every_command_says_untrained(
    gaam: Callable[..., Outcome], tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    arguments = ["extract", "--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset]
    arguments += ["--out", tiny_config.out, "--untrained-encoder", "--set", "encoder-seed=3"]
    label = f"{tiny_config.encoder}, untrained (seed 3)"
    assert label in gaam(*arguments, "--dry-run").out
    assert label in gaam(*arguments).out
    assert label in gaam("inspect", tiny_config.out).out
    assert json.loads(gaam("inspect", tiny_config.out, "--json").out)["untrained_seed"] == 3
    runs = tmp_path / "runs"
    options = ["--cache", tiny_config.out, "--runs", runs, "--seeds", 2, "--epochs", 1]
    assert gaam("train", "--attn", "none", *options).code == 0
    assert label in gaam("inspect", runs).out
    for name in ("terminal", "csv", "json"):
        assert label in gaam("report", runs, "--format", name).out


def test_a_file_can_ask_for_it(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[extract]\nuntrained-encoder = true\nencoder-seed = 4\n")
    config = settings.resolve(ExtractConfig, "extract", {}, config_file=file)
    assert (config.untrained_encoder, config.encoder_seed) == (True, 4)
    for bad in ("'perhaps'", "1", "[true]"):
        file.write_text(f"[extract]\nuntrained-encoder = {bad}\n")
        with pytest.raises(ConfigError, match=r"untrained-encoder(.|\n)*true or false"):
            settings.resolve(ExtractConfig, "extract", {}, config_file=file)
