"""Rows that are no text: one new file in sources/ and one in encoders/, and nothing else."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gaam_cache
import gaam_cache.encoders
import gaam_cache.sources
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError

SOURCE = '''
"""Sounds in folders, one folder a class."""
from pathlib import Path
from typing import ClassVar
from gaam_cache.sources._base import Rows, Source

class _Sounds(Rows):
    kind: ClassVar[str] = "sound"

    def contents(self):
        return (path.read_bytes() for path in self.inputs)

    essences = contents

    def excerpt(self, row):
        return self.inputs[row].name

class FolderOfSounds(Source):
    """Arrays that stand for sounds."""
    priority = -1
    is_path = True

    @classmethod
    def claims(cls, dataset):
        return any(Path(dataset).glob("*/*/*.npy"))

    def read(self, config, split, report=None):
        files = sorted((Path(config.dataset) / split).glob("*/*.npy"))
        labels = [file.parent.name for file in files]
        return _Sounds(inputs=files, labels=labels, class_names=None, origin=config.dataset)
'''
ENCODER = '''
"""How loud a sound is."""
import numpy as np
import torch
from gaam_cache.encoders._base import Encoder, Inputs
from gaam_cache.errors import DataError

class SoundEncoder(Encoder):
    """Two layers: the samples, and their squares."""

    @classmethod
    def open(cls, config):
        made = cls()
        made.name, made.revision, made.max_length = config.encoder, None, 100
        made.device, made.dtype, made.batching = torch.device("cpu"), "float32", "alone"
        return made

    def identity(self):
        return {"dtype": self.dtype, "max_length": 100, "pooling": ["mean"], "layers": "powers"}

    def prepare(self, rows):
        items = [np.load(path)[: self.max_length] for path in rows]
        cut = [len(np.load(path)) > self.max_length for path in rows]
        return Inputs(items=items, lengths=[len(item) for item in items], truncated=cut)

    def refuse_empty(self, row, where):
        return DataError("a sound is silent", found=row.name, where=where)

    def load(self):
        self.num_layers, self.hidden_size = 2, 1

    def encode(self, items):
        return {"mean": torch.stack([torch.tensor([[x.mean()], [(x**2).mean()]]) for x in items])}
'''


@pytest.fixture
def sounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    generator = np.random.default_rng(0)
    for split in ("train", "test"):
        for number in range(8):
            folder = tmp_path / "sounds" / split / ("loud", "soft")[number % 2]
            folder.mkdir(parents=True, exist_ok=True)
            samples = generator.normal(size=50 + 10 * number).astype("float32")
            np.save(folder / f"{number}.npy", samples / (1 + number % 2))
    for package, name, text in (
        (gaam_cache.sources, "sound", SOURCE),
        (gaam_cache.encoders, "sound", ENCODER),
    ):
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
        locations = package.__path__
        monkeypatch.setattr(package.__spec__, "submodule_search_locations", locations)
    importlib.invalidate_caches()
    yield tmp_path / "sounds"
    for package in (gaam_cache.sources, gaam_cache.encoders):
        sys.modules.pop(f"{package.__name__}.sound", None)


def test_sounds_become_states_with_one_file_for_the_rows_and_one_for_the_encoder(
    sounds: Path, tmp_path: Path
) -> None:
    config = ExtractConfig(
        encoder="loudness", dataset=str(sounds), out=tmp_path / "cache", shard_rows=3
    )
    assert gaam_cache.extract(config).rows == {"train": 8, "test": 8}
    cache = gaam_cache.open_cache(config.out)
    assert cache.class_names == ("loud", "soft")
    files = sorted((sounds / "test").glob("*/*.npy"))
    for state, length, file in zip(
        cache["test"].embeddings[:, :, 0], cache["test"].num_tokens, files, strict=True
    ):
        samples = np.load(file)[:100]
        assert length == len(samples)
        np.testing.assert_allclose(state, [samples.mean(), (samples**2).mean()], atol=2e-4)
    assert json.loads((config.out / "cache.json").read_text())["encoder"]["kind"] == "sound"
    assert gaam_cache.extract(config).shards_made == 0
    checked = gaam_cache.verify(config.out, recompute_rows=4)
    assert checked.good
    assert checked.recomputed is not None


def test_rows_that_no_encoder_reads_are_refused(sounds: Path, tmp_path: Path) -> None:
    (tmp_path / "gaam_cache.encoders" / "sound.py").unlink()
    config = ExtractConfig(encoder="loudness", dataset=str(sounds), out=tmp_path / "cache")
    with pytest.raises(ConfigError, match=r"unknown kind of encoder 'sound'(.|\n)*text"):
        gaam_cache.extract(config)
