"""Audio encoders of the transformers library: WavLM, HuBERT, wav2vec 2.0, Whisper, ...

The encoder's feature extractor turns a sound into rows of features. The model turns
these rows into hidden states, of which there are fewer.

Shape suffixes: B sounds of a batch, S samples at the encoder's rate, T rows of features
or positions of a layer, D hidden size. P is the number of positions of a sound.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
import soxr
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn

from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.config import PUBLISHED_SECONDS
from gaam_cache.encoders._fixed_rows import FixedSound, fixed_sounds
from gaam_cache.encoders._forward import Batch, Forward, Unusable, error_summary
from gaam_cache.encoders._lengths import Downsampling, fit_downsampling
from gaam_cache.encoders._model import ModelEncoder
from gaam_cache.encoders._probe import ProbeRows
from gaam_cache.encoders._weights import encoder_part, skeleton
from gaam_cache.encoders.base import (
    SETTINGS_OF_PICTURES,
    SETTINGS_OF_TEXTS,
    Inputs,
    LazyItems,
)
from gaam_cache.sources.base import Rows

PAIR_LENGTHS = (1, 2, 5, 12, 25, 47)
"""Positions of the probe's short sounds; there are two sounds of each length."""
LONGEST_PROBE = 120
"""Positions of the probe's longest sound: WavLM begins to round distances beyond 80."""
RESAMPLING_QUALITY = "VHQ"
"""Quality of soxr: 28 bits, more than any sound file has."""
MASK = "attention_mask"
SHORT_NOISE_SECONDS = 1.0
"""Length of the short noise with which the feature extractor is measured."""
LONG_NOISE_SECONDS = 2.5
"""Length of the long noise with which the feature extractor is measured."""
MOST_EXTRA_ROWS = 16
"""Rows of features that a short sound may need beyond those of one position."""
DEFAULT_MAX_SECONDS = 30.0
"""Longest sound by default; Whisper takes no more."""


