"""An encoder is measured once, and no further than its rows need.

What was kept of a measurement decides nothing alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import platformdirs
import pytest
import torch
import transformers

import gaam_cache
from gaam_cache.common import devices
from gaam_cache.common.errors import NumericsError, ShortOfMemoryError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder, _TextForward
from gaam_cache.extraction.rows import RowEncoder
from gaam_cache.store.files import sealed_text, unsealed
from tests.benchmarks import architectures
from tests.tiny import WORDS, build_encoder, write_csv

SIZES: dict[str, Any] = {
    "vocab_size": 20,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 9000,
}


def kept_files() -> list[Path]:
    """Files of measurements."""
    folder = platformdirs.user_cache_path("gaam", appauthor=False)
    return sorted(folder.rglob("*.json"))


def open_encoder(folder: Path, **settings: Any) -> TextEncoder:
    config = ExtractConfig(encoder=str(folder), device="cpu", **settings)
    return TextEncoder.open(config)


def load(
    folder: Path, longest: int | None = None, **settings: Any
) -> tuple[TextEncoder, bool]:
    """An encoder, and whether it was measured."""
    encoder = open_encoder(folder, **settings)
    messages: list[str] = []
    encoder.load_for(longest, tell=messages.append)
    return encoder, bool(messages)


def is_measured(folder: Path, **settings: Any) -> bool:
    """Whether an encoder is measured when it is loaded."""
    _, measured = load(folder, **settings)
    return measured


def reseal(text: str, **changes: Any) -> str:
    content = unsealed(json.loads(text))
    return sealed_text(content | {"measured": content["measured"] | changes})


def empty(text: str) -> str:
    return ""


def cut(text: str) -> str:
    return text[: len(text) // 2]


def no_json(text: str) -> str:
    return "measured: padded"


def another_object(text: str) -> str:
    return "[]"


def changed(text: str) -> str:
    return text.replace('"padded"', '"alone"')


def sealed_nonsense(text: str) -> str:
    return reseal(text, batching="none at all")


def sealed_without_such_layers(text: str) -> str:
    return reseal(text, stack="layers.of.another")


def sealed_without_such_a_name(text: str) -> str:
    return reseal(text, colour="red")


def sealed_with_a_number_for_a_flag(text: str) -> str:
    return reseal(text, acts_causal=1)


def of_other_conditions(text: str) -> str:
    content = unsealed(json.loads(text))
    return sealed_text(content | {"conditions": {"torch": "0.1"}})


DAMAGES = [
    empty,
    cut,
    no_json,
    another_object,
    changed,
    sealed_nonsense,
    sealed_without_such_layers,
    sealed_without_such_a_name,
    sealed_with_a_number_for_a_flag,
    of_other_conditions,
]
"""What becomes of the text of a kept file."""


class Measurement(NamedTuple):
    """A kept file below the user's folder, and the batching that it says."""

    file: Path
    text: str
    batching: str | None


