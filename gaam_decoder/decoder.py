"""Decoders: a mechanism and a head as one model.

B batch, L layers, D hidden size, C outputs (classes, columns of numbers, or labels), K
random numbers of a row, E features before a mechanism's final map.
"""

import functools
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from gaam_cache.common.devices import LOADING_LOCK, float64
from gaam_cache.common.errors import ConfigError
from gaam_decoder.attention.base import Attention
from gaam_decoder.attention.frames.num_heads import DEFAULT_HEADS
from gaam_decoder.heads.base import Head
from gaam_decoder.specs import Spec, attention_class, build, own_code, plugin_options
from gaam_decoder.tasks import CLASSIFICATION, task_of

STREAMS = {
    "attention": 1,
    "head": 2,
    "order": 3,
    "noise": 4,
    "labels": 5,
    "shards": 6,
    "rows": 7,
    "rates": 8,
}
"""Independent random streams of a seed; the numbers must never change."""


def stream_seed(seed: int, stream: str, *counters: int) -> int:
    """The seed of one of the ``STREAMS``, at counters such as the epoch.

    All mechanisms of a seed get the same head and the same order of rows, so that
    comparisons are paired.
    """
    sequence = np.random.SeedSequence([seed, STREAMS[stream], *counters])
    [state] = sequence.generate_state(1, np.uint64)
    # without its last bit it fits into a signed number of 64 bits
    return int(state >> np.uint64(1))


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderSpec:
    """A decoder and its dimensions, without the seed."""

    attention: Spec
    head: Spec
    num_layers: int
    hidden_size: int
    num_classes: int
    """C, whatever the task."""
    task: str = CLASSIFICATION.name
    scales_states: bool = False
    """Whether the decoder multiplies the states of each layer by a factor."""


class TargetScale(nn.Module):
    """Mean and standard deviation of the numbers that a decoder learned from, (C,).

    A decoder learns standardised numbers. In evaluation its outputs are in the unit of
    the data: ``output * std + mean``.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, num_columns: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(num_columns))
        self.register_buffer("std", torch.ones(num_columns))

    @classmethod
    def from_targets(cls, target_NC: Tensor) -> Self:
        """The scale of the numbers of training rows; std is 1 where all are equal."""
        number_NC = float64(target_NC)
        std_C = number_NC.std(0, correction=0)
        # rounding may give equal numbers a deviation above 0
        is_flat_C = (number_NC == number_NC[:1]).all(0) | (std_C == 0)
        scale = cls(target_NC.shape[1])
        scale.mean.copy_(number_NC.mean(0))
        scale.std.copy_(torch.where(is_flat_C, 1.0, std_C))
        return scale

    def forward(self, output_BC: Tensor) -> Tensor:
        """Standardised numbers in the unit of the data."""
        return output_BC * self.std + self.mean

    def standardised(self, target_NC: Tensor) -> Tensor:
        """Numbers of the data as a decoder learns them, in float32."""
        mean_C = float64(self.mean)
        std_C = float64(self.std)
        target = (float64(target_NC).to(mean_C.device) - mean_C) / std_C
        return target.float().to(target_NC.device)


class StateScale(nn.Module):
    """The factor by which a decoder multiplies the states of each layer, (L,).

    A factor is one divided by a power of two. So a product with it rounds nothing.

    States of a Llama have a root mean square above 20, and single features above 1,000.
    A step of an optimizer then moves logits by more than they differ, at every usual
    learning rate. Of states near 0.001, a step moves them by too little.
    """

    factor: Tensor

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.register_buffer("factor", torch.ones(num_layers))

    def forward(self, x_BLD: Tensor) -> Tensor:
        """States of rows, (B, L, D), of which each layer is multiplied."""
        return x_BLD * self.factor[:, None]

    def fit(self, mean_square_L: Tensor) -> None:
        """Choose the factors that bring the root mean square of each layer near 1.

        ``mean_square_L`` is the mean over training rows and features, in float64.
        """
        # half of the logarithm of a square is that of its root
        exponent_L = torch.round(mean_square_L.log2() / 2)
        # a layer of zeros has no logarithm, and stays as it is
        exponent_L = torch.where(mean_square_L > 0, exponent_L, 0)
        self.factor.copy_(torch.exp2(-exponent_L))


class Decoder(nn.Module):
    """``logits = head(attention(x))``, for one seed.

    A decoder of numbers has a scale of its targets, which puts the standardised outputs
    into the unit of the data, in evaluation alone. The mechanism reads ``states(x)``.
    """

    targets: TargetScale | None
    """The scale; None for other tasks. Stored weights have its name, ``targets``."""
    states: StateScale | nn.Identity
    """The scale of the states; the identity where they are read as they are."""

    def __init__(
        self,
        attention: Attention,
        head: Head,
        targets: TargetScale | None = None,
        states: StateScale | None = None,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.head = head
        self.targets = targets
        self.states = states or nn.Identity()

    @property
    def dtype(self) -> torch.dtype:
        """Type of the parameters."""
        return next(self.parameters()).dtype

    def forward(self, x_BLD: Tensor, noise_BK: Tensor | None = None) -> Tensor:
        """(B, L, D) -> (B, C): logits, or numbers.

        Args:
            x_BLD: states.
            noise_BK: in training, K uniform random numbers for each row, of which a
                head makes its dropout; None in evaluation, or if it needs none.
        """
        output_BC = self._outputs(self.states(x_BLD), noise_BK)
        # a regression decoder learns standardised targets: evaluation gives its outputs
        # the scale of the data
        scale = self.targets
        if scale is None or self.training:
            return output_BC
        number_BC: Tensor = scale(output_BC)
        return number_BC

    def _outputs(self, x_BLD: Tensor, noise_BK: Tensor | None) -> Tensor:
        """Logits, or standardised numbers, (B, C).

        Some mechanisms end in a linear map of E features, and some heads begin with
        one. The head then joins both maps into one, which is less work. ``noise_BK``
        are K random numbers for each row, as in ``forward``.
        """
        final_map = self.attention.final_map
        if final_map is None or not self.head.joins_final_map:
            logits_BC: Tensor = self.head(self.attention(x_BLD), noise_BK)
            return logits_BC
        y_BLE = self.attention.before_final_map(x_BLD)
        return self.head.after_final_map(final_map, y_BLE)

    def num_parameters(self) -> dict[str, int]:
        """Number of learned values, of the attention and in total."""
        return {
            "attention": _num_learned(self.attention),
            "total": _num_learned(self),
        }


def _num_learned(module: nn.Module) -> int:
    """Number of the values of a module that training changes."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


