"""Sounds and pictures through every source, to states and back."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.sources._base import Rows, find_source
from tests.cache.encoders.audio import sounds
from tests.cache.encoders.vision.models import FAMILIES
from tests.cache.sources.data_sets import SOURCES
from tests.cache.sources.media.pictures import drawn
from tests.cache.sources.media.sounds import written

Files = dict[str, dict[str, bytes]]
KINDS = ("audio", "vision")


def wave(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.5, 0.5, 8000 + 800 * seed)


def picture(seed: int, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    drawn("RGB", seed).save(file, kind)
    return file.getvalue()


def files_of(kind: str) -> Files:
    """Of every class and split some, in several formats, with suffixes in any case."""
    made: Files = {}
    for split, first in (("train", 0), ("test", 6)):
        made[split] = {}
        for number in range(6 if split == "train" else 4):
            seed = first + number
            folder = "ab"[number >= 3 if split == "train" else number >= 2]
            if kind == "audio":
                suffix = (".wav", ".FLAC", ".ogg")[number % 3]
                code = "PCM_16" if suffix != ".ogg" else "VORBIS"
                content = written(wave(seed), 16000, suffix[1:].upper(), code)
            else:
                suffix = (".png", ".BMP", ".gif")[number % 3]
                content = picture(seed, suffix[1:].upper())
            made[split][f"{folder}/{number}{suffix}"] = content
    return made


def feature_of(kind: str) -> str:
    return {"audio": "audio", "vision": "image"}[kind]


def read(dataset: str, **options: Any) -> dict[str, Rows]:
    config = ExtractConfig(dataset=dataset, **options)
    source = find_source(config.dataset)
    return {split: source.read(config, split) for split in config.splits}


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_of_every_kind_gives_the_same_items(
    kind: str, make: Callable[..., str]
) -> None:
    files = files_of(kind)
    contents = set()
    for source in SOURCES:
        rows = read(make(source, files, feature_of(kind)))
        found = []
        for split, of_split in files.items():
            part = rows[split]
            assert part.kind == kind
            assert [item.blob.read() for item in part.inputs] == list(of_split.values())
            assert list(part.labels) == [name[0] for name in of_split]
            for item in part.inputs:
                if kind == "audio":
                    assert item.samples().shape == (item.frames,)
                    assert item.rate == 16000
                else:
                    assert item.pixels().shape == (item.height, item.width, 3)
            found += list(part.contents())
        contents.add(tuple(found))
    assert len(contents) == 1, "a fingerprint does not depend on where files were"


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_cannot_be_used_are_refused_by_every_source(
    kind: str, make: Callable[..., str]
) -> None:
    files = files_of(kind)
    other = next(iter(files_of(KINDS[kind == "audio"])["train"].values()))
    first, second = list(files["train"])[:2]
    whole = files["train"][second]
    bad = {"empty": b"", "text": b"not a file of a kind", "other": other}
    bad["cut"] = whole[: len(whole) // 2]
    for source in SOURCES:
        for name, content in bad.items():
            train = files["train"] | {second: content}
            with pytest.raises(DataError) as caught:
                read(make(source, {**files, "train": train}, feature_of(kind)))
            if name == "other":
                assert "another kind" in caught.value.message
            assert first not in str(caught.value)


@pytest.fixture(scope="module")
def encoders_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny encoder of every kind."""
    root = tmp_path_factory.mktemp("encoders")
    name = next(iter(FAMILIES))
    sound = next(iter(sounds.CONFIGS))
    return {
        "audio": sounds.save(sound, root / "sound"),
        "vision": FAMILIES[name].save(root / name),
    }


@pytest.mark.parametrize("kind", [pytest.param("audio", marks=pytest.mark.slow), "vision"])
def test_caches_of_all_sources_are_one_and_can_be_verified(
    kind: str, make: Callable[..., str], encoders_of: dict[str, Path], tmp_path: Path
) -> None:
    files = files_of(kind)
    fingerprints = set()
    for number, source in enumerate(SOURCES):
        config = ExtractConfig(
            encoder=str(encoders_of[kind]),
            dataset=make(source, files, feature_of(kind)),
            out=tmp_path / f"cache-{number}",
            shard_rows=4,
            storage_dtype="float32",
        )
        summary = gaam_cache.extract(config)
        assert summary.rows == {"train": 6, "test": 4}
        fingerprints.add(summary.fingerprint)
        checked = gaam_cache.verify(config.out, recompute_rows=4)
        assert checked.good, source
        assert checked.recomputed is not None
        assert checked.recomputed.rows == 4
        assert gaam_cache.extract(config).shards_made == 0
    assert len(fingerprints) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", ["folder", "jsonl", "parquet struct"])
def test_workers_make_the_bytes_of_one_process(
    kind: str,
    source: str,
    make: Callable[..., str],
    encoders_of: dict[str, Path],
    tmp_path: Path,
) -> None:
    """Handed over where that can be, read by each where it cannot."""
    config = ExtractConfig(
        encoder=str(encoders_of[kind]),
        dataset=make(source, files_of(kind), feature_of(kind)),
        out=tmp_path / "alone",
        shard_rows=2,
        storage_dtype="float32",
        device="cpu",
    )
    gaam_cache.extract(config)
    several = replace(config, out=tmp_path / "several", devices="2")
    assert gaam_cache.extract(several).shards_made == 5
    names = sorted(path.name for path in (config.out / "shards").iterdir())
    assert names == sorted(path.name for path in (several.out / "shards").iterdir())
    assert not list(several.out.glob("rows-*"))


def test_settings_of_sounds_play_no_part_for_pictures(make: Callable[..., str]) -> None:
    for source in SOURCES:
        place = make(source, files_of("vision"), "image")
        for setting in ({"clip_seconds": 1.0}, {"clip_seconds": 1.0, "clip_mode": "split"}):
            with pytest.raises(ConfigError, match=r"--clip-\w+ plays no part"):
                read(place, **setting)


def test_pieces_of_sounds_are_rows_of_every_source(make: Callable[..., str]) -> None:
    files = files_of("audio")
    for source in SOURCES:
        whole = read(make(source, files))["train"]
        rows = read(make(source, files), clip_seconds=0.2, clip_mode="split")["train"]
        clips = list(rows.kept["clip_of"])
        assert len(set(clips)) == 6
        assert len(rows) > 12
        for clip, unit, sound in zip(dict.fromkeys(clips), range(6), whole.inputs, strict=True):
            pieces = [
                item.samples()
                for item, name in zip(rows.inputs, clips, strict=True)
                if name == clip
            ]
            joined = np.concatenate(pieces)
            assert np.array_equal(joined, sound.samples()[: len(joined)]), (source, unit)
