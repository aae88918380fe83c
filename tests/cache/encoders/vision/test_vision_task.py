"""Pictures on disk -> cache -> decoders -> report, by the commands that people use."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import transformers
from PIL import Image

import gaam_cache
from tests.cache.encoders.vision.models import FAMILIES
from tests.cache.encoders.vision.pictures import FIGURES, Drawn, figures, noise
from tests.cache.encoders.vision.test_vision_states import reference
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]


def write_figures(folder: Path, rows: dict[str, int]) -> Path:
    """As PNG and JPEG, one in three of other shapes."""
    for seed, (split, count) in enumerate(rows.items()):
        for number, (array, label) in enumerate(zip(*figures(count, seed), strict=True)):
            (folder / split / label).mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(array)
            if number % 3 == 0:
                image = image.resize((90, 70))
            if number % 2:
                image.save(folder / split / label / f"{number}.jpg", quality=95)
            else:
                image.save(folder / split / label / f"{number}.png")
    return folder


def untrained(folder: Path) -> Path:
    """The configuration of an encoder that tells shapes apart without any training."""
    config = transformers.ViTConfig(
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=256,
        image_size=64,
        patch_size=8,
        initializer_range=0.1,
    )
    config.save_pretrained(folder)
    size = {"height": 64, "width": 64}
    transformers.ViTImageProcessorPil(size=size).save_pretrained(folder)
    return folder


def test_figures_are_told_apart_on_the_states_of_an_untrained_encoder(
    tmp_path: Path, gaam: Gaam
) -> None:
    # 0.58 and 0.57 on one machine; 4,000 rows to learn from give more
    data = write_figures(tmp_path / "data", {"train": 480, "test": 200})
    encoder = untrained(tmp_path / "encoder")
    where = ["--encoder", encoder, "--untrained-encoder", "--dataset", data]
    cache, runs = tmp_path / "cache", tmp_path / "runs"
    dry = json.loads(gaam("extract", *where, "--dry-run", "--json").out)
    assert (dry["rows"], dry["tokens"]) == ({"train": 480, "test": 200}, 680 * 64)
    assert not cache.exists()
    outcome = gaam("extract", *where, "--out", cache, "--device", "cpu")
    assert outcome.code == 0, outcome.err
    about = gaam("inspect", cache).out
    assert "mean pooled over patches, not class token" in about
    assert "at most 64 tokens a row" in about
    assert gaam("verify", cache, "--recompute", "5").code == 0
    trained = gaam("train", "--cache", cache, "--runs", runs, "--attn", "none", "--seeds", "0-1",
                   "--epochs", "30", "--lr", "3e-3", "--probe")  # fmt: skip
    assert trained.code == 0, trained.err
    report = json.loads(gaam("report", runs, "--format", "json").out)
    accuracy = {row["head"]: row["accuracy"]["mean"] for row in report["rows"]}
    assert set(accuracy) == {"linear", "lbfgs"}
    assert min(accuracy.values()) > 0.42, accuracy  # chance is 0.25, and 0.03 its deviation


def test_files_of_many_shapes_and_modes_give_the_states_of_their_pictures(
    tmp_path: Path, gaam: Gaam
) -> None:
    encoder = FAMILIES["clip"].save(tmp_path / "clip")
    rows: list[tuple[str, Image.Image]] = []
    for number, drawn in enumerate(noise()):
        image = Image.fromarray(drawn.array).convert(("RGB", "L", "P", "1")[number % 4])
        file = tmp_path / "data" / "train" / "ab"[number % 2] / f"{number:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        image.save(file)
        rows.append((str(file), image.convert("RGB")))
    where = ["--encoder", encoder, "--dataset", tmp_path / "data", "--out", tmp_path / "cache"]
    outcome = gaam("extract", *where, "--split", "train", "--pool", "mean,max,last,first",
                   "--storage-dtype", "float32", "--device", "cpu")  # fmt: skip
    assert outcome.code == 0, outcome.err
    pictures = [Drawn(np.asarray(image)) for _, image in sorted(rows, key=lambda row: row[0])]
    expected = reference(encoder, pictures, FAMILIES["clip"].prefix)
    train = gaam_cache.open_cache(tmp_path / "cache")["train"]
    for pool, states in expected.items():
        gap = np.linalg.norm(train.pooled(pool)[:] - states, axis=-1)
        assert (gap <= 1e-5 * np.linalg.norm(states, axis=-1)).all(), pool
    assert gaam("verify", tmp_path / "cache", "--recompute", "4").code == 0


def test_the_preset_reads_what_its_data_set_holds(tmp_path: Path, gaam: Gaam) -> None:
    import datasets

    features = datasets.Features(
        {"img": datasets.Image(), "fine_label": datasets.ClassLabel(names=list(FIGURES)),
         "coarse_label": datasets.ClassLabel(names=["round", "not"])}
    )  # fmt: skip
    for seed, (split, count) in enumerate((("train", 40), ("test", 16))):
        arrays, labels = figures(count, seed, side=32)
        rows = {"img": [Image.fromarray(array) for array in arrays], "fine_label": labels,
                "coarse_label": ["not"] * count}  # fmt: skip
        made = datasets.Dataset.from_dict(rows, features=features)
        (tmp_path / "data").mkdir(exist_ok=True)
        made.to_parquet(tmp_path / "data" / f"{split}.parquet")
    encoder = FAMILIES["beit"].save(tmp_path / "beit")
    cache = tmp_path / "cache"
    outcome = gaam("extract", "--preset", "cifar100-beit", "--encoder", encoder, "--dataset",
                   tmp_path / "data", "--out", cache, "--device", "cpu")  # fmt: skip
    assert outcome.code == 0, outcome.err
    opened = gaam_cache.open_cache(cache)
    assert (len(opened.class_names), len(opened["train"]), len(opened["test"])) == (4, 40, 16)
