"""Files of sound that are not what they say: refused, never fewer samples without a word."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest

from gaam_cache.errors import DataError
from gaam_cache.sources.media._sounds import _promise
from gaam_cache.sources.media._sounds._mpeg import frame_of
from gaam_cache.sources.media._sounds._promise import MOST_CHANNELS, MOST_RATE
from gaam_cache.sources.media.audio import Audio
from tests.cache.sources.media.sounds import BytesBlob, noise, settings, sounds_of, written

pytest.importorskip("soundfile")

CODES = [("WAV", "PCM_16"), ("WAVEX", "PCM_24"), ("RF64", "PCM_16"), ("WAV", "ULAW")]
CODES += [("AIFF", "PCM_16"), ("AIFF", "FLOAT"), ("AU", "PCM_16"), ("CAF", "PCM_24")]
CODES += [("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", None)]
SUMMED = {"FLAC", "OGG"}
"""They hold checksums of what is heard."""


def wav(
    samples: bytes,
    *,
    tag: int = 1,
    channels: int = 1,
    rate: int = 8000,
    bits: int = 16,
    size: int | None = None,
    before: bytes = b"",
    after: bytes = b"",
) -> bytes:
    """A file made by hand, from the description of the format."""
    width = channels * ((bits + 7) // 8)
    speed = rate * width & 0xFFFFFFFF
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, tag, channels, rate, speed, width, bits)
    data = struct.pack("<4sI", b"data", len(samples) if size is None else size) + samples
    body = b"WAVE" + before + form + data + b"\0" * (len(samples) & 1) + after
    return struct.pack("<4sI", b"RIFF", len(body)) + body


def refusal(content: bytes) -> DataError:
    with pytest.raises(DataError) as error:
        sounds_of(content)
    assert error.value.details["where"] == "a.wav"
    assert error.value.details["found"]
    return error.value


@pytest.mark.parametrize(("kind", "code"), CODES)
def test_a_file_that_ends_early_is_refused_wherever_it_ends(kind: str, code: str) -> None:
    for channels in (1, 2):
        content = written(noise(302, channels), 16000, kind, code)
        assert sounds_of(content)[0].frames == 302
        for size in range(0, len(content), 1 if len(content) < 2000 else 7):
            refusal(content[:size])
        refusal(content[:-1])


@pytest.mark.parametrize(("kind", "code"), CODES)
def test_a_flipped_bit_never_changes_length_or_rate_without_a_word(kind: str, code: str) -> None:
    content = written(noise(302, 2), 16000, kind, code)
    x_T = sounds_of(content)[0].samples()
    for at in range(0, len(content), 1 if len(content) < 1500 else 3):
        flipped = bytearray(content)
        flipped[at] ^= 1 << at % 8
        try:
            (sound,) = sounds_of(bytes(flipped))
        except DataError:
            continue
        y_T = sound.samples()
        assert np.isfinite(y_T).all()
        if kind in SUMMED:
            assert np.array_equal(y_T, x_T)
        if kind in SUMMED | {"WAV", "WAVEX", "RF64", "MP3"}:
            assert (sound.rate, sound.frames) == (16000, 302)


def test_headers_that_promise_what_no_sound_has_are_refused() -> None:
    x = bytes(200)
    flac = written(noise(302, 1), 16000, "FLAC", "PCM_16")
    hours = bytearray(flac)
    hours[21] |= 0x0F
    hours[22:26] = b"\xff" * 4
    refused = {
        "rate 0": (wav(x, rate=0), "sampling rate"),
        "rate 1 GHz": (wav(x, rate=10**9), "sampling rate"),
        "rate above": (wav(x, rate=MOST_RATE + 1), "sampling rate"),
        "1000 channels": (wav(bytes(2000), channels=1000), "channels"),
        "channels above": (
            wav(bytes(4 * MOST_CHANNELS + 4), channels=MOST_CHANNELS + 1),
            "channels",
        ),
        "no channels": (wav(x, channels=0), "damaged"),
        "no bits": (wav(x, bits=0), "damaged"),
        "nothing": (wav(b""), "empty"),
        "0 bytes": (b"", "empty"),
        "into a pipe": (wav(x, size=0xFFFFFFFF), "how long"),
        "into a pipe, 0": (wav(x, size=0), "how long"),
        "4 GiB": (wav(x, size=0xFFFFFFF0), "damaged"),
        "half a frame": (wav(bytes(203), channels=2), "damaged"),
        "samples twice": (wav(x, after=b"data" + struct.pack("<I", 4) + bytes(4)), "damaged"),
        "more than it says": (wav(x, size=100), "damaged"),
        "junk behind": (wav(x, after=b"junk"), "damaged"),
        "ADPCM": (wav(x, tag=2, bits=4), "coded"),
        "2 ** 36 samples": (bytes(hours), "too long"),
        "no format": (wav(x)[:12] + wav(x)[36:], "damaged"),
    }
    for what, (content, message) in refused.items():
        assert message in refusal(content).message, what


def test_what_hours_decode_from_a_small_file_is_never_decoded_further_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_promise, "MOST_SECONDS", 0.5)
    monkeypatch.setattr(_promise, "MOST_VALUES", 24000)
    for kind, code in CODES:
        content = written(np.zeros((48000, 1)), 48000, kind, code)
        assert "too long" in refusal(content).message


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 101.0, -1e30])
def test_numbers_that_are_no_samples_are_refused(value: float) -> None:
    for kind in ("WAV", "AIFF", "AU", "CAF"):
        for code in ("FLOAT", "DOUBLE"):
            for channels in (1, 2):
                x_TC = noise(3000, channels)
                x_TC[1234, -1] = value
                assert "no sample" in refusal(written(x_TC, 16000, kind, code)).message
                x_TC[1234, -1] = 99.0
                sounds_of(written(x_TC, 16000, kind, code))


def test_what_a_file_holds_is_told_by_its_content_and_not_by_its_name() -> None:
    content = written(noise(302, 1), 16000, "WAV", "PCM_16")
    for name in ("a.mp3", "a.flac", "a.txt", "a"):
        blob = BytesBlob.of(content, where=name)
        assert Audio.look(blob, settings())[0]["stop"] == 302
    picture = b"\x89PNG\r\n\x1a\n" + bytes(100)
    assert "damaged" in refusal(picture).message


def test_integers_are_read_as_numpy_reads_them() -> None:
    rng = np.random.default_rng(1)
    for bits in (8, 16, 24, 32):
        for channels in (1, 2, 5):
            raw = rng.integers(0, 256, 50 * channels * bits // 8, dtype=np.uint8).tobytes()
            for before in (b"", b"LIST\3\0\0\0abc\0"):
                content = wav(raw, channels=channels, bits=bits, before=before, after=before)
                (sound,) = sounds_of(content)
                assert np.array_equal(sound.samples(), _parsed(raw, bits, channels))


def _parsed(raw: bytes, bits: int, channels: int) -> np.ndarray:
    x_NB = np.frombuffer(raw, np.uint8).reshape(-1, bits // 8).astype(np.int64)
    x_N = (x_NB << 8 * np.arange(bits // 8)).sum(1)
    half = 1 << bits - 1
    x_N = x_N - half if bits == 8 else np.where(x_N >= half, x_N - 2 * half, x_N)
    return (x_N / half).reshape(-1, channels).mean(1).astype(np.float32)


def test_tags_before_a_sound_change_nothing() -> None:
    tag = b"ID3\4\0\0\0\0\1\0" + bytes(128)
    for kind, code in (("MP3", None), ("FLAC", "PCM_16"), ("WAV", "PCM_16")):
        content = written(noise(4000, 2), 16000, kind, code)
        expected = sounds_of(content)[0].samples()
        for tags in (tag, tag + tag):
            assert np.array_equal(sounds_of(tags + content)[0].samples(), expected)
            assert Audio.claims((tags + content)[:64])
        refusal(tag)
        refusal(tag[:50])


def test_tags_after_frames_of_mp3_change_nothing_and_other_bytes_are_refused() -> None:
    content = written(noise(4000, 2), 16000, "MP3", None)
    expected = sounds_of(content)[0].samples()
    for tags in (b"TAG" + bytes(125), bytes(500)):
        assert np.array_equal(sounds_of(content + tags)[0].samples(), expected)
    refusal(content + b"something else")


def test_mp3_that_does_not_say_how_long_it_is_is_read_to_its_end() -> None:
    soundfile = pytest.importorskip("soundfile")
    for rate in (8000, 16000, 44100):
        for channels in (1, 2):
            x_TC = noise(3 * rate, channels)
            x_TC[: len(x_TC) // 2] = 0
            for turned in (x_TC, x_TC[::-1]):  # loud frames are larger: guesses are wrong
                file = io.BytesIO()
                shape = {"samplerate": rate, "channels": channels, "format": "MP3"}
                with soundfile.SoundFile(file, "w", bitrate_mode="VARIABLE", **shape) as sound:
                    sound.write(turned)
                content = file.getvalue()
                expected_T = sounds_of(content)[0].samples()
                assert len(expected_T) == len(x_TC)
                first = frame_of(content)
                assert first is not None
                (bare,) = sounds_of(content[first.size :])
                at = 576 + 529  # what the encoder and the decoder need to begin
                y_T = bare.samples()[at : at + len(x_TC)]
                assert np.array_equal(y_T, expected_T)
                refusal(content[first.size : -1])


def test_layer_2_is_read() -> None:
    head = b"\xff\xfd\x84\x00"
    first = frame_of(head)
    assert first is not None
    (sound,) = sounds_of((head + bytes(first.size - 4)) * 20)
    assert (sound.rate, sound.frames) == (48000, 20 * 1152)
    assert not sound.samples().any()


def test_opus_is_decoded_at_the_least_rate_that_holds_what_was_recorded() -> None:
    content = bytearray(written(noise(4800, 1), 48000, "OGG", "OPUS"))
    rates = {8000: 8000, 11025: 12000, 22050: 24000, 44100: 48000, 96000: 48000}
    for recorded, rate in rates.items():
        with_rate(content, recorded)
        (sound,) = sounds_of(bytes(content))
        assert (sound.rate, sound.frames) == (rate, rate // 10)
    with_rate(content, 0)
    assert "coded" in refusal(bytes(content)).message


def with_rate(content: bytearray, recorded: int) -> None:
    """Write the rate into the first page of OGG Opus, and its checksum."""
    content[40:44] = struct.pack("<I", recorded)
    content[22:26] = bytes(4)
    value = 0
    for byte in content[:47]:
        value ^= byte << 24
        for _ in range(8):
            value = (value << 1 ^ (0x04C11DB7 if value >> 31 else 0)) & 0xFFFFFFFF
    content[22:26] = struct.pack("<I", value)


def test_pages_of_other_streams_are_refused() -> None:
    content = written(noise(4000, 1), 16000, "OGG", "VORBIS")
    assert "coded" in refusal(content + content).message