@contextmanager
def without_random_numbers(*, has_own_code: bool = False) -> Iterator[None]:
    """Train a decoder in this block, which must draw no random numbers of its own.

    Args:
        has_own_code: whether code of a user runs, which may draw them by NumPy or
            Python, too.

    Raises:
        ConfigError: the block has changed a global random generator.
    """
    states_before = _random_states(has_own_code=has_own_code)
    yield
    if states_before != _random_states(has_own_code=has_own_code):
        raise ConfigError(
            "the decoder draws random numbers of its own while it trains",
            expected="none: heads are handed noise",
        )


def _random_states(*, has_own_code: bool) -> list[object]:
    """States of the global random generators of all devices, and of other packages."""
    tensors = [torch.random.get_rng_state()]
    is_initialized: Any = torch.cuda.is_initialized
    if is_initialized():
        tensors += torch.cuda.get_rng_state_all()
    if torch.backends.mps.is_available():
        tensors.append(torch.mps.get_rng_state())
    states: list[object] = [tensor.numpy().tobytes() for tensor in tensors]
    if has_own_code:
        # a user's own part may draw by the global generators of NumPy and Python
        name, key, *position = np.random.get_state()  # noqa: NPY002
        states += [name, np.asarray(key).tobytes(), *position, random.getstate()]
    return states


def _seed_generators(seed: int) -> None:
    """Seed the global random generators of the CPU, which constructors draw from."""
    # torch.manual_seed() would also seed the GPUs, whose state is not restored.
    torch.default_generator.manual_seed(seed)
    # the constructor of a user's own part may draw by these
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


