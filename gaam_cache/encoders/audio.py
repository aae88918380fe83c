"""Audio encoders of the transformers library: WavLM, HuBERT, wav2vec 2.0, Whisper and others.

A sound of any rate and length becomes features, and the model makes hidden states of so many.

B batch, S samples at the encoder's rate, T rows of features, P positions of a hidden state, D
hidden size.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import soxr
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.config import PUBLISHED_SECONDS
from gaam_cache.encoders._fixed_rows import FixedSound, fixed_sounds
from gaam_cache.encoders._forward import Batch, Forward, Unusable, said
from gaam_cache.encoders._model import ModelEncoder
from gaam_cache.encoders._probe import Items
from gaam_cache.encoders._weights import encoder_part, skeleton
from gaam_cache.encoders.base import Inputs, LazyItems
from gaam_cache.sources.base import Rows

TWINS = (
    1,
    2,
    5,
    12,
    25,
    47,
)  # positions of the sounds that are tried together, two of each
LONGEST = 120  # of the longest one: beyond 80, where WavLM begins to round distances

QUALITY = "VHQ"  # of soxr: 28 bits, more than any sound file has
MASK = "attention_mask"
SHORT_SECONDS, LONG_SECONDS = 1.0, 2.5  # noise of which the features are looked at
DEFAULT_SECONDS = 30.0  # longest sound where nobody says; what Whisper takes at most
FEWEST = 8  # outputs that the shortest input may have to yield: some layers need more than one


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
    _hearing: _Hearing

    def _read(self) -> int:
        # torch says so of every layer of WavLM
        warnings.filterwarnings(
            "ignore", "Support for mismatched key_padding_mask", UserWarning
        )
        self._hearing = hearing = _Hearing(
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

    def reference_rows(self) -> Sequence[FixedSound]:
        """Two short sounds."""
        return fixed_sounds(self._hearing.rate)

    def prepare(self, rows: Sequence[Any]) -> Inputs:
        """How long every sound will be; it is decoded when it is asked for."""
        hearing = self._hearing
        extents = [hearing.extent(sound) for sound in rows]
        return Inputs(
            items=LazyItems(rows, hearing.clip),
            lengths=[hearing.positions(extent) for extent in extents],
            truncated=[sound.frames > hearing.most(sound.rate) for sound in rows],
            extents=extents,
            width=hearing.width,
        )

    def describe_row(self, inputs: Inputs, row: int) -> str:
        """How many frames, and of how long a sound."""
        rate = self._hearing.rate
        seconds = 0.0 if inputs.extents is None else inputs.extents[row] / rate
        return f"{super().describe_row(inputs, row)} of {seconds:.2f} s at {rate:,} Hz"

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

    def _candidates(self, part: Any, reach: int) -> tuple[Sequence[Items], int]:  # noqa: ARG002
        """Sounds from the shortest to the longest.

        Where every sound is filled to one length there are few: each costs as much as the longest.
        """
        hearing = self._hearing
        least, most = (
            hearing.positions(n) for n in (hearing.least_samples, hearing.max_samples)
        )
        if hearing.width is None:
            lengths = sorted(
                {least, *(n for n in (*TWINS, LONGEST) if least < n < most), most}
            )
            lengths = [n for n in lengths if n <= LONGEST] or [most]
            twins = TWINS[-1]
        else:
            lengths, twins = [max(1, most // 3), most], most // 3
        clips: list[_Clip] = []
        longest = 0
        for number, length in enumerate(lengths):
            # at one end or the other of what has so many positions
            extent = hearing.samples(length)[number % 2]
            extent = max(hearing.least_samples, min(extent, hearing.max_samples))
            clips.append(hearing.clip_of(noise(extent, number), extent))
            if length <= twins:
                clips.append(
                    hearing.clip_of(_tone(number, extent, hearing.rate), extent)
                )
                longest = extent
        return [clips], longest


@dataclass(frozen=True, slots=True)
class _Clip:
    """A sound as an encoder takes it."""

    x: NDArray[np.float32]  # features, time first: (S,) or (T, ...)
    real: int  # how many of them are the sound's
    extent: int  # its samples

    def __len__(self) -> int:
        """What must be equal where only sounds of equal length may share a batch."""
        return self.extent

    def __getitem__(self, backwards: slice) -> _Clip:
        """``[::-1]``: another one of the same length."""
        return _Clip(np.ascontiguousarray(self.x[backwards]), self.real, self.extent)


@dataclass(frozen=True, slots=True)
class _Steps:
    """How a length becomes a shorter one.

    Formula: ``y(n) = floor((n + offset) / stride)``; 0 below ``least`` and of nothing.

    A chain of convolutions, poolings and windows, each of which rounds down or up, has this form
    as a whole, whatever their sizes: ``floor((floor((n + a) / s) + b) / t)`` is
    ``floor((n + a + b s) / (s t))``.
    """

    offset: int
    stride: int
    least: int = 1  # the smallest y that there is

    def __call__(self, n: int) -> int:
        """Outputs of n inputs."""
        found = (n + self.offset) // self.stride
        return found if n > 0 and found >= self.least else 0

    def first(self, y: int) -> int:
        """The smallest n of at least y outputs."""
        return max(1, self.stride * y - self.offset)

    def last(self, y: int) -> int:
        """The greatest n of y outputs."""
        return self.first(y + 1) - 1


def measure(count: Callable[[int], int], low: int, high: int, what: str) -> _Steps:
    """Find the two numbers of ``_Steps`` from some lengths between two, and try them on others.

    ``count`` fails, with any exception, where inputs are too few; ``low`` of them are enough.
    """
    at_low, at_high = count(low), count(high)
    if at_high <= at_low + 1:
        raise Unusable(f"{what} grows by {at_high - at_low} from {low:,} to {high:,}")
    # the first length after low at which there is one more
    longest = (high - low) // (at_high - at_low - 1)
    below, above = low, min(low + longest, high)
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if count(middle) > at_low else (middle, above)
    for stride in range(max(1, (high - low) // (at_high - at_low + 1)), longest + 1):
        steps = _Steps(offset=stride * (at_low + 1) - above, stride=stride)
        if (steps(low), steps(high)) != (at_low, at_high):
            continue
        edges = [steps.first(y) for y in (at_high, (at_low + at_high) // 2)]
        if all(count(n) == steps(n) for edge in edges for n in (edge, edge - 1)):
            return replace(steps, least=_least(count, steps, what))
    raise Unusable(
        f"{what} does not grow evenly: {at_low} of {low:,}, {at_high} of {high:,}"
    )


def _least(count: Callable[[int], int], steps: _Steps, what: str) -> int:
    fewest = max(1, steps(1))
    for least in range(fewest, fewest + FEWEST):
        with suppress(Exception):  # of others; too short for them
            if count(steps.first(least)) == least:
                return least
            break
    raise Unusable(f"{what} of {steps.first(fewest):,} and a few more cannot be told")


class _Hearing:
    """How an encoder hears: which samples of a sound, which features, how many positions.

    Measured by running the feature extractor on noise of some lengths, and a copy of the model
    without weights. ``published``: filled with zeros to 5 s, not normalised, all pooled.
    """

    def __init__(
        self, folder: Path, part: Any, *, seconds: float | None, published: bool
    ) -> None:
        self._extractor = transformers.AutoFeatureExtractor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        self.published = published
        self.rate: int = getattr(self._extractor, "sampling_rate", 0)
        if type(self.rate) is not int or self.rate < 1:
            raise Unusable(f"its feature extractor has the sampling rate {self.rate!r}")
        self._name = type(self._extractor).__name__
        self._look_at_features(frozenset(inspect.signature(part.forward).parameters))
        if published and not self.is_waveform:
            expected = "such as WavLM, HuBERT or wav2vec 2.0"
            message = "published-audio is for encoders of samples"
            raise ConfigError(message, expected=expected, found=self._name)
        most = self.real.last(self._total) / self.rate if self._total else math.inf
        if seconds is not None and seconds > most:
            message = "clip-seconds is more than the encoder takes at once"
            raise ConfigError(
                message, expected=f"at most {most:g} s", found=f"{seconds:g}"
            )
        self.seconds = seconds or min(
            PUBLISHED_SECONDS if published else DEFAULT_SECONDS, most
        )
        self.max_samples = math.ceil(self.seconds * self.rate)
        self.width: int | None = (
            None  # P of every sound, where all are filled to one length
        )
        if self._total is None:
            high = self.real(self.max_samples)
            low = max(1, min(self.real(self.rate), high // 3))
            self.steps = measure(lambda n: self._count(part, n), low, high, "the model")
            self.width = self.steps(self.max_samples) if published else None
        else:
            self.width = self._count(part, self._total)
            if self._total % self.width:
                raise Unusable(
                    f"{self._total:,} {self.input_name} give {self.width:,} states"
                )
            each = self._total // self.width
            self.steps = _Steps(offset=each - 1, stride=each)
        one = self.steps.first(self.steps.least)
        self.least_samples = self.real.first(max(one, self.real.least))
        """Of a sound that gives a position."""

    def _look_at_features(self, takes: Set[str]) -> None:
        short, long = (
            noise(round(s * self.rate)) for s in (SHORT_SECONDS, LONG_SECONDS)
        )
        made = [self._call(samples) for samples in (short, long, short)]
        given = [key for key in made[0] if key != MASK]
        if len(given) != 1 or given[0] not in takes:
            raise Unusable(f"its {self._name} makes {given}; it takes {sorted(takes)}")
        [self.input_name] = given
        first, longer, again = (one[self.input_name] for one in made)
        if not np.array_equal(first, again):
            raise Unusable(f"its {self._name} draws random numbers")
        fixed = first.shape == longer.shape
        mask = made[0][MASK].shape if MASK in made[0] else None
        if not fixed and first.ndim == longer.ndim:
            axes = [i for i in range(first.ndim) if first.shape[i] != longer.shape[i]]
        else:
            axes = [i for i in range(first.ndim) if mask == first.shape[i : i + 1]]
        if len(axes) != 1 or mask not in (None, first.shape[axes[0] : axes[0] + 1]):
            shapes = f"{first.shape} and {longer.shape}, mask {mask}"
            raise Unusable(
                f"which axis its {self._name} has for time cannot be told: {shapes}"
            )
        [self._axis] = axes
        self._total = first.shape[self._axis] if fixed else None
        """T, where every sound is filled to one length."""
        self._row_shape = np.moveaxis(first, self._axis, 0).shape[1:]
        self.is_waveform = first.shape == short.shape and not fixed
        """Whether the features are the samples, normalised at most."""
        high = round((LONG_SECONDS if fixed else 10 * LONG_SECONDS) * self.rate)
        count = lambda n: self._features(noise(n))[1]  # noqa: E731
        self.real = measure(count, len(short), high, f"its {self._name}")
        """S -> rows of features that are the sound's."""

    def _features(
        self, samples_S: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], int]:
        """Features, time first, and how many of them are the sound's."""
        made = self._call(samples_S)
        x = np.ascontiguousarray(np.moveaxis(made[self.input_name], self._axis, 0))
        real = int(made[MASK].sum()) if MASK in made else len(x)
        return x.astype(np.float32, copy=False), real

    def _call(self, samples_S: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        """All that the extractor makes of one sound, without the axis for the batch."""
        try:
            how = {"return_tensors": "np", "return_attention_mask": True}
            made = self._extractor(samples_S, sampling_rate=self.rate, **how)
            return {name: np.asarray(value)[0] for name, value in made.items()}
        except Exception as error:  # of others, who raise what they like
            what = f"its feature extractor fails on {len(samples_S):,} samples"
            raise Unusable(f"{what}: {said(error)}") from error

    @torch.no_grad()
    def _count(self, part: Any, features: int) -> int:
        """P, by running a model without weights."""
        shape = (1, features, *self._row_shape)
        x = self.shaped(torch.zeros(shape, dtype=torch.float32, device="meta"))
        try:
            output = part(**{self.input_name: x}, output_hidden_states=True)
            _, positions, _ = output.hidden_states[-1].shape
        except Exception as error:  # of others, which may fail in any way
            what = f"it fails on {features:,} {self.input_name}"
            raise Unusable(f"{what}: {said(error)}") from error
        return int(positions)

    def identity(self) -> str:
        """What decides the features beside the extractor's configuration."""
        if self.is_waveform:
            return self._name
        versions = f"transformers {transformers.__version__}"
        return f"{self._name}, {versions}, torch {torch.__version__.partition('+')[0]}"

    def shaped(self, x_BT: Tensor) -> Tensor:
        """A batch of features, time second, as the model takes it."""
        return x_BT.movedim(1, self._axis + 1).contiguous()

    def most(self, rate: int) -> int:
        """Samples of the longest sound in a file of that rate."""
        return math.ceil(self.seconds * rate)

    def extent(self, sound: Any) -> int:
        """S of a sound, cut where it is too long: to the nearest, half of one up."""
        frames = min(sound.frames, self.most(sound.rate))
        return min(
            (2 * frames * self.rate + sound.rate) // (2 * sound.rate), self.max_samples
        )

    def positions(self, extent: int) -> int:
        """P of a sound of that many samples, those of what fills it not counted."""
        return self.width or 0 if self.published else self.steps(self.real(extent))

    def samples(self, positions: int) -> tuple[int, int]:
        """The fewest and the most samples of so many positions."""
        steps = self.steps
        return self.real.first(steps.first(positions)), self.real.last(
            steps.last(positions)
        )

    def clip(self, sound: Any) -> _Clip:
        """Decode a sound, cut it, bring it to the encoder's rate and take its features."""
        samples = sound.samples()[: self.most(sound.rate)]
        if sound.rate != self.rate:
            samples = soxr.resample(samples, sound.rate, self.rate, quality=QUALITY)
        return self.clip_of(samples[: self.max_samples], self.extent(sound))

    def clip_of(self, samples_S: NDArray[np.float32], extent: int) -> _Clip:
        """Of samples at the encoder's rate, of which there must be ``extent``."""
        if self.published:
            x = np.pad(samples_S, (0, self.max_samples - len(samples_S)))
            real = expected = len(x)
        else:
            try:
                x, real = self._features(samples_S)
            except Unusable as reason:
                raise DataError(
                    "a sound cannot be made ready", found=str(reason)
                ) from reason
            expected = self.real(extent)
        if (len(samples_S), real) != (extent, expected):
            raise DataError(
                "a sound has another length than its file said",
                expected=f"{extent:,} samples, {expected:,} {self.input_name}",
                found=f"{len(samples_S):,} and {real:,}",
            )
        return _Clip(x=x, real=real if self.width is None else len(x), extent=extent)


class _SoundForward(Forward):
    """Features, filled with zeros behind the sound."""

    hearing: _Hearing

    def batch(self, items: Sequence[_Clip]) -> Batch:
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

    def _pool_layer(self, x_BTD: Any, batch: Batch) -> dict[str, Tensor]:
        if batch.positions is None or x_BTD.shape[1] < batch.positions:
            raise Unusable(
                f"a layer has {x_BTD.shape[1]} states, not {batch.positions}"
            )
        return super()._pool_layer(x_BTD, batch)


def _tone(number: int, samples: int, rate: int) -> NDArray[np.float32]:
    """A rising tone that comes in after some silence."""
    t = np.arange(samples) / rate
    tone = 0.3 * np.sin(2 * np.pi * (200 + 40 * number + 300 * t) * t)
    tone[: samples // 4] = 0
    return tone.astype(np.float32)


def noise(samples: int, seed: int = 0) -> NDArray[np.float32]:
    """A sound for measuring."""
    return (
        np.random.default_rng(seed).normal(scale=0.1, size=samples).astype(np.float32)
    )
