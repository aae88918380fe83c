"""Audio encoders of the transformers library: WavLM, HuBERT, wav2vec 2.0, Whisper and others.

B batch, T rows of features, D hidden size.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import soxr
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.encoders._base import Inputs, Lazy
from gaam_cache.encoders._forward import Batch, Forward, Unusable
from gaam_cache.encoders._model import ModelEncoder
from gaam_cache.encoders._probe import Items
from gaam_cache.encoders._sounds import QUALITY, Clip, Hearing, noise
from gaam_cache.encoders._weights import encoder_part, skeleton
from gaam_cache.errors import DataError
from gaam_cache.sources._base import Rows

TWINS = (1, 2, 5, 12, 25, 47)
"""Positions of the sounds that are tried together, two of each."""
LONGEST = 120
"""Of the longest one: beyond 80, where WavLM begins to round distances."""


class AudioEncoder(ModelEncoder):
    """Sounds in, pooled states of every layer out; of an encoder-decoder model its encoder's.

    A sound is brought to the encoder's rate by soxr, and made ready by the encoder's own feature
    extractor, alone: that normalises it by its own numbers. Encoders that normalise over time take
    no mask; ``batching`` then allows sounds of exactly equal length only. Where every sound is
    filled to one length, positions behind it are not pooled.
    """

    noun: ClassVar[str] = "sound"
    unit: ClassVar[str] = "frames"
    given: ClassVar[frozenset[str]] = frozenset({"input_values", "input_features"})
    reads: ClassVar[str] = "an audio encoder and feature extractor"
    states_of: ClassVar[str] = "stretch of a sound"
    takes: ClassVar[frozenset[str]] = ModelEncoder.takes | {"published_audio"}
    _hearing: Hearing

    def _read(self) -> int:
        # torch says so of every layer of WavLM
        warnings.filterwarnings("ignore", "Support for mismatched key_padding_mask", UserWarning)
        self._hearing = hearing = Hearing(
            self._located.path,
            encoder_part(skeleton(self._model_config).eval()),
            seconds=self._config.clip_seconds,
            published=self._config.published_audio,
        )
        return hearing.positions(hearing.max_samples)

    def _settings(self) -> dict[str, Any]:
        hearing = self._hearing
        filled = {"published": "filled with zeros to 5 s, not normalised, all pooled"}
        return {
            "features": hearing.identity(),
            "sampling_rate": hearing.rate,
            "max_samples": hearing.max_samples,
            "resampling": f"soxr {QUALITY}",
            "versions": {"soxr": soxr.__version__, "libsoxr": soxr.__libsoxr_version__},
            **(filled if hearing.published else {}),
        }

    def prepare(self, rows: Sequence[Any]) -> Inputs:
        """How long every sound will be; it is decoded when it is asked for."""
        hearing = self._hearing
        extents = [hearing.extent(sound) for sound in rows]
        return Inputs(
            items=Lazy(rows, hearing.clip),
            lengths=[hearing.positions(extent) for extent in extents],
            truncated=[sound.frames > hearing.most(sound.rate) for sound in rows],
            extents=extents,
            width=hearing.width,
        )

    def fit(self, rows: Mapping[str, Rows]) -> None:
        """Refuse a sound that is too short before anything is computed."""
        for part in rows.values():
            for row, sound in enumerate(part.inputs):
                if not self._hearing.positions(self._hearing.extent(sound)):
                    raise self.refuse_empty(sound, f"{part.origin}, row {row + 1}")

    def refuse_empty(self, row: Any, where: str) -> DataError:
        """A sound too short for one position."""
        least = self._hearing.least_samples / self._hearing.rate
        return DataError(
            "a sound is too short for the encoder",
            expected=f"at least {1000 * least:.4g} ms",
            found=f"{1000 * row.frames / row.rate:.4g} ms: {row.where}",
            where=where,
            hint="remove the row",
        )

    def _forward_of(self, part: Any, model: Any) -> _SoundForward:
        forward = _SoundForward(part, device=self.device, pooling=self._config.pool)
        forward.hearing = self._hearing
        forward.takes_mask &= not self._hearing.published
        return forward

    def _candidates(self, part: Any) -> tuple[Sequence[Items], int]:
        """Sounds from the shortest to the longest.

        Where every sound is filled to one length there are few: each costs as much as the longest.
        """
        hearing = self._hearing
        least, most = (hearing.positions(n) for n in (hearing.least_samples, hearing.max_samples))
        if hearing.width is None:
            lengths = sorted({least, *(n for n in (*TWINS, LONGEST) if least < n < most), most})
            lengths = [n for n in lengths if n <= LONGEST] or [most]
            twins = TWINS[-1]
        else:
            lengths, twins = [max(1, most // 3), most], most // 3
        clips: list[Clip] = []
        longest = 0
        for number, length in enumerate(lengths):
            # at one end or the other of what has so many positions
            extent = hearing.samples(length)[number % 2]
            extent = max(hearing.least_samples, min(extent, hearing.max_samples))
            clips.append(hearing.clip_of(noise(extent, number), extent))
            if length <= twins:
                clips.append(hearing.clip_of(_tone(number, extent, hearing.rate), extent))
                longest = extent
        return [clips], longest


class _SoundForward(Forward):
    """Features, filled with zeros behind the sound."""

    hearing: Hearing

    def batch(self, items: Sequence[Clip]) -> Batch:
        """Features as the model takes them, in its arithmetic."""
        width = max(len(clip.x) for clip in items)
        x_BT = np.zeros((len(items), width, *items[0].x.shape[1:]), dtype=np.float32)
        for row, clip in enumerate(items):
            x_BT[row, : len(clip.x)] = clip.x
        real_B = np.array([clip.real for clip in items])
        pooled_B = np.array([self.hearing.positions(clip.extent) for clip in items])
        features = self.hearing.shaped(self.to_device(x_BT)).to(self.dtype)
        return Batch(
            inputs={self.hearing.input_name: features},
            length_B=self.to_device(pooled_B),
            padded=int(real_B.min()) < width,
            positions=self.hearing.width or self.hearing.steps(width),
            mask=self.to_device((np.arange(width) < real_B[:, None]).astype(np.int64)),
        )

    def _reduce(self, x_BTD: Any, batch: Batch) -> dict[str, Tensor]:
        if batch.positions is None or x_BTD.shape[1] < batch.positions:
            raise Unusable(f"a layer has {x_BTD.shape[1]} states, not {batch.positions}")
        return super()._reduce(x_BTD, batch)


def _tone(number: int, samples: int, rate: int) -> NDArray[np.float32]:
    """A rising tone that comes in after some silence."""
    t = np.arange(samples) / rate
    tone = 0.3 * np.sin(2 * np.pi * (200 + 40 * number + 300 * t) * t)
    tone[: samples // 4] = 0
    return tone.astype(np.float32)
