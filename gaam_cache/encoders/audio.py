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
from typing import Any, ClassVar

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
from gaam_cache.encoders.base import Inputs, LazyItems
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
    position_noun: ClassVar[str] = "stretch of a sound"
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
            published=self._config.published_audio,
        )
        self.max_length = self._front_end.positions(self._front_end.max_samples)

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
        if front_end.published:
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
        all_num_samples = [front_end.num_samples(sound) for sound in rows]
        return Inputs(
            items=LazyItems(rows, front_end.read_clip),
            lengths=[
                front_end.positions(num_samples) for num_samples in all_num_samples
            ],
            # a frame is a sample at the rate of the file
            truncated=[
                sound.frames > front_end.max_frames(sound.rate) for sound in rows
            ],
            extents=all_num_samples,
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
                if not self._front_end.positions(self._front_end.num_samples(sound)):
                    raise self.refuse_empty(sound, f"{split_rows.origin}, row {number}")

    def refuse_empty(self, row: Any, where: str) -> DataError:
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
        # The published protocol has no mask: its encoder reads the zeros too.
        if self._front_end.published:
            forward.takes_mask = False
        return forward

    def _make_probe_rows(
        self,
        part: nn.Module,  # noqa: ARG002
        probe_length: int,  # noqa: ARG002
    ) -> ProbeRows:
        """Make sounds for the probe, from the shortest to the longest.

        There is noise of every length, and a tone beside it of the short lengths.
        """
        front_end = self._front_end
        lengths, longest_pair = self._probe_lengths()
        clips: list[_Clip] = []
        short_num_samples = 0
        for number, length in enumerate(lengths):
            # Alternate between the fewest and the most samples of a length. Both must
            # be possible for a sound.
            num_samples = front_end.sample_range(length)[number % 2]
            num_samples = max(
                front_end.least_samples, min(num_samples, front_end.max_samples)
            )
            clips.append(front_end.make_clip(noise(num_samples, number), num_samples))
            if length <= longest_pair:
                tone = _tone(number, num_samples, front_end.rate)
                clips.append(front_end.make_clip(tone, num_samples))
                short_num_samples = num_samples
        return ProbeRows(sets=[clips], short_length=short_num_samples)

    def _probe_lengths(self) -> tuple[list[int], int]:
        """Choose the lengths of the probe's sounds in positions.

        Returns:
            The lengths; and the length up to which there are two sounds of each.
        """
        front_end = self._front_end
        shortest = front_end.positions(front_end.least_samples)
        longest = front_end.positions(front_end.max_samples)

        # If every sound is filled to one length, each costs as much as the longest, and
        # two lengths are enough.
        if front_end.fixed_positions is not None:
            return [max(1, longest // 3), longest], longest // 3

        usual_lengths = (*PAIR_LENGTHS, LONGEST_PROBE)
        possible_lengths = [n for n in usual_lengths if shortest < n < longest]
        lengths = sorted({shortest, *possible_lengths, longest})
        # A probe of longer sounds would take too long. If even the shortest sound is
        # longer, the probe needs a length nevertheless.
        probe_lengths = [n for n in lengths if n <= LONGEST_PROBE] or [longest]
        return probe_lengths, PAIR_LENGTHS[-1]


@dataclass(frozen=True, slots=True)
class _Clip:
    """A sound as an encoder takes it."""

    x: NDArray[np.float32]  # features, time first: (S,) or (T, ...)
    num_from_sound: int  # rows of ``x`` that come from the sound and not from filling
    num_samples: int  # samples of the sound

    def __len__(self) -> int:
        """The length by which sounds count as equally long."""
        return self.num_samples

    def __getitem__(self, backwards: slice) -> _Clip:
        """Another sound of the same length: the features in the order of a slice.

        The probe asks for ``[::-1]``, which is the sound backwards.
        """
        x = np.ascontiguousarray(self.x[backwards])
        return _Clip(x, self.num_from_sound, self.num_samples)


class _FrontEnd:
    """An encoder's feature extractor, and the number of features and positions.

    The feature extractor turns samples into rows of features, and the model turns these
    into positions. Both numbers are measured: the feature extractor runs on noise of
    some lengths, and a copy of the model runs without weights.

    Attributes:
        published: whether the published protocol holds. Sounds are then filled with
            zeros to 5 s and not normalised, and all positions are pooled.
        rate: samples a second that the encoder takes.
        seconds: length of the longest sound that is encoded whole.
        max_samples: samples of this sound.
        input_name: the model's argument for the features.
    """

    def __init__(
        self, folder: Path, part: nn.Module, *, seconds: float | None, published: bool
    ) -> None:
        """Load the feature extractor of an encoder, and measure both numbers.

        Args:
            folder: folder of the feature extractor's configuration.
            part: the part of the model that is run, on the device "meta".
            seconds: length of the longest sound; None for the default.
            published: whether the published protocol holds.

        Raises:
            Unusable: the numbers of features or positions follow no simple rule.
            ConfigError: the encoder does not allow ``seconds`` or ``published``.
        """
        auto_extractor: Any = transformers.AutoFeatureExtractor
        self._extractor = auto_extractor.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        self._name = type(self._extractor).__name__
        self.published = published
        self.rate: int = getattr(self._extractor, "sampling_rate", 0)
        if type(self.rate) is not int or self.rate < 1:
            raise Unusable(f"its feature extractor has the sampling rate {self.rate!r}")

        self._measure_features(frozenset(inspect.signature(part.forward).parameters))
        if published and not self.is_waveform:
            raise ConfigError(
                "published-audio is for encoders of samples",
                expected="such as WavLM, HuBERT or wav2vec 2.0",
                found=self._name,
            )

        self.seconds = self._choose_seconds(seconds)
        self.max_samples = math.ceil(self.seconds * self.rate)
        self._measure_positions(part)

        # The model needs some rows of features for a position, and the feature
        # extractor yields no fewer rows than its least output.
        fewest_features = self.to_positions.fewest_inputs(
            self.to_positions.least_output
        )
        self.least_samples = self.to_features.fewest_inputs(
            max(fewest_features, self.to_features.least_output)
        )
        """Samples of the shortest sound with a position."""

    def _measure_features(self, arguments: Set[str]) -> None:
        """Learn the shape of the features and their number from three sounds.

        The third sound is the first one again, to find out whether the feature
        extractor draws random numbers. This sets ``input_name``, ``is_waveform``,
        ``to_features`` and what ``_compute_features`` needs.

        Args:
            arguments: names of the model's arguments.
        """
        short = noise(round(SHORT_NOISE_SECONDS * self.rate))
        long = noise(round(LONG_NOISE_SECONDS * self.rate))
        outputs = [self._extract(samples) for samples in (short, long, short)]

        # The extractor must give one output beside a mask, and the model must take it.
        names = [name for name in outputs[0] if name != MASK]
        if len(names) != 1 or names[0] not in arguments:
            raise Unusable(
                f"its {self._name} makes {names}; the model takes {sorted(arguments)}"
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
        self._fixed_length: int | None = None
        """T of every sound, if the extractor fills all sounds to one length."""
        if has_fixed_length:
            self._fixed_length = features.shape[self._time_axis]
        self._row_shape = np.moveaxis(features, self._time_axis, 0).shape[1:]
        self.is_waveform = features.shape == short.shape and not has_fixed_length
        """Whether the features are the samples, normalised at most."""

        # The extractor would cut noise that is longer than its fixed length.
        seconds = LONG_NOISE_SECONDS if has_fixed_length else 10 * LONG_NOISE_SECONDS
        self.to_features = fit_downsampling(
            lambda samples: self._compute_features(noise(samples))[1],
            len(short),
            round(seconds * self.rate),
            f"the output of its {self._name}",
        )
        """Samples -> rows of features that come from the sound."""

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

        # There must be one such axis, and a mask must have an entry for every row.
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
        # An extractor that fills every sound to one length would cut a longer sound.
        limit = math.inf
        if self._fixed_length:
            limit = self.to_features.most_inputs(self._fixed_length) / self.rate
        if seconds is not None and seconds > limit:
            raise ConfigError(
                "clip-seconds is more than the encoder takes at once",
                expected=f"at most {limit:g} s",
                found=f"{seconds:g}",
            )
        if seconds:
            return seconds
        if self.published:
            return min(PUBLISHED_SECONDS, limit)
        return min(DEFAULT_MAX_SECONDS, limit)

    def _measure_positions(self, part: nn.Module) -> None:
        """Measure the number of positions as a function of the rows of features.

        This sets ``to_positions`` and ``fixed_positions``. ``part`` is the part of the
        model that is run, without weights.
        """
        self.fixed_positions: int | None = None
        """P of every sound, if all sounds are filled to one length."""
        if self._fixed_length is not None:
            self.fixed_positions = self._count_positions(part, self._fixed_length)
            if self._fixed_length % self.fixed_positions:
                raise Unusable(
                    f"{self._fixed_length:,} {self.input_name} give "
                    f"{self.fixed_positions:,} states"
                )
            # A position stands for ``stride`` rows of features. The last position of a
            # sound may hold fewer of its rows, and counts too.
            stride = self._fixed_length // self.fixed_positions
            self.to_positions = Downsampling(offset=stride - 1, stride=stride)
            return

        # Count the positions of about one second, and of the longest sound;
        # ``to_features`` turns a number of samples into that of its rows of features.
        high = self.to_features(self.max_samples)
        low = max(1, min(self.to_features(self.rate), high // 3))
        self.to_positions = fit_downsampling(
            lambda features: self._count_positions(part, features),
            low,
            high,
            "the output of the model",
        )
        """Rows of features -> positions."""
        if self.published:
            self.fixed_positions = self.to_positions(self.max_samples)

    def _compute_features(
        self, samples_S: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], int]:
        """Compute the features of a sound.

        Returns:
            The features with the axis of time first; and the number of rows that come
            from the sound and not from filling.
        """
        output = self._extract(samples_S)
        x = np.moveaxis(output[self.input_name], self._time_axis, 0)
        x = np.ascontiguousarray(x).astype(np.float32, copy=False)
        num_from_sound = int(output[MASK].sum()) if MASK in output else len(x)
        return x, num_from_sound

    def _extract(self, samples_S: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        """Run the feature extractor on one sound.

        Returns:
            Its outputs by name, without the axis of a batch. They are the features, and
            a mask if the feature extractor has one.
        """
        try:
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
        return x_BT.movedim(1, self._time_axis + 1).contiguous()

    def max_frames(self, rate: int) -> int:
        """Samples of the longest sound in a file that has ``rate`` samples a second."""
        return math.ceil(self.seconds * rate)

    def num_samples(self, sound: Any) -> int:
        """Number of samples S of a sound after cutting and resampling.

        It follows from the file's length and rate: nothing is decoded.
        """
        rate: int = sound.rate
        frames: int = min(sound.frames, self.max_frames(rate))
        # Round to the nearest sample, halves up; integers do so without an error.
        num_samples = (2 * frames * self.rate + rate) // (2 * rate)
        return min(num_samples, self.max_samples)

    def positions(self, num_samples: int) -> int:
        """Number of pooled positions of a sound with ``num_samples`` samples.

        It is 0 for a sound that is too short. Positions behind the sound do not count,
        except in the published protocol.
        """
        if self.published:
            return self.fixed_positions or 0
        return self.to_positions(self.to_features(num_samples))

    def sample_range(self, positions: int) -> tuple[int, int]:
        """The fewest and the most samples of a sound with this number of positions."""
        fewest_features = self.to_positions.fewest_inputs(positions)
        most_features = self.to_positions.most_inputs(positions)
        fewest = self.to_features.fewest_inputs(fewest_features)
        return fewest, self.to_features.most_inputs(most_features)

    def read_clip(self, sound: Any) -> _Clip:
        """Decode a sound, cut it, resample it and compute its features."""
        # Samples that are cut off need no resampling.
        samples = sound.samples()[: self.max_frames(sound.rate)]
        if sound.rate != self.rate:
            samples = soxr.resample(
                samples, sound.rate, self.rate, quality=RESAMPLING_QUALITY
            )
        return self.make_clip(samples[: self.max_samples], self.num_samples(sound))

    def make_clip(self, samples_S: NDArray[np.float32], num_samples: int) -> _Clip:
        """Compute the features of samples at the encoder's rate.

        Args:
            samples_S: the samples.
            num_samples: number of samples that the file promises.

        Raises:
            DataError: the number of samples or of features is another one, or the
                feature extractor fails.
        """
        # In the published protocol, the features are the samples with zeros behind.
        if self.published:
            x = np.pad(samples_S, (0, self.max_samples - len(samples_S)))
            num_from_sound = len(x)
            expected = len(x)
        else:
            try:
                x, num_from_sound = self._compute_features(samples_S)
            except Unusable as reason:
                raise DataError(
                    "the encoder's feature extractor cannot read a sound",
                    found=str(reason),
                ) from reason
            expected = self.to_features(num_samples)

        if len(samples_S) != num_samples or num_from_sound != expected:
            raise DataError(
                "a sound is not as long as its file says",
                expected=f"{num_samples:,} samples, {expected:,} {self.input_name}",
                found=f"{len(samples_S):,} and {num_from_sound:,}",
            )
        # If all sounds are filled to one length, the encoder reads the filling too, and
        # the mask must not hide it.
        if self.fixed_positions is not None:
            num_from_sound = len(x)
        return _Clip(x=x, num_from_sound=num_from_sound, num_samples=num_samples)


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

        # The mask counts rows of features, while pooling counts positions.
        num_from_sound_B = np.array([clip.num_from_sound for clip in items])
        num_pooled_B = np.array(
            [self.front_end.positions(clip.num_samples) for clip in items]
        )
        mask_BT = (np.arange(longest) < num_from_sound_B[:, None]).astype(np.int64)
        features = self.front_end.move_time_axis(self.to_device(x_BT)).to(self.dtype)
        # ``fixed_positions`` is set if all sounds are filled to one length
        return Batch(
            inputs={self.front_end.input_name: features},
            length_B=self.to_device(num_pooled_B),
            padded=int(num_from_sound_B.min()) < longest,
            positions=self.front_end.fixed_positions
            or self.front_end.to_positions(longest),
            mask=self.to_device(mask_BT),
        )

    def _pool_layer(self, x_BTD: Any, batch: Batch) -> dict[str, Tensor]:
        """Pool the states of one layer; refuse a layer that lacks some positions."""
        # A layer with fewer states shortens the sequence once more.
        if batch.positions is None or x_BTD.shape[1] < batch.positions:
            raise Unusable(
                f"a layer has {x_BTD.shape[1]} states, not {batch.positions}"
            )
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