class AudioEncoder(ModelEncoder):
    """An encoder of sounds; of an encoder-decoder model only the encoder runs.

    soxr resamples a sound to the encoder's rate. The encoder's own feature extractor
    prepares each sound alone, since it may normalise a sound by the mean and variance
    of that sound.

    Encoders that normalise over time take no mask; ``batching`` then allows only
    batches of equally long sounds. If an encoder pads every sound to one length, the
    positions after the end of the sound are not pooled.

    A probe, which runs the loaded model on a few sounds, measures which sounds may
    share a batch.
    """

    noun: ClassVar[str] = "sound"
    unit: ClassVar[str] = "frames"
    input_names: ClassVar[frozenset[str]] = frozenset(
        {"input_values", "input_features"}
    )
    expected_encoder: ClassVar[str] = "an audio encoder and feature extractor"
    example_encoder: ClassVar[str] = "openai/whisper-base"
    position_noun: ClassVar[str] = "stretch of a sound"
    unused_settings: ClassVar[tuple[str, ...]] = (
        *SETTINGS_OF_TEXTS,
        *SETTINGS_OF_PICTURES,
        "max_length",
    )
    _front_end: _FrontEnd

    def _read_preprocessor(self) -> None:
        """Load and measure the feature extractor; set ``max_length`` in positions."""
        # torch repeats this warning for every layer of WavLM.
        warnings.filterwarnings(
            "ignore", "Support for mismatched key_padding_mask", UserWarning
        )
        # a skeleton is the model without weights, which is enough to count positions
        self._front_end = _FrontEnd(
            self._located.path,
            encoder_part(skeleton(self._model_config).eval()),
            seconds=self._config.clip_seconds,
            as_published=self._config.published_audio,
        )
        self.max_length = self._front_end.positions_of_samples(
            self._front_end.max_samples
        )

    def _settings(self) -> dict[str, Any]:
        """How sounds are cut, resampled and turned into features, as JSON values."""
        front_end = self._front_end
        settings: dict[str, Any] = {
            "features": front_end.identity(),
            "sampling_rate": front_end.rate,
            "max_samples": front_end.max_samples,
            "resampling": f"soxr {RESAMPLING_QUALITY}",
            "versions": {"soxr": soxr.__version__, "libsoxr": soxr.__libsoxr_version__},
        }
        # As the code of the GAAM paper prepares sounds; other extractions have no key.
        if front_end.as_published:
            settings["published"] = (
                "filled with zeros to 5 s, not normalised, all pooled"
            )
        return settings

    def reference_rows(self) -> Sequence[FixedSound]:
        """Two short sounds at the encoder's rate."""
        return fixed_sounds(self._front_end.rate)

    def prepare(self, rows: Sequence[Any]) -> Inputs:
        """Describe the sounds for batching; reading an item decodes its sound.

        The length of a sound is its number of positions; its extent, which decides
        whether two sounds are equally long, is its number of samples.
        """
        front_end = self._front_end
        # samples after resampling; they follow from the length and rate of the file
        sample_counts = [front_end.num_samples(sound) for sound in rows]
        position_counts = list(map(front_end.positions_of_samples, sample_counts))
        return Inputs(
            items=LazyItems(rows, front_end.read_clip),
            lengths=position_counts,
            # a frame is a sample at the rate of the file
            truncated=[
                sound.frames > front_end.max_frames(sound.rate) for sound in rows
            ],
            extents=sample_counts,
            fixed_positions=front_end.fixed_positions,
        )

    def describe_row(self, inputs: Inputs, row: int) -> str:
        """Describe a sound by its frames, seconds and sampling rate."""
        rate = self._front_end.rate
        seconds = 0.0 if inputs.extents is None else inputs.extents[row] / rate
        return f"{super().describe_row(inputs, row)} of {seconds:.2f} s at {rate:,} Hz"

    def fit(self, rows: Mapping[str, Rows]) -> None:
        """Refuse sounds too short for one position, before anything is computed.

        Nothing is learned from the rows.
        """
        for split_rows in rows.values():
            for number, sound in enumerate(split_rows.inputs, start=1):
                num_samples = self._front_end.num_samples(sound)
                if not self._front_end.positions_of_samples(num_samples):
                    raise self.empty_row_error(
                        sound, f"{split_rows.origin}, row {number}"
                    )

    def empty_row_error(self, row: Any, where: str) -> DataError:
        """Build the error for a sound too short for one position.

        Args:
            row: the sound.
            where: its split and number, for the message.
        """
        least_seconds = self._front_end.least_samples / self._front_end.rate
        return DataError(
            "a sound is too short for the encoder",
            expected=f"at least {1000 * least_seconds:.4g} ms",
            found=f"{1000 * row.frames / row.rate:.4g} ms: {row.where}",
            where=where,
            hint="remove the row",
        )

    def _make_forward(
        self,
        part: nn.Module,
        model: nn.Module,  # noqa: ARG002
    ) -> _SoundForward:
        """Build the forward of the model, which asks the front end for lengths."""
        forward = _SoundForward(part, device=self.device, pooling=self._config.pool)
        forward.front_end = self._front_end
        # The code of the GAAM paper fills sounds with zeros, and passes no mask.
        if self._front_end.as_published:
            forward.takes_mask = False
        return forward

    def _make_probe_rows(
        self,
        part: nn.Module,  # noqa: ARG002
        probe_length: int,  # noqa: ARG002
    ) -> ProbeRows:
        """Make one set of sounds for the probe, from the shortest to the longest.

        Every length has a sound of noise. A short length also has a tone, so that two
        different sounds of one length can share a batch.
        """
        front_end = self._front_end
        lengths, longest_short = self._probe_lengths()
        clips: list[_Clip] = []
        most_short_samples = 0
        for number, length in enumerate(lengths):
            # Sounds of a range of samples have the same number of positions. Every
            # second sound has the most samples, to try both ends of the range.
            fewest, most = front_end.sample_range(length)
            num_samples = fewest if number % 2 == 0 else most
            num_samples = max(
                front_end.least_samples, min(num_samples, front_end.max_samples)
            )
            clips.append(front_end.make_clip(noise(num_samples, number), num_samples))
            if length <= longest_short:
                tone = _tone(number, num_samples, front_end.rate)
                clips.append(front_end.make_clip(tone, num_samples))
                most_short_samples = num_samples
        # The probe takes ``len`` as the length of a row: of a clip, its samples.
        return ProbeRows(sets=[clips], short_length=most_short_samples)

    def _probe_lengths(self) -> _ProbeLengths:
        """Choose the lengths of the probe's sounds in positions."""
        front_end = self._front_end
        shortest = front_end.positions_of_samples(front_end.least_samples)
        longest = front_end.positions_of_samples(front_end.max_samples)

        # If every sound is filled to one length, each costs as much as the longest, and
        # two lengths are enough: any shorter one, and the longest.
        if front_end.fixed_positions is not None:
            third = longest // 3
            return _ProbeLengths([max(1, third), longest], longest_short=third)

        usual_lengths = (*PAIR_LENGTHS, LONGEST_PROBE)
        possible_lengths = [n for n in usual_lengths if shortest < n < longest]
        lengths = sorted({shortest, *possible_lengths, longest})
        # A probe of longer sounds would take too long. If even the shortest sound is
        # longer, the probe needs a length nevertheless.
        probe_lengths = [n for n in lengths if n <= LONGEST_PROBE] or [longest]
        return _ProbeLengths(probe_lengths, longest_short=PAIR_LENGTHS[-1])


