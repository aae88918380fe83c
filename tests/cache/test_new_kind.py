"""Rows that are no text: one new file in sources/ and one in encoders/, and nothing else."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import gaam_cache
import gaam_cache.encoders
import gaam_cache.sources
from gaam_cache.config import ExtractConfig

SOURCE = '''
"""Sounds in folders, one folder a class."""
from pathlib import Path
from gaam_cache.sources import Rows, Source

class _Sounds(Rows):
    kind = "sound"

    def contents(self):
        return (path.read_bytes() for path in self.inputs)

    def excerpt(self, row):
        return self.inputs[row].name

class FolderOfSounds(Source):
    """Arrays that stand for sounds."""
    priority = -1

    @classmethod
    def claims(cls, dataset):
        return any(Path(dataset).glob("*/*/*.npy"))

    def rows(self, config, split, report):
        files = sorted((Path(config.dataset) / split).glob("*/*.npy"))
        labels = [file.parent.name for file in files]
        return _Sounds(inputs=files, labels=labels, class_names=None, origin=config.dataset)
'''
ENCODER = '''
"""How loud a sound is."""
import numpy as np
import torch
from gaam_cache.encoders import Encoder, Inputs

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
        whole = [np.load(path) for path in rows]
        items = [one[: self.max_length] for one in whole]
        cut = [len(one) > self.max_length for one in whole]
        return Inputs(items=items, lengths=[len(item) for item in items], truncated=cut)

    def load(self):
        self.num_layers, self.hidden_size = 2, 1

    def encode(self, items):
        return {"mean": torch.stack([torch.tensor([[x.mean()], [(x**2).mean()]]) for x in items])}
'''
ROOMS = {gaam_cache.sources: SOURCE, gaam_cache.encoders: ENCODER}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExtractConfig]:
    def add(package: ModuleType, text: str) -> None:
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / "sound.py").write_text(text)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])

    generator = np.random.default_rng(0)
    for number in range(16):
        split, label = ("train", "test")[number // 8], ("loud", "soft")[number % 2]
        file = tmp_path / "sounds" / split / label / f"{number}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        samples = generator.normal(size=50 + 10 * (number % 8)).astype("float32")
        np.save(file, samples / (1 + number % 2))
    for package, text in ROOMS.items():
        add(package, text)
    importlib.invalidate_caches()
    dataset, out = str(tmp_path / "sounds"), tmp_path / "cache"
    yield ExtractConfig(encoder="loudness", dataset=dataset, out=out, shard_rows=3)
    for package in ROOMS:
        sys.modules.pop(f"{package.__name__}.sound", None)


def test_sounds_become_states_with_one_file_for_the_rows_and_one_for_the_encoder(
    config: ExtractConfig,
) -> None:
    assert gaam_cache.extract(config).rows == {"train": 8, "test": 8}
    cache = gaam_cache.open_cache(config.out)
    assert cache.class_names == ("loud", "soft")
    assert cache.plan.encoder.kind == "sound"
    states, lengths = cache["test"].embeddings[:, :, 0], cache["test"].num_tokens
    files = sorted(Path(config.dataset, "test").glob("*/*.npy"))
    for state, length, file in zip(states, lengths, files, strict=True):
        samples = np.load(file)[:100]
        assert length == len(samples)
        np.testing.assert_allclose(
            state, [samples.mean(), (samples**2).mean()], atol=2e-4
        )
    assert gaam_cache.extract(config).shards_made == 0
    assert gaam_cache.verify(config.out, recompute_rows=4).good
