"""The estimate of common rows: exact for few rows, near for many, blind to labels."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
from gaam_cache.store.row_sketch import SKETCH_SIZE, common_share, joined, sketch
from tests.tiny import WORDS, write_csv


def digests(start: int, stop: int) -> list[bytes]:
    """Hashes of the numbers from ``start`` to ``stop``."""
    return [
        hashlib.blake2b(b"%d" % number, digest_size=16).digest()
        for number in range(start, stop)
    ]


@pytest.mark.parametrize(
    ("first", "second", "share", "tolerance"),
    [
        pytest.param((0, 0), (0, 40), 0.0, 0, id="one is empty"),
        pytest.param((0, 40), (40, 80), 0.0, 0, id="few, none shared"),
        pytest.param((0, 40), (20, 60), 0.5, 1e-12, id="few, half shared"),
        pytest.param((0, 40), (0, 40), 1.0, 0, id="few, the same"),
        pytest.param((0, 9000), (9000, 18000), 0.0, 0, id="many, none shared"),
        pytest.param((0, 9000), (4500, 13500), 0.5, 0.2, id="many, half shared"),
        pytest.param((0, 9000), (0, 9000), 1.0, 0, id="many, the same"),
        pytest.param((0, 9000), (3000, 5000), 1.0, 0.3, id="a part of many"),
        pytest.param((0, 9000), (8900, 10900), 0.05, 0.2, id="few of a part shared"),
        pytest.param((0, 90000), (0, 300), 0.0, 0, id="too few to say"),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_the_share_of_common_rows_is_near(
    first: tuple[int, int],
    second: tuple[int, int],
    share: float,
    tolerance: float,
    swapped: bool,
) -> None:
    ranges = (second, first) if swapped else (first, second)
    sketches = [joined([sketch(digests(*one))]) for one in ranges]
    found = common_share(*sketches)
    assert found == pytest.approx(share, abs=tolerance)


def test_the_sketch_of_splits_together_is_that_of_all_their_rows() -> None:
    splits = [sketch(digests(0, 700)), sketch(digests(700, 1000))]
    assert "".join(joined(splits)) == sketch(digests(0, 1000))
    assert len(joined(splits)) == SKETCH_SIZE


def sketches_of(cache: Path) -> dict[str, str]:
    content: dict[str, Any] = json.loads((cache / "cache.json").read_text())
    return dict(content["dataset"]["row_sketches"])


def test_labels_and_the_order_of_rows_do_not_count(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    states_NLD = generator.standard_normal((30, 2, 4)).astype(np.float32)
    order = generator.permutation(30)
    labels = np.arange(30) % 3
    gaam_cache.write(tmp_path / "a", {"train": (states_NLD, labels)})
    gaam_cache.write(tmp_path / "b", {"train": (states_NLD[order], labels % 2)})
    gaam_cache.write(tmp_path / "c", {"train": (states_NLD + 1, labels)})
    assert sketches_of(tmp_path / "a") == sketches_of(tmp_path / "b")
    assert sketches_of(tmp_path / "a") != sketches_of(tmp_path / "c")


def test_white_space_of_texts_does_not_count(
    encoders: dict[str, Path], tmp_path: Path
) -> None:
    texts = [f"{first} {second}" for first, second in pairwise(WORDS)]
    written = []
    for name, labels, space in (("topics", "abc", " "), ("moods", "xy", "   ")):
        rows = [
            (labels[number % len(labels)], text.replace(" ", space))
            for number, text in enumerate(texts)
        ]
        write_csv(tmp_path / name / "train.csv", rows)
        config = gaam_cache.ExtractConfig(
            encoder=str(encoders["bert"]),
            dataset=str(tmp_path / name),
            splits=("train",),
            out=tmp_path / f"{name}-cache",
        )
        gaam_cache.extract(config)
        written.append(sketches_of(config.out))
    assert written[0] == written[1]