@contextmanager
def _restored_generators() -> Iterator[None]:
    """Give the global random generators of the CPU their states back after a block."""
    numpy_state = np.random.get_state()  # noqa: NPY002
    python_state = random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Build modules in this block without memory for their parameters.

    Raises:
        ConfigError: a parameter of impossible size.
    """
    try:
        with torch.device("meta"):
            yield
    except (RuntimeError, OverflowError) as error:
        raise ConfigError(
            "the options ask for a size that no tensor has",
            found=str(error).splitlines()[0],
        ) from error


def build_attention(spec: Spec, num_layers: int, hidden_size: int) -> Attention:
    """Build a mechanism; ConfigError if it does not fit these dimensions."""
    attention: Attention = build(spec, "mechanism", num_layers, hidden_size)
    return attention


def with_derived_options(spec: Spec, num_layers: int, hidden_size: int) -> Spec:
    """Spell out the options that a mechanism derives from the dimensions.

    Of the mechanisms of this package, it is the number of heads: ``gaam`` on 12 layers
    is ``gaam:heads=4``. The usual number, 8, is left out: ``gaam`` on 24 layers stays
    ``gaam``, as a person writes it.
    """
    derived = _derived_options(spec, num_layers, hidden_size)
    unusual = {name: value for name, value in derived.items() if value != DEFAULT_HEADS}
    # an option that was given stays as it is
    options = unusual | dict(spec.options)
    return replace(spec, options=tuple(sorted(options.items())))


def canonical_spec(spec: Spec, num_layers: int, hidden_size: int) -> Spec:
    """The one spec of all that give the same mechanism at these dimensions.

    A derived number of heads is spelled out, so that ``gaam`` and ``gaam:heads=4`` are
    one on 12 layers; the usual number, 8, is left out, also where it is given.
    """
    full_spec = with_derived_options(spec, num_layers, hidden_size)
    derivable_names = _derived_options(full_spec, num_layers, hidden_size).keys()
    options = [
        (name, value)
        for name, value in full_spec.options
        if not (name in derivable_names and value == DEFAULT_HEADS)
    ]
    return replace(full_spec, options=tuple(options))


def _derived_options(spec: Spec, num_layers: int, hidden_size: int) -> dict[str, Any]:
    """The options whose default is None, with the values that a mechanism has.

    It derives a value from the dimensions where none is given: the number of heads.
    """
    return _derived_of_class(attention_class(spec), spec, num_layers, hidden_size)


# A sweep asks for the same mechanism thousands of times. The class is an argument
# because a person may edit it while the process runs.
@functools.cache
def _derived_of_class(
    cls: type, spec: Spec, num_layers: int, hidden_size: int
) -> dict[str, Any]:
    """The options of ``_derived_options``, of a class."""
    with shapes_only():
        attention = build_attention(spec, num_layers, hidden_size)
    values = {}
    for name, option in plugin_options(cls).items():
        # a person's own constructor may store something else under the option's name
        if option.default is not None or not _is_declared_by_gaam(cls, name):
            continue
        # the mechanism keeps the value as an attribute
        value = getattr(attention, name, None)
        if isinstance(value, (int, float, str)):
            values[name] = value
    return values


def _is_declared_by_gaam(cls: type, option: str) -> bool:
    """Whether the constructor that declares an option is one of gaam's own."""
    for base in cls.__mro__:
        constructor = vars(base).get("__init__")
        if option in (getattr(constructor, "__kwdefaults__", None) or {}):
            return base.__module__.startswith(f"{__package__}.")
    return False


def build_decoder(spec: DecoderSpec, seed: int) -> Decoder:
    """Build a decoder with random parameters: the same bits on every device.

    The global random state stays as it was.
    """
    with LOADING_LOCK, _restored_generators():
        _seed_generators(stream_seed(seed, "attention"))
        attention = build_attention(spec.attention, spec.num_layers, spec.hidden_size)
        # a mechanism of a person may lack it: then the error names its file
        with own_code(spec.attention, "mechanism", "output_shape is (layers, size)"):
            layers, size = attention.output_shape
        _seed_generators(stream_seed(seed, "head"))
        head = build(spec.head, "head", layers, size, spec.num_classes)
    targets: TargetScale | None = None
    if task_of(spec.task).standardises:
        targets = TargetScale(spec.num_classes)
    states = StateScale(spec.num_layers) if spec.scales_states else None
    return Decoder(attention, head, targets, states)