class _Sound(Protocol):
    """A sound of a data set, or one of the fixed sounds."""

    @property
    def rate(self) -> int:
        """Frames a second: a frame is a sample at the rate of the file."""

    @property
    def frames(self) -> int:
        """Number of frames."""

    def samples(self) -> NDArray[np.float32]:
        """Decode the sound: (frames,)."""


class _ProbeLengths(NamedTuple):
    """Lengths of the probe's sounds in positions."""

    lengths: list[int]  # in ascending order
    longest_short: int  # up to this length, two sounds of each length are tried


@dataclass(frozen=True, slots=True)
class _Clip:
    """A sound as an encoder takes it."""

    x: NDArray[np.float32]  # features, time first: (S,) or (T, ...)
    num_visible: int  # rows of ``x`` that the mask does not hide from the model
    num_samples: int  # samples of the sound

    def __len__(self) -> int:
        """The length by which sounds count as equally long."""
        return self.num_samples

    def __getitem__(self, order: slice) -> _Clip:
        """Another sound of the same length: the features in the order of a slice.

        The probe asks for ``[::-1]``, which is the sound backwards.
        """
        x = np.ascontiguousarray(self.x[order])
        return _Clip(x, self.num_visible, self.num_samples)


class _Features(NamedTuple):
    """What a feature extractor makes of a sound."""

    x: NDArray[np.float32]  # features, time first: (T, ...)
    num_from_sound: int  # rows of ``x`` that come from the sound and not from filling


