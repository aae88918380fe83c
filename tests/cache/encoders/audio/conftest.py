"""Encoders are drawn once; a source of WAV files in folders of classes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gaam_cache.sources
from tests.cache.encoders.audio import sounds

SOURCE = '''
"""WAV files in folders, one folder a class."""
import hashlib
from pathlib import Path
from types import SimpleNamespace
import soundfile
from gaam_cache.sources._base import Rows, Source

class _Item:
    def __init__(self, path):
        self.path, self.blob = path, SimpleNamespace(where=str(path))
        info = soundfile.info(path)
        self.rate, self.frames = info.samplerate, info.frames
        self.identity = hashlib.sha256(path.read_bytes()).digest()

    def samples(self):
        return soundfile.read(self.path, dtype="float32")[0]

class _Sounds(Rows):
    kind = "audio"
    noun = "sound"

    def contents(self):
        return (item.identity for item in self.inputs)

    essences = contents

    def excerpt(self, row):
        return self.inputs[row].path.name

class FolderOfWav(Source):
    """Sounds."""
    priority = -1
    is_path = True

    @classmethod
    def claims(cls, dataset):
        return any(Path(dataset).glob("*/*/*.[wf]*"))

    def read(self, config, split, report=None):
        files = sorted((Path(config.dataset) / split).glob("*/*.[wf]*"), key=lambda f: f.name)
        labels = [file.parent.name for file in files]
        items = [_Item(file) for file in files]
        return _Sounds(inputs=items, labels=labels, class_names=None, origin=config.dataset)
'''


@pytest.fixture(scope="session")
def audio_encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of tiny random encoders, by the names of ``sounds.CONFIGS``."""
    root = tmp_path_factory.mktemp("audio-encoders")
    return {name: sounds.save(name, root / name) for name in sounds.CONFIGS}


@pytest.fixture
def wav_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Folders of WAV files can be read."""
    folder = tmp_path / "gaam_cache.sources"
    folder.mkdir()
    (folder / "wav_folder.py").write_text(SOURCE)
    package = gaam_cache.sources
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    monkeypatch.setattr(package.__spec__, "submodule_search_locations", package.__path__)
    importlib.invalidate_caches()
    yield
    sys.modules.pop("gaam_cache.sources.wav_folder", None)
