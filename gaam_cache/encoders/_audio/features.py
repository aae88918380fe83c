"""Features of a sound by the encoder's own feature extractor, of one sound at a time.

S samples, T rows of features.
"""

from __future__ import annotations

import json
from collections.abc import Set
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers.models.auto.feature_extraction_auto import FEATURE_EXTRACTOR_MAPPING

from gaam_cache.encoders._audio.steps import measure
from gaam_cache.encoders._located import PROCESSORS
from gaam_cache.encoders._model.forward import Unusable
from gaam_cache.errors import ConfigError

MASK = "attention_mask"
SHORT_SECONDS, LONG_SECONDS = 1.0, 2.5
"""Noise of which the features are looked at."""


class Features:
    """What the feature extractor makes of samples, and how many rows of it.

    Nothing is read off its name: it is run on noise of some lengths, which shows whether it fills
    every sound to one length, which axis is time, and whether it draws random numbers.

    Args:
        folder: of the encoder.
        model_config: of the encoder.
        takes: names of what the model can be given.

    Raises:
        ConfigError: the folder holds no feature extractor.
        Unusable: it makes something that the model does not take, or not the same twice.
    """

    def __init__(
        self, folder: Path, model_config: transformers.PretrainedConfig, takes: Set[str]
    ) -> None:
        _check_there(folder, model_config)
        self._extractor = transformers.AutoFeatureExtractor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        rate = getattr(self._extractor, "sampling_rate", None)
        if type(rate) is not int or rate < 1:
            raise Unusable(f"its feature extractor has the sampling rate {rate!r}")
        self.rate: int = rate
        self.name = type(self._extractor).__name__
        short, long = (_noise(round(s * rate)) for s in (SHORT_SECONDS, LONG_SECONDS))
        made = [self._call(samples) for samples in (short, long, short)]
        self.input_name = _input_name(made[0], takes, self.name)
        first, longer, again = (one[self.input_name] for one in made)
        if not np.array_equal(first, again):
            raise Unusable(f"its {self.name} draws random numbers: the same sound has others twice")
        self.fixed = first.shape == longer.shape
        """Whether every sound is filled to one length."""
        self._axis = self._time_axis(first, longer, made[0].get(MASK))
        self.total = first.shape[self._axis] if self.fixed else None
        """T, where it is always the same."""
        self.row_shape = np.moveaxis(first, self._axis, 0).shape[1:]
        self.is_waveform = first.shape == short.shape and not self.fixed
        """Whether the features are the samples, normalised at most."""
        high = round((LONG_SECONDS if self.fixed else 10 * LONG_SECONDS) * rate)
        self.real = measure(self._count_real, round(SHORT_SECONDS * rate), high, f"its {self.name}")
        """S -> rows of features that are the sound's."""

    def of(self, samples_S: NDArray[np.float32]) -> tuple[NDArray[np.float32], int]:
        """Features, time first, and how many of them are the sound's."""
        made = self._call(samples_S)
        x = np.ascontiguousarray(np.moveaxis(made[self.input_name], self._axis, 0))
        real = int(made[MASK].sum()) if MASK in made else len(x)
        return x.astype(np.float32, copy=False), real

    def identity(self) -> str:
        """What decides the numbers beside its configuration."""
        if self.is_waveform:
            return self.name
        versions = f"transformers {transformers.__version__}"
        return f"{self.name}, {versions}, torch {torch.__version__.partition('+')[0]}"

    def shaped(self, x_BT: torch.Tensor) -> torch.Tensor:
        """A batch of features, time second, as the model takes it."""
        return x_BT.movedim(1, self._axis + 1).contiguous()

    def _count_real(self, samples: int) -> int:
        x, real = self.of(_noise(samples))
        if not np.isfinite(x).all():
            raise Unusable(f"its {self.name} yields no numbers of {samples:,} samples")
        return real

    def _call(self, samples_S: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        """All that it makes of one sound, without the axis for the batch."""
        try:
            made = self._extractor(
                samples_S,
                sampling_rate=self.rate,
                return_tensors="np",
                return_attention_mask=True,
            )
            return {name: np.asarray(value)[0] for name, value in made.items()}
        except Exception as error:  # of others, who raise what they like
            said = (str(error).strip().splitlines() or [""])[0]
            raise Unusable(
                f"its feature extractor fails on {len(samples_S):,} samples: "
                f"{type(error).__name__}: {said:.200}"
            ) from error

    def _time_axis(
        self, first: NDArray[Any], longer: NDArray[Any], mask_T: NDArray[Any] | None
    ) -> int:
        masked = None if mask_T is None else mask_T.shape
        if not self.fixed and first.ndim == longer.ndim:
            axes = [i for i in range(first.ndim) if first.shape[i] != longer.shape[i]]
        else:
            axes = [i for i in range(first.ndim) if masked == first.shape[i : i + 1]]
        if len(axes) != 1 or masked not in (None, first.shape[axes[0] : axes[0] + 1]):
            raise Unusable(
                f"which axis of what its {self.name} makes is time cannot be told: {first.shape} "
                f"of {SHORT_SECONDS} s, {longer.shape} of {LONG_SECONDS} s, mask {masked}"
            )
        return axes[0]


def _noise(samples: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(scale=0.1, size=samples).astype(np.float32)


def _input_name(made: dict[str, NDArray[Any]], takes: Set[str], name: str) -> str:
    """What the model takes of what was made, the mask aside."""
    found = [key for key in made if key != MASK]
    if len(found) != 1 or found[0] not in takes:
        raise Unusable(
            f"its {name} makes {', '.join(found)}; the part of the model that is run takes "
            f"{', '.join(sorted(takes - {'kwargs'}))}"
        )
    return found[0]


def _check_there(folder: Path, model_config: transformers.PretrainedConfig) -> None:
    if type(model_config) not in FEATURE_EXTRACTOR_MAPPING:
        raise ConfigError(
            "the encoder reads no sounds",
            expected="an audio encoder, such as WavLM, HuBERT, wav2vec 2.0 or Whisper",
            found=f"model_type {model_config.model_type}",
            where=str(folder),
        )
    first, second = (folder / name for name in PROCESSORS)
    if first.is_file():
        return
    try:
        if "feature_extractor" in json.loads(second.read_bytes()):
            return
    except (OSError, ValueError, TypeError, RecursionError):
        pass  # said below
    raise ConfigError(
        f"'{folder}' does not say how a sound is made ready for the encoder",
        expected=PROCESSORS[0],
        found="none",
        where=str(folder),
        hint="save it there too: AutoFeatureExtractor.from_pretrained(...).save_pretrained(folder)",
    )
