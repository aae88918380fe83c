"""Ten classes of sounds, told apart by pitch and by whether it rises; of 8 or 16 kHz."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

CLASSES = tuple(
    f"{way}-{hz}" for way in ("flat", "rising") for hz in (200, 400, 800, 1600, 3000)
)


def write(folder: Path, counts: dict[str, int], seed: int = 0) -> None:
    """WAV and FLAC files in ``folder/split/class``."""
    rng = np.random.default_rng(seed)
    for split, count in counts.items():
        for name in CLASSES:
            (folder / split / name).mkdir(parents=True, exist_ok=True)
            way, hz = name.split("-")
            for number in range(count):
                rate = int(rng.choice([8000, 16000]))
                t = np.arange(int(rng.uniform(0.3, 0.6) * rate)) / rate
                pitch = float(hz) * rng.uniform(0.9, 1.1) * (1 + (way == "rising") * t)
                wave = 0.5 * np.sin(2 * np.pi * np.cumsum(pitch + 0 * t) / rate)
                wave += rng.normal(scale=0.01, size=len(t))
                suffix = "wav" if number % 2 else "flac"
                soundfile.write(
                    folder / split / name / f"{number:03}.{suffix}", wave, rate
                )