@pytest.fixture(scope="module")
def measurement(
    encoders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Measurement:
    """The result of measuring an encoder, which was used once."""
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        first, measured = load(encoders["llama"])
        assert measured
        assert first.acts_causal is True
        second, measured = load(encoders["llama"])
        assert not measured
        assert (second.batching, second.acts_causal) == (first.batching, True)
        [file] = kept_files()
    return Measurement(file.relative_to(folder), file.read_text(), first.batching)


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_no_sound_result_is_measured_anew(
    damage: Callable[[str], str], measurement: Measurement, encoders: dict[str, Path]
) -> None:
    file = Path(os.environ["XDG_CACHE_HOME"]) / measurement.file
    file.parent.mkdir(parents=True)
    file.write_text(damage(measurement.text))
    encoder, measured = load(encoders["llama"])
    assert measured
    assert encoder.batching == measurement.batching
    assert file.read_text() == measurement.text


@pytest.mark.parametrize(
    "settings",
    [{"dtype": "bfloat16"}, {"pool": ("max",)}, {"layer_zero": True}],
    ids=["dtype", "pool", "layer_zero"],
)
def test_another_setting_is_measured_anew(
    settings: dict[str, Any], encoders: dict[str, Path]
) -> None:
    assert is_measured(encoders["llama"])
    assert is_measured(encoders["llama"], **settings)
    assert not is_measured(encoders["llama"])
    assert len(kept_files()) == 2


def test_another_encoder_is_measured_anew(
    encoders: dict[str, Path], tmp_path: Path
) -> None:
    assert is_measured(encoders["llama"])
    assert is_measured(build_encoder(tmp_path / "other", "llama", seed=1))
    assert not is_measured(encoders["llama"])
    assert len(kept_files()) == 2


def test_a_measurement_is_kept_with_the_versions_of_libraries(
    encoders: dict[str, Path],
) -> None:
    load(encoders["llama"])
    [file] = kept_files()
    conditions = unsealed(json.loads(file.read_text()))["conditions"]
    assert conditions["gaam"] == gaam_cache.__version__
    for library in ("torch", "transformers"):
        assert conditions[library] == version(library)


def test_a_folder_that_cannot_be_made_costs_time_and_nothing_else(
    encoders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert is_measured(encoders["llama"])
    assert is_measured(encoders["llama"])


def test_several_may_keep_the_same_at_once(encoders: dict[str, Path]) -> None:
    equal_encoders = [open_encoder(encoders["bert"]) for _ in range(4)]
    for encoder in equal_encoders:
        encoder.load_for(encodes_alone=True)
        assert (encoder.batching, encoder.acts_causal) == ("alone", None)
    assert not kept_files()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(TextEncoder.load_for, equal_encoders))
    assert {encoder.batching for encoder in equal_encoders} == {"padded"}
    assert len(kept_files()) == 1
    assert not is_measured(encoders["bert"])
    [file] = kept_files()
    assert list(file.parent.iterdir()) == [file]


def test_a_kept_lie_makes_no_cache(tiny_config: ExtractConfig) -> None:
    gaam_cache.extract(replace(tiny_config, out=tiny_config.out / "true"))
    [file] = kept_files()
    file.write_text(reseal(file.read_text(), mask="never"))
    with pytest.raises(NumericsError, match="another state in its batch"):
        gaam_cache.extract(tiny_config)
    assert not list(tiny_config.out.glob("shards/*.json"))


def save_llama(folder: Path) -> Path:
    """Save an encoder that reads up to 9,000 tokens."""
    config = transformers.LlamaConfig(**SIZES)
    return architectures.save(architectures.draw(config), folder)


def test_rows_are_tried_no_longer_than_the_data_and_a_longer_one_is_encoded_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_llama(tmp_path / "encoder")
    rows = [("a", "goal bank"), ("b", "vote " * 30), ("a", "army " * 70)]
    write_csv(tmp_path / "data" / "train.csv", rows)
    longest: list[int] = []
    forward = _TextForward.batch

    def batch(self: Any, items: Any) -> Any:
        longest.append(max(map(len, items)))
        return forward(self, items)

    monkeypatch.setattr(_TextForward, "batch", batch)
    config = ExtractConfig(
        encoder=str(folder),
        dataset=str(tmp_path / "data"),
        out=tmp_path / "cache",
        splits=("train",),
        max_length=8192,
        dtype="float32",
        storage_dtype="float32",
    )
    gaam_cache.extract(config)
    assert max(longest) == 96
    encoder, _ = load(folder, 20, max_length=8192, dtype="float32")
    items = [[5, 6, 7], [8] * 100]
    states = encoder.encode(items)["mean"]
    for place, item in enumerate(items):
        assert torch.equal(states[place], encoder.encode_alone(item)["mean"][0])


@pytest.mark.parametrize("longest", [None, 3000])
def test_a_row_that_the_memory_is_too_small_for_is_refused_before_it_is_run(
    longest: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_llama(tmp_path / "encoder")
    monkeypatch.setattr(devices, "free_memory", lambda: -1)
    with pytest.raises(ShortOfMemoryError) as caught:
        load(folder, longest, max_length=8192)
    assert "2,048 tokens" in caught.value.details["expected"]
    assert "--max-length 2048" in caught.value.details["to do"]


def test_a_short_row_needs_no_memory_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_llama(tmp_path / "encoder")
    monkeypatch.setattr(devices, "free_memory", lambda: -1)
    encoder, _ = load(folder, 500, max_length=8192)
    assert encoder.batching == "padded"
    encoder = open_encoder(folder, max_length=8192)
    encoder.load_for(encodes_alone=True)
    with pytest.raises(ShortOfMemoryError):
        encoder.load_for(3000, encodes_alone=True)


def test_a_few_rows_of_a_plan_are_encoded_without_measuring(
    tiny_config: ExtractConfig,
) -> None:
    gaam_cache.extract(tiny_config)
    cache = gaam_cache.open_cache(tiny_config.out)
    [file] = kept_files()
    file.unlink()
    rows = [" ".join(WORDS[:n]) for n in range(1, 10)]
    encoder = RowEncoder.open(cache.plan, device="cpu")
    few = encoder.encode(rows[:8], pooling="mean")
    assert not kept_files()
    many = encoder.encode(rows, pooling="mean")
    assert len(kept_files()) == 1
    assert (encoder.encode(rows[:8], pooling="mean") == few).all()
    np.testing.assert_allclose(many[:8], few, rtol=2e-3, atol=1e-3)
