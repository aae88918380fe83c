"""What was measured of an encoder is measured once, no further than its rows need, and decides
nothing alone."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

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

SIZES = {"vocab_size": 20, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
         "num_attention_heads": 4, "max_position_embeddings": 9000}  # fmt: skip


def kept() -> list[Path]:
    """Files of what was measured."""
    folder = platformdirs.user_cache_path("gaam", appauthor=False)
    return sorted(folder.rglob("*.json"))


def loaded(
    folder: Path, longest: int | None = None, **settings: Any
) -> tuple[TextEncoder, bool]:
    """An encoder, and whether it was measured."""
    encoder = TextEncoder.open(
        ExtractConfig(encoder=str(folder), device="cpu", **settings)
    )
    told: list[str] = []
    encoder.load_for(longest, tell=told.append)
    return encoder, bool(told)


DAMAGE = {
    "empty": lambda text: "",
    "cut": lambda text: text[: len(text) // 2],
    "no JSON": lambda text: "measured: padded",
    "another object": lambda text: "[]",
    "changed": lambda text: text.replace('"padded"', '"alone"'),
    "sealed nonsense": lambda text: resealed(text, batching="none at all"),
    "sealed, no such layers": lambda text: resealed(text, stack="layers.of.another"),
    "sealed, a number for a flag": lambda text: resealed(text, acts_causal=1),
    "sealed, no such name": lambda text: resealed(text, colour="red"),
    "of other conditions": lambda text: sealed_text(
        unsealed(json.loads(text)) | {"conditions": {"torch": "0.1"}}
    ),
}


def resealed(text: str, **changes: Any) -> str:
    content = unsealed(json.loads(text))
    return sealed_text(content | {"measured": content["measured"] | changes})


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_no_sound_result_is_measured_anew(
    damage: str, encoders: dict[str, Path]
) -> None:
    first, measured = loaded(encoders["llama"])
    assert measured
    assert first.acts_causal is True
    again, measured = loaded(encoders["llama"])
    assert not measured
    assert (again.batching, again.acts_causal) == (first.batching, True)
    [file] = kept()
    sound = file.read_text()
    file.write_text(DAMAGE[damage](sound))
    third, measured = loaded(encoders["llama"])
    assert measured
    assert third.batching == first.batching
    assert file.read_text() == sound


def test_another_condition_is_measured_anew(
    encoders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    llama = encoders["llama"]
    assert loaded(llama)[1]
    for settings in ({"dtype": "bfloat16"}, {"pool": ("max",)}, {"layer_zero": True}):
        assert loaded(llama, **settings)[1], settings
    for file in kept():
        conditions = unsealed(json.loads(file.read_text()))["conditions"]
        assert conditions["gaam"] == gaam_cache.__version__
        for library in ("torch", "transformers"):
            assert conditions[library] == version(library)
    assert loaded(build_encoder(tmp_path / "other", "llama", seed=1))[1]
    assert not loaded(llama)[1]
    assert len(kept()) == 5
    # a folder that cannot be made costs time, and nothing else
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for _ in range(2):
        assert loaded(llama)[1]


def test_several_may_keep_the_same_at_once(encoders: dict[str, Path]) -> None:
    config = ExtractConfig(encoder=str(encoders["bert"]), device="cpu")
    several = [TextEncoder.open(config) for _ in range(4)]
    for encoder in several:
        encoder.load_for(batching="alone")
        assert (encoder.batching, encoder.acts_causal) == ("alone", None)
    assert not kept()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda encoder: encoder.load_for(), several))
    assert {encoder.batching for encoder in several} == {"padded"}
    assert len(kept()) == 1
    assert not loaded(encoders["bert"])[1]
    assert [file.name for file in kept()[0].parent.iterdir()] == [kept()[0].name]


def test_a_kept_lie_makes_no_cache(tiny_config: ExtractConfig) -> None:
    gaam_cache.extract(replace(tiny_config, out=tiny_config.out / "true"))
    [file] = kept()
    file.write_text(resealed(file.read_text(), mask="never"))
    with pytest.raises(NumericsError, match="another state in its batch"):
        gaam_cache.extract(tiny_config)
    assert not list(tiny_config.out.glob("shards/*.json"))


def test_rows_are_tried_no_longer_than_the_data_and_a_longer_one_is_encoded_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = transformers.LlamaConfig(**SIZES)
    folder = architectures.save(architectures.draw(config), tmp_path / "encoder")
    texts = ["goal bank", "vote " * 30, "army " * 70]
    data = write_csv(
        tmp_path / "data" / "train.csv", [("ab"[i % 2], t) for i, t in enumerate(texts)]
    )
    longest: list[int] = []
    real = _TextForward.batch

    def batch(self: Any, items: Any) -> Any:
        longest.append(max(map(len, items)))
        return real(self, items)

    monkeypatch.setattr(_TextForward, "batch", batch)
    job = ExtractConfig(
        encoder=str(folder), dataset=str(data.parent), out=tmp_path / "cache", splits=("train",),
        max_length=8192, dtype="float32", storage_dtype="float32",
    )  # fmt: skip
    gaam_cache.extract(job)
    assert max(longest) == 96
    encoder, _ = loaded(folder, 20, max_length=8192, dtype="float32")
    rows = [[5, 6, 7], [8] * 100]
    together = encoder.encode(rows)["mean"]
    for row, ids in enumerate(rows):
        assert torch.equal(together[row], encoder.encode_alone(ids)["mean"][0])


def test_a_row_that_the_memory_is_too_small_for_is_refused_before_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = transformers.LlamaConfig(**SIZES)
    folder = architectures.save(architectures.draw(config), tmp_path / "encoder")
    monkeypatch.setattr(devices, "free_memory", lambda: -1)
    for longest in (None, 3000):
        with pytest.raises(ShortOfMemoryError) as caught:
            loaded(folder, longest, max_length=8192)
        assert "2,048 tokens" in caught.value.details["expected"]
        assert "--max-length 2048" in caught.value.details["to do"]
    encoder, _ = loaded(folder, 500, max_length=8192)
    assert encoder.batching == "padded"
    encoder = TextEncoder.open(
        ExtractConfig(encoder=str(folder), device="cpu", max_length=8192)
    )
    encoder.load_for(batching="alone")
    with pytest.raises(ShortOfMemoryError):
        encoder.load_for(3000, batching="alone")


def test_a_few_rows_of_a_plan_are_encoded_without_measuring(
    tiny_config: ExtractConfig,
) -> None:
    gaam_cache.extract(tiny_config)
    cache = gaam_cache.open_cache(tiny_config.out)
    [file] = kept()
    file.unlink()
    rows = [" ".join(WORDS[:n]) for n in range(1, 10)]
    encoder = RowEncoder.open(cache.plan, device="cpu")
    few = encoder.encode(rows[:8], pooling="mean")
    assert not kept()
    many = encoder.encode(rows, pooling="mean")
    assert len(kept()) == 1
    assert (encoder.encode(rows[:8], pooling="mean") == few).all()
    np.testing.assert_allclose(many[:8], few, rtol=2e-3, atol=1e-3)
