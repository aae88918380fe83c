"""Every architecture that transformers maps to a feature extractor of sounds, tiny and random.

    python -m tests.cache.encoders.audio.architectures [--list FILE.json] [NAME ...]

Each is built from a configuration that was shrunk by the names of its fields, saved with its
feature extractor, and read as a user would; pooled states in batches are compared with
``hidden_states[1:]`` of transformers itself, one sound at a time.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.audio import AudioEncoder
from gaam_cache.errors import GaamError
from gaam_cache.extraction.batching import token_budget_batches
from tests.cache.encoders.architectures import (
    POOLS,
    RECIPES,
    RIGHT,
    NotBuildable,
    draw,
    in_a_process,
    shrink,
    table,
)
from tests.cache.encoders.audio import sounds
from tests.cache.encoders.walking import main

SECONDS = 1.5
REAL = {"wav2vec2-bert": "SeamlessM4TFeatureExtractor"}
"""Where published models come with another feature extractor than transformers maps."""

SIZES = {
    "speech_to_text": {
        "d_model": 32, "encoder_layers": 3, "decoder_layers": 1, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
        "vocab_size": 64, "conv_channels": 16,
    },
    "moonshine": {
        "hidden_size": 32, "intermediate_size": 48, "encoder_num_hidden_layers": 3,
        "decoder_num_hidden_layers": 1, "encoder_num_attention_heads": 4,
        "decoder_num_attention_heads": 4, "vocab_size": 64,
    },
}  # fmt: skip
"""Of those that cannot be shrunk field by field."""


def names() -> list[str]:
    """All whose configuration has a feature extractor and a model."""
    found = []
    for name in transformers.CONFIG_MAPPING:
        with contextlib.suppress(ImportError, ValueError, AttributeError, KeyError):
            config = transformers.CONFIG_MAPPING[name]
            if config in FEATURE_EXTRACTOR_MAPPING and config in transformers.MODEL_MAPPING:
                found.append(name)
    return found


def extractor_of(name: str, config: Any) -> Any:
    cls = FEATURE_EXTRACTOR_MAPPING[type(config)]
    if name in REAL:
        cls = getattr(transformers, REAL[name])
    options: dict[str, Any] = {}
    for key in ("num_mel_bins", "input_feat_per_channel"):
        for part in (config, getattr(config, "audio_config", None), config.get_text_config()):
            if type(size := getattr(part, key, None)) is int:
                options |= {"feature_size": size, "num_mel_bins": size}
    if name == "wav2vec2-bert":
        options = {"feature_size": 8, "num_mel_bins": 8}
    for given in (options, {}):
        with contextlib.suppress(Exception):
            return cls(**given)
    raise NotBuildable(f"no {cls}")


def build(name: str, folder: Path) -> bool:
    """Save one and its feature extractor; whether transformers itself runs the two together."""
    problems = []
    for recipe in (*RECIPES, None):
        try:
            config = configured(name, recipe)
            model = draw(config)
            extractor = extractor_of(name, model.config)
        except Exception as error:  # noqa: BLE001 what a foreign class does not like
            problems.append(f"{type(error).__name__}: {error!s:.160}")
            continue
        model.save_pretrained(folder)
        extractor.save_pretrained(folder)
        try:
            made = extractor(sounds.sounds()[2].wave, sampling_rate=extractor.sampling_rate,
                             return_tensors="pt")  # fmt: skip
            with torch.no_grad():
                sounds.encoder_of(model)(**made, output_hidden_states=True)
        except Exception:  # noqa: BLE001 the next recipe may do
            continue
        return True
    if not (folder / "preprocessor_config.json").exists():
        raise NotBuildable(problems[0])
    return False


def configured(name: str, recipe: dict[str, int] | None) -> Any:
    cls = transformers.CONFIG_MAPPING[name]
    if name in sounds.CONFIGS:
        return sounds.CONFIGS[name]()
    if recipe is None:
        return cls(**SIZES.get(name, {}))
    config = shrink(cls, recipe)
    if name == "wav2vec2-bert":
        config.feature_projection_input_dim = 16
    return config


def reference(folder: Path, rows: list[sounds.Tone]) -> dict[str, list[np.ndarray]]:
    """As ``sounds.reference``, with the mask that the extractor gives, whatever the model."""
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    model = sounds.encoder_of(transformers.AutoModel.from_pretrained(folder).eval())
    pooled: dict[str, list[np.ndarray]] = {pool: [] for pool in POOLS}
    for row in rows:
        wave = row.wave[: int(SECONDS * row.rate)]
        made = extractor(
            wave, sampling_rate=row.rate, return_tensors="pt", return_attention_mask=True
        )
        features = next(value for key, value in made.items() if key != "attention_mask")
        mask = made.get("attention_mask")
        half = extractor(wave[: len(wave) // 2], sampling_rate=row.rate, return_tensors="pt")
        same = next(iter(half.values())).shape == next(iter(made.values())).shape
        if same:
            made.pop("attention_mask", None)
        with torch.no_grad():
            output = model(**made, output_hidden_states=True)
        states = torch.stack([x[0] for x in output.hidden_states[1:]]).double()
        real = states.shape[1]
        if same:
            real = -(-int(mask.sum()) * real // mask.shape[1])
        elif mask is not None and mask.shape[1] != int(mask.sum()):
            shorter = features[:, : int(mask.sum())]
            with torch.no_grad():
                alone = model(shorter, output_hidden_states=True)
            real = alone.hidden_states[-1].shape[1]
        states = states[:, :real]
        pooled["mean"].append(states.mean(1).numpy())
        pooled["last"].append(states[:, -1].numpy())
        pooled["first"].append(states[:, 0].numpy())
        pooled["max"].append(states.amax(1).numpy())
    return pooled


def judge(name: str, root: Path) -> dict[str, Any]:
    """What becomes of one architecture: {"verdict", "about"}."""
    torch.set_num_threads(1)
    folder = root / "encoder"
    seen: dict[str, Any] = {}
    try:
        seen["runs"] = build(name, folder)
    except Exception as error:  # noqa: BLE001
        return {"verdict": "not buildable", "about": f"{type(error).__name__}: {error!s:.300}"}
    try:
        config = ExtractConfig(encoder=str(folder), pool=POOLS, clip_seconds=SECONDS)
        encoder = AudioEncoder.open(config)
        encoder.load()
        rate = encoder._hearing.rate
        rows = [sounds.Tone(tone.wave, rate) for tone in sounds.sounds()]
        inputs = encoder.prepare(rows)
        heard = [row for row, length in zip(rows, inputs.lengths, strict=True) if length]
        inputs = encoder.prepare(heard)
        seen["how"] = "layers" if encoder._forward.stack is not None else "hidden states"
        seen |= {"batching": encoder.batching, "mask": encoder._forward.mask, "rows": len(heard)}
        states = {pool: [np.zeros(0)] * len(heard) for pool in POOLS}
        batches = token_budget_batches(inputs.sizes, 2000, encoder.batching, inputs.extents)
        for batch in batches:
            for pool, x_BLD in encoder.encode(inputs.batch(batch)).items():
                for place, row in enumerate(batch):
                    states[pool][row] = x_BLD[place].numpy()
        encoder.outline()
    except GaamError as error:
        return {
            "verdict": "refused",
            "about": "; ".join([error.message, *error.details.values()]),
            **seen,
        }
    except Exception:  # noqa: BLE001 what must not happen is counted
        return {"verdict": "crashed", "about": traceback.format_exc()[-1500:], **seen}
    try:
        expected = reference(folder, heard)
        worst = max(
            sounds.deviation(a, b)
            for pool in POOLS
            for a, b in zip(states[pool], expected[pool], strict=True)
        )
    except Exception:  # noqa: BLE001
        return {
            "verdict": "wrong",
            "about": f"no reference: {traceback.format_exc()[-600:]}",
            **seen,
        }
    return {"verdict": "right" if worst <= RIGHT else "wrong", "about": f"{worst:.1e}", **seen}


def walk(chosen: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    transformers.logging.set_verbosity_error()
    for name in chosen:
        yield name, in_a_process(name, judge)


if __name__ == "__main__":
    main(names, walk, table)
