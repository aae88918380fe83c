"""Audio encoders of the transformers library: WavLM, HuBERT, wav2vec 2.0, Whisper and others."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import soxr
import transformers
from torch import Tensor

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._audio.clip import QUALITY, Clips, Sound
from gaam_cache.encoders._audio.features import Features
from gaam_cache.encoders._audio.forward import SoundForward
from gaam_cache.encoders._audio.hearing import Hearing
from gaam_cache.encoders._audio.probe_sounds import probe_sounds
from gaam_cache.encoders._inputs import Inputs
from gaam_cache.encoders._located import Located
from gaam_cache.encoders._model.encoder import ModelEncoder
from gaam_cache.encoders._model.forward import Unusable
from gaam_cache.encoders._model.probe import Items
from gaam_cache.encoders._model.weights import skeleton
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.sources._base import Rows

OUTLINE_POSITIONS = 500
"""Of the sound by which the shape is told without weights."""


class AudioEncoder(ModelEncoder):
    """Sounds in, pooled states of every layer out.

    A sound is brought to the encoder's rate by soxr, and made ready by the encoder's own feature
    extractor, alone and before anything is filled up: that normalises it by its own numbers. Of an
    encoder-decoder model the encoder is used.

    Numerics:
        Encoders that normalise over time change with what fills a batch and take no mask for it;
        ``batching`` then allows sounds of exactly equal length only. Where the feature extractor
        fills every sound to one length, as Whisper's does, the positions behind the sound are not
        pooled: of n samples Whisper has ``ceil(n / 160)`` rows of a spectrogram, and a position for
        every two of them, ``ceil(n / 320)``.
    """

    noun: ClassVar[str] = "sound"
    unit: ClassVar[str] = "frames"
    reads: ClassVar[str] = "an audio encoder and feature extractor"
    takes: ClassVar[frozenset[str]] = ModelEncoder.takes | {"published_audio"}
    _hearing: Hearing

    @classmethod
    def _read(
        cls, located: Located, config: ExtractConfig, model_config: transformers.PretrainedConfig
    ) -> Self:
        try:
            hearing = cls._listen(located, config, model_config)
        except Unusable as reason:
            raise _refusal(config.encoder, reason) from reason
        longest = hearing.positions(hearing.max_samples)
        if config.max_length not in (None, longest):  # which is what a plan records
            raise ConfigError(
                "--max-length is for texts",
                expected="clip-seconds, the longest sound",
                found=f"--max-length {config.max_length}",
            )
        encoder = cls(located, config, model_config, longest)
        encoder._hearing = hearing
        return encoder

    @classmethod
    def _listen(
        cls, located: Located, config: ExtractConfig, model_config: transformers.PretrainedConfig
    ) -> Hearing:
        part = audio_part(skeleton(model_config).eval())
        takes = frozenset(inspect.signature(part.forward).parameters)
        # torch says so of every layer of WavLM
        warnings.filterwarnings("ignore", "Support for mismatched key_padding_mask", UserWarning)
        return Hearing(
            Features(located.path, model_config, takes),
            part,
            seconds=config.clip_seconds,
            published=config.published_audio,
        )

    def _settings(self) -> dict[str, Any]:
        hearing = self._hearing
        filled = {"published": "filled with zeros to 5 s, not normalised, all pooled"}
        return {
            "features": hearing.features.identity(),
            "sampling_rate": hearing.rate,
            "max_samples": hearing.max_samples,
            "resampling": f"soxr {QUALITY}",
            "versions": {"soxr": soxr.__version__, "libsoxr": soxr.__libsoxr_version__},
            **(filled if hearing.published else {}),
        }

    def _part_of(self, model: Any) -> Any:
        return audio_part(model)

    def prepare(self, rows: Sequence[Sound]) -> Inputs:
        """How long every sound will be; it is decoded when it is asked for."""
        hearing = self._hearing
        extents = [hearing.extent(sound) for sound in rows]
        return Inputs(
            items=Clips(rows, hearing.clip),
            lengths=[hearing.positions(extent) for extent in extents],
            truncated=[hearing.is_cut(sound) for sound in rows],
            extents=extents,
            decoded=True,
            width=hearing.width,
        )

    def fit(self, rows: Mapping[str, Rows]) -> None:
        """Refuse a sound that is too short before anything is computed.

        Raises:
            DataError: naming the first one.
        """
        for part in rows.values():
            for row, sound in enumerate(part.inputs):
                if not self._hearing.positions(self._hearing.extent(sound)):
                    raise self.refuse_empty(sound, f"{part.origin}, row {row + 1}")

    def refuse_empty(self, row: Sound, where: str) -> DataError:
        """A sound too short for one position."""
        least = self._hearing.least_samples / self._hearing.rate
        return DataError(
            "a sound is too short for the encoder",
            expected=f"at least {1000 * least:.4g} ms",
            found=f"{1000 * row.frames / row.rate:.4g} ms: {row.blob.where}",
            where=where,
            hint="remove the row",
        )

    def _without_numbers(self) -> dict[str, Tensor]:
        return self._hearing.zeros_of(self._hearing.width or OUTLINE_POSITIONS)

    def _forward_of(self, part: Any, model: Any) -> SoundForward:
        return SoundForward(
            part, device=self.device, pooling=self._config.pool, hearing=self._hearing
        )

    def _candidates(self, part: Any, model: Any) -> tuple[Sequence[Items], int]:
        clips, longest = probe_sounds(self._hearing)
        return [clips], longest

    def _failed(self, reason: Unusable) -> ConfigError:
        return _refusal(self.name, reason)


def _refusal(name: str, reason: Unusable) -> ConfigError:
    return ConfigError(
        f"'{name}' does not yield a state for every layer and stretch of a sound",
        expected="an audio encoder whose hidden states transformers returns from what its feature "
        "extractor makes of a sound",
        found=str(reason),
        hint="choose another encoder",
    )


def audio_part(model: Any) -> Any:
    """What reads the sound: of an encoder-decoder model, its encoder."""
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model
