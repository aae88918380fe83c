"""Sounds are what was written, or are refused."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gaam_cache.errors import ConfigError
from gaam_cache.messages import install
from gaam_cache.sources.media._sounds._decoder import CODES
from gaam_cache.sources.media._sounds._pieces import parts
from gaam_cache.sources.media.audio import Audio
from tests.cache.sources.media.sounds import noise, sounds_of, written

soundfile = pytest.importorskip("soundfile")

STEPS = {"PCM_S8": 2**-7, "PCM_U8": 2**-7, "PCM_16": 2**-15, "PCM_24": 2**-23, "PCM_32": 2**-24}
STEPS |= {"FLOAT": 2**-24, "DOUBLE": 2**-24, "ULAW": 0.04, "ALAW": 0.04}
KINDS = ["WAV", "WAVEX", "RF64", "AIFF", "AU", "CAF", "FLAC"]
EXACT = [
    (kind, code)
    for kind in KINDS
    for code in soundfile.available_subtypes(kind)
    if code in CODES and code in STEPS
]


@pytest.mark.parametrize(("kind", "code"), EXACT)
def test_what_was_written_is_read_as_the_mean_of_its_channels(kind: str, code: str) -> None:
    for channels in (1, 2, 3, 8):
        for rate in (8000, 16000, 22050, 44100, 96000):
            x_TC = noise(1002, channels)
            (sound,) = sounds_of(written(x_TC, rate, kind, code))
            assert (sound.rate, sound.frames) == (rate, 1002)
            y_T = sound.samples()
            assert y_T.dtype == np.float32
            assert y_T.shape == (1002,)
            assert abs(y_T - x_TC.mean(1)).max() <= STEPS[code]


@pytest.mark.parametrize("mode", ["cut", "split"])
def test_pieces_are_parts_of_the_whole_and_leave_out_a_short_tail_alone(mode: Any) -> None:
    rate = 8000
    for kind, code in [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("MP3", None)]:
        for frames in (1, 799, 4001, 8000, 8799, 8800, 20000):
            content = written(noise(frames, 2), rate, kind, code)
            (whole,) = sounds_of(content)
            x_T = whole.samples()
            pieces = sounds_of(content, clip_seconds=0.50003, clip_mode=mode)
            assert len({piece.identity for piece in pieces}) == len(pieces)
            assert pieces[0].start == 0
            for piece in pieces:
                assert np.array_equal(piece.samples(), x_T[piece.start : piece.stop])
            if mode == "cut":
                assert [p.stop for p in pieces] == [min(len(x_T), round(0.50003 * rate))]
                continue
            for before, after in pairwise(pieces):
                assert before.stop == after.start
            for i, piece in enumerate(pieces):
                assert piece.start == round(i * 0.50003 * rate)
            assert 0 <= len(x_T) - pieces[-1].stop < 0.1 * rate
            assert all(p.frames >= 0.1 * rate for p in pieces[1:])


def test_versions_are_those_of_the_decoder() -> None:
    assert Audio.versions() == {
        "gaam": "mono by the mean",
        "soundfile": soundfile.__version__,
        "libsndfile": soundfile.__libsndfile_version__,
    }


def test_claims_what_libsndfile_writes_and_not_other_files() -> None:
    for kind, code in [*EXACT, ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None)]:
        assert Audio.claims(written(noise(500, 1), 48000, kind, code)[:64])
    others = [
        b"",
        b"\xff\xd8\xff\xe0\0\x10JFIF",
        b"\x89PNG\r\n\x1a\n",
        b"GIF89a",
        b"RIFF\0\0\0\0WEBP",
    ]
    others += ["text,label\n".encode("utf-16"), b"PAR1", b"FORM\0\0\0\0ILBM", b"\xff\xff\xff\xff"]
    others += [b"\xff\xd8\xff" + bytes([i]) for i in range(256)]
    for head in others:
        assert not Audio.claims(head)


def test_identity_covers_every_byte_and_the_part() -> None:
    content = written(noise(8000, 1), 8000, "WAV", "PCM_16")
    other = content[:-1] + bytes([content[-1] ^ 1])
    seen = [s.identity for c in (content, other) for s in sounds_of(c)]
    seen += [s.identity for s in sounds_of(content, clip_seconds=0.5, clip_mode="split")]
    assert len(set(seen)) == 4


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    content = written(noise(10, 1), 8000, "WAV", "PCM_16")
    monkeypatch.setitem(sys.modules, "soundfile", None)
    for ask in (Audio.versions, lambda: sounds_of(content)):
        with pytest.raises(ConfigError) as error:
            ask()
        assert error.value.details["to do"] == install("audio")


@pytest.mark.parametrize("seconds", [0.1, 0.11, 0.25, 1.0, 5.0])
def test_pieces_follow_each_other_and_all_but_a_short_tail_is_in_one(seconds: float) -> None:
    rng = np.random.default_rng(0)
    for rate in (1000, 8000, 11025, 16000, 44100):
        whole = round(seconds * rate)
        lengths = {1, whole - 1, whole, whole + 1, 2 * whole, *rng.integers(1, 30 * whole, 40)}
        for frames in map(int, lengths):
            found = parts(frames, rate, seconds, "split")
            assert found[0][0] == 0
            assert all(stop == start for (_, stop), (start, _) in pairwise(found))
            ends = [round((i + 1) * seconds * rate) for i in range(len(found) - 1)]
            assert [stop for _, stop in found[:-1]] == ends
            left = frames - found[-1][1]
            assert 0 <= left < 0.1 * rate
            assert len(found) <= frames / (seconds * rate) + 1.01
            assert parts(frames, rate, seconds, "cut") == found[:1]
            assert parts(frames, rate, None, "split") == [(0, frames)]
