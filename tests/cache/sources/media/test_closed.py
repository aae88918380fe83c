"""Whatever is opened to read a medium is closed, and not by whoever clears up at the end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gaam_cache.errors import DataError
from gaam_cache.sources.media._sounds import _kept
from tests.cache.encoders.audio import sounds
from tests.cache.encoders.vision.models import FAMILIES
from tests.cache.sources.media.sounds import noise, sounds_of, written

soundfile = pytest.importorskip("soundfile")

ROOT = Path(__file__).parents[4]
SOUNDS = {"wav": ("WAV", "PCM_16"), "flac": ("FLAC", "PCM_16"), "ogg": ("OGG", "VORBIS"),
          "mp3": ("MP3", None), "aiff": ("AIFF", "PCM_16"), "au": ("AU", "PCM_16")}  # fmt: skip
PICTURES = ("png", "jpg", "gif", "webp", "bmp", "tiff", "ppm")
MODES: dict[str, dict[str, object]] = {
    "whole": {},
    "cut": {"clip_seconds": 0.5, "clip_mode": "cut"},
    "split": {"clip_seconds": 0.5, "clip_mode": "split"},
}


@pytest.fixture
def left_open(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many of all sounds that were opened are open."""
    opened = []
    make = soundfile.SoundFile.__init__

    def note(self: soundfile.SoundFile, *args: object, **options: object) -> None:
        make(self, *args, **options)
        opened.append(self)

    monkeypatch.setattr(soundfile.SoundFile, "__init__", note)
    return lambda: sum(not one.closed for one in opened)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", SOUNDS)
def test_of_all_sounds_at_most_the_one_that_may_go_on_is_open(
    kind: str, mode: str, left_open: Callable[[], int]
) -> None:
    content = written(noise(16000, 1), 8000, *SOUNDS[kind])
    for order in (1, -1):
        rows = sounds_of(content, **MODES[mode])
        assert not left_open()
        for row in rows[::order]:
            row.samples()
            assert left_open() <= (row.stop < row.whole)
        _kept.close()
        assert not left_open()


@pytest.mark.parametrize("kind", SOUNDS)
def test_a_sound_that_cannot_be_read_is_closed(
    kind: str, left_open: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it breaks off: the errors that are raised hold on to all that led to them."""
    content = written(noise(16000, 1), 8000, *SOUNDS[kind])
    raised = []
    for at in range(0, len(content), len(content) // 40):
        for damaged in (content[:at], content[:at] + b"\xff" * 99 + content[at + 99 :]):
            try:
                for row in sounds_of(damaged, clip_seconds=0.5, clip_mode="split"):
                    row.samples()
            except DataError as error:
                raised.append(error)
            _kept.close()
            assert not left_open()
    assert raised
    rows = sounds_of(content, clip_seconds=0.5, clip_mode="split")
    rows[0].samples()

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(soundfile.SoundFile, "read", stop)
    for reading in (rows[1].samples, lambda: sounds_of(content)):
        with pytest.raises(KeyboardInterrupt) as caught:
            reading()
        assert caught.value.__traceback__ is not None
        assert not left_open()


def write_sounds(folder: Path) -> list[str]:
    for name in "ab":
        (folder / "train" / name).mkdir(parents=True)
        for number, (suffix, kind) in enumerate(SOUNDS.items()):
            content = written(noise(16000, 1, seed=number + ord(name)), 8000, *kind)
            (folder / "train" / name / f"{number}.{suffix}").write_bytes(content)
    encoder = folder.with_name("encoder")
    sounds.save("wavlm-layer", encoder)
    return ["--encoder", str(encoder)]


def write_pictures(folder: Path) -> list[str]:
    rng = np.random.default_rng(0)
    for name in "ab":
        (folder / "train" / name).mkdir(parents=True)
        for number, suffix in enumerate(PICTURES):
            pixels_HWC = rng.integers(0, 256, (40, 40, 3), np.uint8)
            Image.fromarray(pixels_HWC).save(folder / "train" / name / f"{number}.{suffix}")
    return ["--encoder", str(next(iter(FAMILIES.values())).save(folder.with_name("encoder")))]


COMMANDS: dict[str, tuple[Callable[[Path], list[str]], list[str]]] = {
    "cut": (write_sounds, ["--set", "clip-seconds=0.5"]),
    "split": (write_sounds, ["--set", "clip-seconds=0.5", "--set", "clip-mode=split"]),
    "pictures": (write_pictures, []),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_leaves_nothing_to_be_cleared_up(name: str, tmp_path: Path) -> None:
    write, options = COMMANDS[name]
    options = [*write(tmp_path / "media"), *options]
    command = [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", str(ROOT / "cli.py")]
    command += ["extract", "--dataset", str(tmp_path / "media"), "--split", "train", *options]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "cache")],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    for word in ("Exception ignored", "ResourceWarning", "Traceback"):
        assert word not in done.stderr, done.stderr
