"""From a sound of any rate and length to features, and what a model makes of so many.

S samples at the encoder's rate, T rows of features, P positions of a hidden state.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.config_checks import PUBLISHED_SECONDS
from gaam_cache.encoders._audio.clip import Clip, Sound, resample, resampled_frames
from gaam_cache.encoders._audio.features import Features
from gaam_cache.encoders._audio.steps import Steps, measure
from gaam_cache.encoders._model.forward import Unusable
from gaam_cache.encoders._model.outline import quiet
from gaam_cache.errors import ConfigError, DataError

DEFAULT_SECONDS = 30.0
"""Longest sound where nobody says; what Whisper takes at most."""


class Hearing:
    """How an encoder hears: which samples of a sound, which features, how many positions.

    How many positions a model makes of so many features is measured on a copy without weights.

    Args:
        features: of the encoder.
        part: of the model what is run, without weights.
        seconds: longest sound; None where nobody says.
        published: as in the published code: filled with zeros to 5 s, not normalised, all pooled.

    Raises:
        ConfigError: it cannot hear so much at once, or not as in the published code.
        Unusable: the model does not make positions of features evenly.
    """

    def __init__(
        self,
        features: Features,
        part: Any,
        *,
        seconds: float | None,
        published: bool,
    ) -> None:
        self.features = features
        self.published = published
        self.rate = features.rate
        if published and not features.is_waveform:
            raise ConfigError(
                "published-audio is for encoders of samples",
                expected="such as WavLM, HuBERT or wav2vec 2.0",
                found=f"a {features.name}, which makes {features.input_name} of them",
            )
        self.seconds = seconds or (PUBLISHED_SECONDS if published else DEFAULT_SECONDS)
        if features.total is not None:
            self.seconds = self._bounded(seconds, features.real.last(features.total) / self.rate)
        self.max_samples = math.ceil(self.seconds * self.rate)
        self._steps: Steps
        if features.total is None:
            high = features.real(self.max_samples)
            low = max(1, min(features.real(self.rate), high // 3))
            self._steps = measure(lambda n: self._count(part, n), low, high, "the model")
            self.width = None
        else:
            self.width = self._count(part, features.total)
            if features.total % self.width:
                raise Unusable(
                    f"{features.total:,} {features.input_name} give {self.width:,} states: not one "
                    "for every so many"
                )
            each = features.total // self.width
            self._steps = Steps(offset=each - 1, stride=each)
        if published:
            self.width = self._steps(self.max_samples)

    def _bounded(self, asked: float | None, most: float) -> float:
        if asked is not None and asked > most:
            raise ConfigError(
                "clip-seconds is more than the encoder takes at once",
                expected=f"at most {most:g} s",
                found=f"{asked:g}",
            )
        return asked or min(DEFAULT_SECONDS, most)

    @property
    def input_name(self) -> str:
        """What the model calls features."""
        return self.features.input_name

    @property
    def least_samples(self) -> int:
        """Of a sound that gives a position."""
        one = self._steps.first(self._steps.least)
        return self.features.real.first(max(one, self.features.real.least))

    def extent(self, sound: Sound) -> int:
        """S of a sound, cut where it is too long."""
        frames = min(sound.frames, self._most(sound.rate))
        return min(resampled_frames(frames, sound.rate, self.rate), self.max_samples)

    def is_cut(self, sound: Sound) -> bool:
        """Whether it is longer than the longest."""
        return sound.frames > self._most(sound.rate)

    def _most(self, rate: int) -> int:
        """Samples of the longest sound in a file of that rate."""
        return math.ceil(self.seconds * rate)

    def positions(self, extent: int) -> int:
        """P of a sound of that many samples, those of what fills it not counted."""
        if self.published:
            return self.width or 0
        return self._steps(self.features.real(extent))

    def positions_of_features(self, count: int) -> int:
        """P of that many features, whatever they are."""
        return self.width or self._steps(count)

    def first(self, positions: int) -> int:
        """The fewest samples of so many positions."""
        return self.features.real.first(self._steps.first(positions))

    def last(self, positions: int) -> int:
        """The most samples of so many positions."""
        return self.features.real.last(self._steps.last(positions))

    def clip(self, sound: Sound) -> Clip:
        """Decode a sound, cut it, bring it to the encoder's rate and take its features.

        Raises:
            DataError: it has other samples than it said.
            ConfigError: its features are not those that were to be expected.
        """
        samples = sound.samples()
        if samples.shape != (sound.frames,):
            raise DataError(
                "a sound has another length than its file said",
                expected=f"{sound.frames:,} samples",
                found=" x ".join(map(str, samples.shape)),
            )
        heard = resample(samples[: self._most(sound.rate)], sound.rate, self.rate)
        return self.clip_of(heard[: self.max_samples], self.extent(sound))

    def clip_of(self, samples_S: NDArray[np.float32], extent: int | None = None) -> Clip:
        """Of samples at the encoder's rate, of which there must be ``extent``."""
        extent = len(samples_S) if extent is None else extent
        if self.published:
            x = np.zeros(self.max_samples, dtype=np.float32)
            x[: len(samples_S)] = samples_S
            real, expected = len(x), len(x)
        else:
            try:
                x, real = self.features.of(samples_S)
            except Unusable as reason:
                raise ConfigError("a sound cannot be made ready", found=str(reason)) from reason
            expected = self.features.real(extent)
        if (len(samples_S), real) != (extent, expected):
            raise ConfigError(
                "a sound has another length than those that were tried",
                expected=f"{extent:,} samples, {expected:,} {self.input_name}",
                found=f"{len(samples_S):,} and {real:,}",
            )
        return Clip(x=x, real=real if self.width is None else len(x), extent=extent)

    def zeros_of(self, positions: int) -> dict[str, Tensor]:
        """What the model is called with for so many positions, without memory."""
        count = self.features.total or self._steps.first(positions)
        return self._zeros(count, torch.bfloat16)

    def _zeros(self, count: int, dtype: torch.dtype) -> dict[str, Tensor]:
        x = torch.zeros((1, count, *self.features.row_shape), dtype=dtype, device="meta")
        return {self.input_name: self.features.shaped(x)}

    @torch.no_grad()
    def _count(self, part: Any, features: int) -> int:
        """P, by running a model without weights."""
        inputs = self._zeros(features, torch.float32)
        with quiet():
            try:
                output = part(**inputs, output_hidden_states=True)
                shape = output.hidden_states[-1].shape
            except Exception as error:  # of others, which may fail in any way
                said = (str(error).strip().splitlines() or [""])[0]
                raise Unusable(
                    f"it fails on {features:,} {self.input_name}: {type(error).__name__}: "
                    f"{said:.200}"
                ) from error
        if len(shape) != 3:
            raise Unusable(f"its hidden states have {len(shape)} axes instead of 3")
        return int(shape[1])
