"""States are stored to 1%, or refused: no type makes zeros, or infinities, of a layer in silence.

The reference of an extraction is ``transformers``, one text at a time; of an import what was given.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import gaam_cache
from tests.contract.conftest import Outcome
from tests.tiny import random_rows, write_csv

SIZES = (1e-9, 1e-7, 1e-6, 1e-4, 1.0, 7e4)
TYPES = ("float16", "bfloat16", "float32")
HELD = {(size, stored) for size in SIZES for stored in TYPES} - {
    (size, "float16") for size in SIZES if size not in (1e-4, 1.0)
}
LABELS = np.arange(40) % 2


def check_states(found: Any, exact_NLD: np.ndarray) -> None:
    """At most one number in a hundred, of each layer, is off by more than 1%."""
    off_NLD = np.abs(np.asarray(found, np.float64) - exact_NLD) > 0.01 * np.abs(exact_NLD)
    assert off_NLD.mean(axis=(0, 2)).max() <= 0.01


def check(outcome: Outcome, out: Path, exact_NLD: np.ndarray, *, held: bool) -> None:
    assert outcome.code == (0 if held else 1), outcome.err
    if held:
        check_states(gaam_cache.open_cache(out)["train"].embeddings[:], exact_NLD)
    else:
        assert all(text in outcome.err for text in ("layer 2", "row ", "--storage-dtype"))
        assert not list(out.glob("shards/*"))


def drawn(size: float) -> np.ndarray:
    """(40, 3, 16): the second layer has numbers of half to all of a size, and zeros."""
    rng = np.random.default_rng(0)
    x_NLD = rng.normal(size=(40, 3, 16))
    x_NLD[:, 1] = size * rng.uniform(0.5, 1, size=(40, 16)) * rng.choice([-1, 0, 1], (40, 16))
    return x_NLD


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("stored", TYPES)
def test_imported_and_written(
    stored: Any, size: float, gaam: Callable[..., Outcome], tmp_path: Path
) -> None:
    exact_NLD = drawn(size)
    for given in ("float32", "float64"):
        file, out = tmp_path / f"{given}.npz", tmp_path / given
        np.savez(file, train_states=exact_NLD.astype(given), train_labels=LABELS)
        outcome = gaam("import", file, "--out", out, "--storage-dtype", stored)
        check(outcome, out, exact_NLD, held=(size, stored) in HELD)
    layers = [np.ascontiguousarray(exact_NLD[:, layer]) for layer in range(3)]
    for name, states in {"tensor": torch.tensor(exact_NLD), "layers": layers}.items():
        splits = {"train": (drawn(1.0), LABELS), "test": (states, LABELS)}
        out = tmp_path / name
        if (size, stored) in HELD:
            gaam_cache.write(out, splits, storage_dtype=stored)
            check_states(gaam_cache.open_cache(out)["test"].embeddings[:], exact_NLD)
        else:
            with pytest.raises(gaam_cache.GaamError):
                gaam_cache.write(out, splits, storage_dtype=stored)


@pytest.mark.parametrize("stored", TYPES)
def test_one_number_in_a_hundred(stored: Any, tmp_path: Path) -> None:
    tiny = {"float16": 1e-9, "bfloat16": 1e-42, "float32": 1e-60}[stored]
    states = np.ones((80, 2, 20))
    states[50:, 1] = 0  # 1,000 of this layer are not
    for lost in (10, 11):
        states[:lost, 1, 3] = tiny
        splits = {"train": (np.ones((80, 2, 20)), np.arange(80) % 2), "test": (states, None)}
        if lost == 10:
            gaam_cache.write(tmp_path / "10", splits, storage_dtype=stored)
        else:
            with pytest.raises(gaam_cache.GaamError):
                gaam_cache.write(tmp_path / "11", splits, storage_dtype=stored)


@pytest.mark.parametrize("size", SIZES)
def test_extracted(
    size: float, encoder: Path, gaam: Callable[..., Outcome], tmp_path: Path
) -> None:
    rows = [("a", "goal"), ("b", "bank"), *random_rows(22, 1)]
    write_csv(tmp_path / "few/train.csv", rows)
    folder = Path(shutil.copytree(encoder, tmp_path / "encoder"))
    tensors, norm = (
        load_file(file := folder / "model.safetensors"),
        "encoder.layer.1.output.LayerNorm",
    )
    sign_D = torch.tensor([1.0, -1.0]).repeat(16)
    tensors[f"{norm}.weight"] = torch.full((32,), 0.02 * size)
    tensors[f"{norm}.bias"] = size * torch.linspace(0.5, 1, 32) * sign_D
    save_file(tensors, file, {"format": "pt"})
    model = transformers.AutoModel.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    exact = []
    for _, text in rows:
        tokens = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            layers = model(**tokens, output_hidden_states=True).hidden_states[1:]
        exact.append(torch.stack([x_BTD[0].double().mean(0) for x_BTD in layers]).numpy())
    for stored in TYPES:
        out = tmp_path / stored
        outcome = gaam("extract", "--encoder", folder, "--dataset", tmp_path / "few",
                       "--split", "train", "--storage-dtype", stored, "--out", out)  # fmt: skip
        check(outcome, out, np.stack(exact), held=(size, stored) in HELD)
