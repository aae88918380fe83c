"""Ten classes of sounds as alike as spoken digits: tones, chirps, bands of noise.

Amplitude, onset, duration and background are drawn for every sound, and its rate is 8 or 16 kHz.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

CLASSES = (
    "tone-low", "tone-middle", "tone-high", "up", "down", "up-down", "noise-low", "noise-high",
    "beats", "clicks",
)  # fmt: skip


def sound(kind: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    rate = int(rng.choice([8000, 16000]))
    seconds = rng.uniform(0.3, 0.6)
    t = np.arange(int(seconds * rate)) / rate
    place = t / t[-1]
    shift = rng.uniform(0.9, 1.1)
    pitch = {
        0: 300.0, 1: 800.0, 2: 2000.0, 3: 300 + 2000 * place, 4: 2300 - 2000 * place,
        5: 300 + 2000 * (1 - np.abs(2 * place - 1)), 8: 800.0, 9: 1500.0,
    }.get(kind)  # fmt: skip
    if pitch is None:
        spectrum = np.fft.rfft(rng.normal(size=len(t)))
        hz = np.fft.rfftfreq(len(t), 1 / rate)
        low, high = (200, 900) if kind == 6 else (1500, 3500)
        wave = np.fft.irfft(spectrum * ((hz > low * shift) & (hz < high * shift)), len(t))
        wave /= np.abs(wave).max()
    else:
        phase = 2 * np.pi * np.cumsum(np.broadcast_to(pitch * shift, t.shape)) / rate
        wave = np.sin(phase + rng.uniform(0, 6))
    if kind == 8:
        wave = wave * (np.sin(2 * np.pi * 12 * t) > 0)
    if kind == 9:
        wave = wave * (np.sin(2 * np.pi * 25 * t) > 0.9)
    silence = [np.zeros(int(rng.uniform(0, 0.2) * rate)) for _ in range(2)]
    wave = np.concatenate([silence[0], wave * rng.uniform(0.1, 0.8), silence[1]])
    wave += rng.normal(scale=0.01, size=len(wave))
    return (wave + rng.normal(scale=0.01)).clip(-1, 1).astype(np.float32), rate


def write(folder: Path, counts: dict[str, int], seed: int = 0) -> None:
    """WAV and FLAC files in ``folder/split/class``."""
    rng = np.random.default_rng(seed)
    for split, count in counts.items():
        for kind, name in enumerate(CLASSES):
            (folder / split / name).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                wave, rate = sound(kind, rng)
                suffix = "wav" if number % 2 else "flac"
                soundfile.write(folder / split / name / f"{kind}-{number:03}.{suffix}", wave, rate)