class _FrontEnd:
    """An encoder's feature extractor, and the number of features and positions.

    The feature extractor turns samples into rows of features, and the model turns these
    into positions. Both numbers are measured: the feature extractor runs on noise of
    some lengths, and a copy of the model runs without weights.

    Attributes:
        as_published: whether sounds are prepared as the code of the GAAM paper does.
            They are filled with zeros to 5 s and not normalised, and all positions are
            pooled.
        rate: samples a second that the encoder takes.
        input_name: the model's argument for the features.
        is_waveform: whether the features are the samples, normalised at most.
        features_of_samples: number of samples -> number of rows of features that come
            from the sound, and not from filling.
        seconds: length of the longest sound that is encoded whole.
        max_samples: samples of this sound.
        positions_of_features: number of rows of features -> number of positions.
        fixed_positions: positions of every sound, if all sounds are filled to one
            length; otherwise None.
        least_samples: samples of the shortest sound with a position.
    """

    def __init__(
        self,
        folder: Path,
        part: nn.Module,
        *,
        seconds: float | None,
        as_published: bool,
    ) -> None:
        """Load a feature extractor; count its features and the model's positions.

        Args:
            folder: folder of the feature extractor's configuration.
            part: the part of the model that is run, on the device "meta".
            seconds: length of the longest sound; None for the default.
            as_published: whether sounds are prepared as the code of the GAAM paper
                does.

        Raises:
            Unusable: the numbers of features or positions follow no simple rule.
            ConfigError: the encoder does not allow ``seconds`` or ``as_published``.
        """
        auto_extractor: Any = transformers.AutoFeatureExtractor
        self._extractor = auto_extractor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        self._name = type(self._extractor).__name__
        self.as_published = as_published
        self.rate: int = getattr(self._extractor, "sampling_rate", 0)
        if type(self.rate) is not int or self.rate < 1:
            raise Unusable(f"its feature extractor has the sampling rate {self.rate!r}")

        argument_names = frozenset(inspect.signature(part.forward).parameters)
        self._read_feature_layout(argument_names)
        self.features_of_samples = self._measure_features()
        if as_published and not self.is_waveform:
            raise ConfigError(
                "published-audio is for encoders of samples",
                expected="such as WavLM, HuBERT or wav2vec 2.0",
                found=self._name,
            )

        self.seconds = self._choose_seconds(seconds)
        self.max_samples = math.ceil(self.seconds * self.rate)
        self.positions_of_features = self._measure_positions(part)
        self.fixed_positions = self._find_fixed_positions()
        self.least_samples = self._find_least_samples()

    def _read_feature_layout(self, argument_names: Set[str]) -> None:
        """Learn the name and the axes of the features from three sounds.

        The third sound is the first one again, to find out whether the feature
        extractor draws random numbers. This sets ``input_name``, ``is_waveform`` and
        what ``_compute_features`` needs.

        Args:
            argument_names: names of the model's arguments.
        """
        short = noise(round(SHORT_NOISE_SECONDS * self.rate))
        long = noise(round(LONG_NOISE_SECONDS * self.rate))
        outputs = [self._extract(samples) for samples in (short, long, short)]

        # The extractor must give one output beside a mask, and the model must take it.
        names = [name for name in outputs[0] if name != MASK]
        if len(names) != 1 or names[0] not in argument_names:
            raise Unusable(
                f"its {self._name} makes {names}; "
                f"the model takes {sorted(argument_names)}"
            )
        self.input_name = names[0]

        features, long_features, same_features = (
            output[self.input_name] for output in outputs
        )
        if not np.array_equal(features, same_features):
            raise Unusable(f"its {self._name} draws random numbers")

        has_fixed_length = features.shape == long_features.shape
        mask_shape = outputs[0][MASK].shape if MASK in outputs[0] else None
        self._time_axis = self._find_time_axis(
            features.shape, long_features.shape, mask_shape
        )
        """Axis of time in the features of one sound, without the axis of a batch."""
        self._fixed_length: int | None = None
        """T of every sound, if the extractor fills all sounds to one length."""
        if has_fixed_length:
            self._fixed_length = features.shape[self._time_axis]
        self._row_shape = np.moveaxis(features, self._time_axis, 0).shape[1:]
        """Shape of one row of features, which is all axes but that of time."""
        self.is_waveform = features.shape == short.shape and not has_fixed_length

    def _measure_features(self) -> Downsampling:
        """Measure the number of rows of features as a function of the samples.

        Only rows that come from the sound count, and not those that fill it up.
        """

        def count_features(num_samples: int) -> int:
            return self._compute_features(noise(num_samples)).num_from_sound

        # Longer noise measures the stride more sharply. But an extractor that fills all
        # sounds to one length would cut it.
        longest_seconds = LONG_NOISE_SECONDS
        if self._fixed_length is None:
            longest_seconds *= 10
        return fit_downsampling(
            count_features,
            low=round(SHORT_NOISE_SECONDS * self.rate),
            high=round(longest_seconds * self.rate),
            output=f"the output of its {self._name}",
        )

    def _find_time_axis(
        self,
        shape: tuple[int, ...],
        long_shape: tuple[int, ...],
        mask_shape: tuple[int, ...] | None,
    ) -> int:
        """Find the axis of time in the shape of the features.

        A longer sound makes this axis longer. If no axis gets longer, because all
        sounds are filled to one length, the axis is the one that is as long as the
        mask.

        Args:
            shape: shape of the features of a short sound.
            long_shape: shape of the features of a longer sound.
            mask_shape: shape of the mask of the short sound; None without a mask.

        Raises:
            Unusable: no axis or several axes fit.
        """
        axes = range(len(shape))
        if shape != long_shape and len(shape) == len(long_shape):
            time_axes = [axis for axis in axes if shape[axis] != long_shape[axis]]
        else:
            time_axes = [axis for axis in axes if mask_shape == (shape[axis],)]

        # There must be one such axis. A mask must have an entry for every step in time.
        if len(time_axes) == 1:
            [time_axis] = time_axes
            if mask_shape in (None, (shape[time_axis],)):
                return time_axis
        raise Unusable(
            f"the time axis of its {self._name} is not clear: a short sound gives "
            f"{shape}, a longer one {long_shape}, the mask is {mask_shape}"
        )

    def _choose_seconds(self, seconds: float | None) -> float:
        """Choose the length of the longest sound: the user's choice, or a default.

        ``seconds`` is the user's choice; None without one.
        """
        # An extractor that fills every sound to one length would cut a longer sound:
        # one with more samples than this length of features stands for.
        limit = math.inf
        if self._fixed_length:
            max_samples = self.features_of_samples.most_inputs(self._fixed_length)
            limit = max_samples / self.rate
        if seconds is not None and seconds > limit:
            raise ConfigError(
                "clip-seconds is more than the encoder takes at once",
                expected=f"at most {limit:g} s",
                found=f"{seconds:g}",
            )
        if seconds:
            return seconds
        if self.as_published:
            return min(PUBLISHED_SECONDS, limit)
        return min(DEFAULT_MAX_SECONDS, limit)

    def _measure_positions(self, part: nn.Module) -> Downsampling:
        """Measure the number of positions as a function of the rows of features.

        The model gives a position for every ``stride`` rows of features: n rows have
        floor((n + offset) / stride) positions.

        ``part`` is the part of the model that is run, on the device "meta": it has no
        weights and computes shapes only, which is enough to count positions.
        """
        if self._fixed_length is not None:
            num_positions = self._count_positions(part, self._fixed_length)
            if self._fixed_length % num_positions:
                raise Unusable(
                    f"{self._fixed_length:,} {self.input_name} give "
                    f"{num_positions:,} states"
                )
            # The last position of a sound may hold fewer than ``stride`` of its rows,
            # and counts too. This offset rounds their number up.
            stride = self._fixed_length // num_positions
            return Downsampling(offset=stride - 1, stride=stride)

        # The rule is fitted to the positions of a long and a short sound, which must
        # differ in length. The short one lasts a second, or a third of the long one if
        # that is less.
        longest = self.features_of_samples(self.max_samples)
        one_second = self.features_of_samples(self.rate)
        short = max(1, min(one_second, longest // 3))
        return fit_downsampling(
            lambda num_features: self._count_positions(part, num_features),
            low=short,
            high=longest,
            output="the output of the model",
        )

    def _find_fixed_positions(self) -> int | None:
        """Number of positions of every sound, if all are filled to one length."""
        if self._fixed_length is not None:
            return self.positions_of_features(self._fixed_length)
        # gaam itself fills sounds here, and their features are their samples.
        if self.as_published:
            return self.positions_of_features(self.max_samples)
        return None

    def _find_least_samples(self) -> int:
        """Number of samples of the shortest sound with a position and finite features.

        Features that an extractor divides by their standard deviation over the sound
        are not finite for a single row of features.
        """
        # The model needs some rows of features for a position, and the feature
        # extractor yields no fewer rows than its least output.
        fewest_rows = max(
            self.positions_of_features.fewest_inputs(
                self.positions_of_features.least_output
            ),
            self.features_of_samples.least_output,
        )
        for num_rows in range(fewest_rows, fewest_rows + MOST_EXTRA_ROWS):
            num_samples = self.features_of_samples.fewest_inputs(num_rows)
            features = self._compute_features(noise(num_samples))
            if np.isfinite(features.x).all():
                return num_samples
        raise Unusable(
            f"its {self._name} gives numbers that are not finite for a short noise"
        )

    def _compute_features(self, samples_S: NDArray[np.float32]) -> _Features:
        """Compute the features of a sound."""
        output = self._extract(samples_S)
        x = np.moveaxis(output[self.input_name], self._time_axis, 0)
        x = np.ascontiguousarray(x).astype(np.float32, copy=False)
        num_from_sound = int(output[MASK].sum()) if MASK in output else len(x)
        return _Features(x, num_from_sound)

    def _extract(self, samples_S: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        """Run the feature extractor on one sound.

        Returns:
            Its outputs by name, without the axis of a batch. They are the features, and
            a mask if the feature extractor has one.
        """
        try:
            # the standard deviation of a single row of features is 0
            with np.errstate(divide="ignore", invalid="ignore"):
                output = self._extractor(
                    samples_S,
                    sampling_rate=self.rate,
                    return_tensors="np",
                    return_attention_mask=True,
                )
            return {name: np.asarray(value)[0] for name, value in output.items()}
        # A feature extractor is code of other projects, and may raise any error.
        except Exception as error:
            raise Unusable(
                f"its feature extractor fails on {len(samples_S):,} samples: "
                f"{error_summary(error)}"
            ) from error

    @torch.no_grad()
    def _count_positions(self, part: nn.Module, num_features: int) -> int:
        """Count the positions that the model makes of a number of rows of features.

        ``part`` is the part of the model that is run, on the device "meta". Tensors
        there have shapes and no numbers, so that running it takes no time.
        """
        shape = (1, num_features, *self._row_shape)
        x = self.move_time_axis(torch.zeros(shape, dtype=torch.float32, device="meta"))
        try:
            output = part(**{self.input_name: x}, output_hidden_states=True)
            _, positions, _ = output.hidden_states[-1].shape
        # The model is code of other projects, and may raise any error.
        except Exception as error:
            raise Unusable(
                f"it fails on {num_features:,} {self.input_name}: "
                f"{error_summary(error)}"
            ) from error
        return int(positions)

    def identity(self) -> str:
        """Text for the fingerprint: the code that computes the features.

        The feature extractor's configuration is hashed as a file.
        """
        # If the features are not just samples, the versions of libraries decide them.
        if self.is_waveform:
            return self._name
        torch_version = torch.__version__.partition("+")[0]
        return (
            f"{self._name}, transformers {transformers.__version__}, "
            f"torch {torch_version}"
        )

    def move_time_axis(self, x_BT: Tensor) -> Tensor:
        """Move the axis of time to where the model's input has it.

        ``x_BT`` are the features of a batch, with time as the second axis, and maybe
        more axes behind it.
        """
        # ``_time_axis`` does not count the axis of the batch, which comes first.
        return x_BT.movedim(1, 1 + self._time_axis).contiguous()

    def max_frames(self, rate: int) -> int:
        """Samples of the longest sound in a file that has ``rate`` samples a second."""
        return math.ceil(self.seconds * rate)

    def num_samples(self, sound: _Sound) -> int:
        """Number of samples S of a sound after cutting and resampling.

        It follows from the file's length and rate: nothing is decoded.
        """
        rate = sound.rate
        frames = min(sound.frames, self.max_frames(rate))
        # Round to the nearest sample, halves up; integers do so without an error.
        num_samples = (2 * frames * self.rate + rate) // (2 * rate)
        return min(num_samples, self.max_samples)

    def positions_of_samples(self, num_samples: int) -> int:
        """Number of pooled positions of a sound with ``num_samples`` samples.

        It is 0 for a sound that is too short. Positions behind the sound do not count,
        except where sounds are prepared as the code of the GAAM paper does.
        """
        if self.as_published:
            # gaam fills such sounds to one length, so that the number is known
            assert self.fixed_positions is not None
            return self.fixed_positions
        if num_samples < self.least_samples:
            return 0
        return self.positions_of_features(self.features_of_samples(num_samples))

    def sample_range(self, positions: int) -> tuple[int, int]:
        """The fewest and the most samples of a sound with this number of positions."""
        fewest_features = self.positions_of_features.fewest_inputs(positions)
        most_features = self.positions_of_features.most_inputs(positions)
        fewest_samples = self.features_of_samples.fewest_inputs(fewest_features)
        most_samples = self.features_of_samples.most_inputs(most_features)
        return fewest_samples, most_samples

    def read_clip(self, sound: _Sound) -> _Clip:
        """Decode a sound, cut it, resample it and compute its features."""
        # Frames that are cut off need no resampling.
        samples = sound.samples()[: self.max_frames(sound.rate)]
        if sound.rate != self.rate:
            samples = soxr.resample(
                samples, sound.rate, self.rate, quality=RESAMPLING_QUALITY
            )
        return self.make_clip(
            samples[: self.max_samples],
            promised_samples=self.num_samples(sound),
        )

    def make_clip(self, samples_S: NDArray[np.float32], promised_samples: int) -> _Clip:
        """Compute the features of a sound at the encoder's rate.

        Args:
            samples_S: the samples, cut at ``max_samples``.
            promised_samples: how many they should be by the length in the file.

        Raises:
            DataError: the number of samples or of features is another one, or the
                feature extractor fails.
        """
        if self.as_published:
            features = self._fill_with_zeros(samples_S)
            promised_features = self.max_samples
        else:
            try:
                features = self._compute_features(samples_S)
            except Unusable as reason:
                raise DataError(
                    "the encoder's feature extractor cannot read a sound",
                    found=str(reason),
                ) from reason
            promised_features = self.features_of_samples(promised_samples)

        has_promised_samples = len(samples_S) == promised_samples
        has_promised_features = features.num_from_sound == promised_features
        if not has_promised_samples or not has_promised_features:
            raise DataError(
                "a sound is not as long as its file says",
                expected=f"{promised_samples:,} samples, "
                f"{promised_features:,} {self.input_name}",
                found=f"{len(samples_S):,} and {features.num_from_sound:,}",
            )
        # If all sounds are filled to one length, the encoder reads the filling too, and
        # the mask must not hide it.
        num_visible = features.num_from_sound
        if self.fixed_positions is not None:
            num_visible = len(features.x)
        return _Clip(
            x=features.x, num_visible=num_visible, num_samples=promised_samples
        )

    def _fill_with_zeros(self, samples_S: NDArray[np.float32]) -> _Features:
        """Fill a sound with zeros to the maximum length, as the GAAM paper's code does.

        The samples are the features. The zeros count as a part of the sound.
        """
        num_zeros = self.max_samples - len(samples_S)
        x = np.pad(samples_S, (0, num_zeros))
        return _Features(x, num_from_sound=len(x))


class _SoundForward(Forward):
    """Runs features of sounds through a model, with zeros behind each sound."""

    front_end: _FrontEnd

    def batch(self, items: Sequence[_Clip]) -> Batch:
        """Collate the features of sounds in the arithmetic of the model."""
        # T: rows of features of the longest sound of the batch
        longest = max(len(clip.x) for clip in items)
        x_BT = np.zeros((len(items), longest, *items[0].x.shape[1:]), dtype=np.float32)
        for row, clip in enumerate(items):
            x_BT[row, : len(clip.x)] = clip.x

        # The mask counts rows of features. Pooling counts positions, which are the
        # steps in time of the model's states: there are fewer of them.
        front_end = self.front_end
        num_visible_B = np.array([clip.num_visible for clip in items])
        num_pooled_B = np.array(
            [front_end.positions_of_samples(clip.num_samples) for clip in items]
        )
        mask_BT = (np.arange(longest) < num_visible_B[:, None]).astype(np.int64)
        features = front_end.move_time_axis(self.to_device(x_BT)).to(self.dtype)
        # All sounds may be filled to one length; else the longest decides the number.
        positions = front_end.fixed_positions
        if not positions:
            positions = front_end.positions_of_features(longest)
        return Batch(
            inputs={front_end.input_name: features},
            length_B=self.to_device(num_pooled_B),
            padded=int(num_visible_B.min()) < longest,
            positions=positions,
            mask=self.to_device(mask_BT),
        )

    def _pool_layer(self, x_BTD: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Pool the states of one layer; refuse a layer that lacks some positions."""
        # The positions of a sound are those of the last layer. A layer with fewer
        # states has none for some of them.
        assert batch.positions is not None  # ``batch`` counts them for every sound
        num_states = x_BTD.shape[1]
        if num_states < batch.positions:
            raise Unusable(f"a layer has {num_states} states, not {batch.positions}")
        return super()._pool_layer(x_BTD, batch)


def _tone(number: int, samples: int, rate: int) -> NDArray[np.float32]:
    """A rising tone after some silence: float32, (samples,).

    The probe, which measures which rows may share a batch, runs the model on it.

    Args:
        number: number of the tone; another number gives another pitch.
        samples: number of samples.
        rate: samples a second.
    """
    # t is the time in seconds; the first quarter of the sound is silent
    t = np.arange(samples) / rate
    tone = 0.3 * np.sin(2 * np.pi * (200 + 40 * number + 300 * t) * t)
    tone[: samples // 4] = 0
    return tone.astype(np.float32)


def noise(samples: int, seed: int = 0) -> NDArray[np.float32]:
    """A random sound for measurements: float32, (samples,).

    The same ``seed`` gives the same sound.
    """
    generator = np.random.default_rng(seed)
    return generator.normal(scale=0.1, size=samples).astype(np.float32)
