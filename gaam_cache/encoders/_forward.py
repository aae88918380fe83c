"""One batch through a model of the transformers library, with every layer pooled.

B batch, T positions (tokens, frames, patches), W positions of the widest span, L
layers, D hidden size.
"""

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gaam_cache.common.devices import out_of_memory, send
from gaam_cache.encoders._weights import offloaded_weights
from gaam_cache.encoders.poolings.base import load_poolings

Mask = Literal["never", "where padded", "always"]
"""When a batch comes with an attention mask."""


class Unusable(Exception):  # noqa: N818 caught within this package
    """The reason why a model, or one way of running it, yields no pooled states."""


class Span(NamedTuple):
    """The pooled positions of every row: ``length_B`` of them from ``start_B`` on."""

    start_B: Tensor
    length_B: Tensor
    width: int  # W: a Python number, since reading it from a device would take time

    def move_to_front(self, x_BTD: Tensor) -> Tensor:
        """Move these positions to the front: (B, W, D).

        Behind a row's span the result may hold anything.
        """
        offset_W = torch.arange(self.width, device=x_BTD.device)
        start_B = self.start_B.to(x_BTD.device)
        # Spans are shorter than W: the last index is repeated to stay within the row.
        position_BW = (start_B[:, None] + offset_W).clamp_max(x_BTD.shape[1] - 1)
        row_B = torch.arange(len(x_BTD), device=x_BTD.device)
        return x_BTD[row_B[:, None], position_BW]


class Batch(NamedTuple):
    """Rows as a model takes them, on its device."""

    inputs: dict[str, Tensor]  # the model's arguments, without the mask
    length_B: Tensor  # number of pooled positions of every row
    mask: Tensor | None = None  # 1 at positions of a row, 0 at padding
    padded: bool = False  # whether rows differ in length
    positions: int | None = None  # T; None if only the model knows
    span: Span | None = None  # the pooled positions, if they are only a part of a row


class Forward(ABC):
    """Runs a model and pools its layers, in one of two ways.

    Hooks on a stack of layers pool each layer as the model produces it. Or the model
    returns its hidden states, and these are pooled. ``probe`` measures which way is
    right and when a mask is needed.

    A model may change while it reads: BigBird leaves its sparse attention for good at
    its first short text. Then a new copy of the model, with shared parameters, reads
    every batch.
    """

    tries_lengths: ClassVar[bool] = False
    """Whether a row longer than all rows of the probe is read alone."""
    mask: Mask = "always"
    stack: str | None = None
    """Name of the layers with hooks; None asks the model for its hidden states."""
    last_from_output = False
    """Whether the model's output is the last layer's state: Llama normalises in
    between."""
    first_layer: Literal[0, 1] = 1
    """First of the ``hidden_states`` of transformers: 0 is the first layer's input."""
    has_changed = False  # whether the model was seen to change while it read a row
    renews = True  # whether a fresh copy of the loaded model reads every batch
    longest: int | None = 0
    """Positions of the longest row that the probe tried. ``reference`` reads a longer
    batch row by row. 0 before a probe; None if length does not matter."""
    longest_shared: int | None = None
    """The same for batches of several rows."""

    def __init__(
        self, model: nn.Module, *, device: torch.device, pooling: Sequence[str]
    ) -> None:
        self.loaded = model
        self.device = device
        self.dtype = _float_dtype(model)
        self.poolings = load_poolings(pooling)
        self.argument_names = frozenset(inspect.signature(model.forward).parameters)
        self.takes_mask = "attention_mask" in self.argument_names
        self._options: dict[str, Any] = {}
        if "use_cache" in self.argument_names:
            self._options["use_cache"] = False

        # A saved configuration may ask for tuples, or for hidden states of every run.
        config = getattr(model, "config", None)
        for setting, value in (("return_dict", True), ("output_hidden_states", False)):
            if hasattr(config, setting):
                setattr(config, setting, value)

        self.model = self._copy_loaded()
        self._unchanged: nn.Module | None = None
        """A copy that has read rows and still equals the loaded model."""

    def _copy_loaded(self) -> nn.Module:
        """Copy the loaded model; the copy shares its weights."""
        shared = (*self.loaded.parameters(), *offloaded_weights(self.loaded))
        # deepcopy takes what is in this table for copies that it has made before.
        return copy.deepcopy(self.loaded, {id(weight): weight for weight in shared})

    def use_model(self, model: nn.Module, dtype: torch.dtype) -> None:
        """Run this model, which computes in ``dtype``, from now on."""
        self.loaded = model
        self.dtype = dtype
        self.model = self._copy_loaded()
        self._unchanged = None

    @abstractmethod
    def batch(self, items: Sequence[Any]) -> Batch:
        """Collate rows as the model takes them."""

    def is_causal(self, items: Sequence[Any]) -> bool | None:  # noqa: ARG002
        """Whether later positions leave earlier states unchanged; None if unknown."""
        return None

    def __call__(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Pooled states of a batch: (B, L, D) float32 for every pooling."""
        batch = self.batch(items)
        if self._is_untried(batch):
            return self._read_row_by_row(items)

        # Without a mask the faster kernels for plain attention stay available.
        needs_no_mask = self.mask == "where padded" and not batch.padded
        if self.mask == "never" or needs_no_mask:
            batch = batch._replace(mask=None)
        if self.renews:
            self.model = self._copy_loaded()
        if self.stack is None:
            layers = self._pool_hidden_states(batch)
        else:
            layers = self._pool_by_hooks(self.stack, batch)
        return self._stack_layers(layers)

    def _is_untried(self, batch: Batch) -> bool:
        """Whether the batch is longer than those of the probe."""
        positions = batch.positions or math.inf
        # Batches of several rows have a second limit of their own.
        limits = [self.longest]
        if len(batch.length_B) != 1:
            limits.append(self.longest_shared)
        return any(limit is not None and positions > limit for limit in limits)

    def _read_row_by_row(self, items: Sequence[Any]) -> dict[str, Tensor]:
        rows = [self.reference(item) for item in items]
        return {name: torch.cat([row[name] for row in rows]) for name in self.poolings}

    def reference(self, item: Any) -> dict[str, Tensor]:
        """Pool the hidden states that transformers returns for one row.

        A separate copy of the model reads the row, so that batches cannot influence it.
        """
        batch = self.batch([item])
        # Whatever happens here, batches go on with the model that they had.
        model_of_batches = self.model
        self.model = self._reference_model()
        try:
            layers = self._pool_hidden_states(batch)
            if self.renews:
                self._note_changes()
        finally:
            self.model = model_of_batches
        return self._stack_layers(layers)

    def _reference_model(self) -> nn.Module:
        if not self.renews:
            return self.loaded
        if self._unchanged is not None:
            return self._unchanged
        return self._copy_loaded()

    def _note_changes(self) -> None:
        """Reuse the copy for the next row only if it still equals the loaded model."""
        if _is_same(self.model, self.loaded, set()):
            self._unchanged = self.model
        else:
            self._unchanged = None
            self.has_changed = True

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """Copy an array to the device that the model reads from."""
        return send(torch.from_numpy(array), self.device)

    def _stack_layers(self, layers: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """(B, L, D) for every pooling; the layers may lie on several devices."""
        return {
            name: torch.stack([layer[name].to(self.device) for layer in layers], dim=1)
            for name in self.poolings
        }

    def _pool_hidden_states(self, batch: Batch) -> list[dict[str, Tensor]]:
        layers = self.hidden_states(batch)[1]
        return [self._pool_layer(x_BTD, batch) for x_BTD in layers]

    def _pool_by_hooks(self, stack_name: str, batch: Batch) -> list[dict[str, Tensor]]:
        stack = cast(nn.ModuleList, self.model.get_submodule(stack_name))
        states: dict[int, dict[str, Tensor]] = {}

        def pool(layer: int, x_BTD: Any) -> None:
            states[layer] = self._pool_layer(x_BTD, batch)

        with layer_hooks(stack, pool, first_layer=self.first_layer):
            output = self.run(batch)
        # A final norm behind the stack is part of the last layer's hidden state.
        if self.last_from_output:
            pool(len(stack), output.last_hidden_state)

        numbers = range(self.first_layer, len(stack) + 1)
        if len(states) != len(numbers):
            raise Unusable("not every layer was run")
        return [states[layer] for layer in numbers]

    def _pool_layer(self, x_BTD: Any, batch: Batch) -> dict[str, Tensor]:
        """Pool the states of one layer: (B, D) for every pooling."""
        length_B = batch.length_B
        if batch.span is not None:
            x_BTD = batch.span.move_to_front(x_BTD)
            length_B = batch.span.length_B
        length_B = length_B.to(x_BTD.device)
        return {name: pool(x_BTD, length_B) for name, pool in self.poolings.items()}

    def hidden_states(self, batch: Batch) -> tuple[Any, tuple[Tensor, ...]]:
        """Return the model's output, and its hidden states from ``first_layer`` on."""
        output = self.run(batch, output_hidden_states=True)
        states = getattr(output, "hidden_states", None)
        if not isinstance(states, tuple | list) or len(states) < 2:
            raise Unusable("the model returns no hidden states")

        layers = tuple(states[self.first_layer :])
        if not all(isinstance(x, Tensor) for x in layers):
            raise Unusable("the hidden states of a layer are no tensor")
        _check_shapes(layers, batch)
        return output, layers

    def run(self, batch: Batch, **options: Any) -> Any:
        """Run the model; any failure but a lack of memory becomes ``Unusable``."""
        if self.takes_mask and batch.mask is not None:
            options["attention_mask"] = batch.mask
        try:
            # A hook of ours raises ``Unusable`` in the middle of the model.
            return self.model(**batch.inputs, **self._options, **options)
        except Unusable:
            raise
        except Exception as error:
            if out_of_memory(error):
                raise
            # Code of other projects may fail in any way.
            raise Unusable(
                f"it fails on an input of {_input_shape(batch)}: {error_summary(error)}"
            ) from error


def _float_dtype(model: nn.Module) -> torch.dtype:
    """The type of the model's first floating-point weight."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            return parameter.dtype
    return torch.float32


def _check_shapes(layers: Sequence[Tensor], batch: Batch) -> None:
    """Refuse layers without one state for every position, or of different sizes."""
    # The number of positions is the last layer's if only the model knows it.
    positions = batch.positions
    if positions is None and layers[-1].ndim == 3:
        positions = layers[-1].shape[1]
    expected = (len(batch.length_B), positions)

    # A set has each shape once; almost always it has one.
    shapes = {tuple(x.shape) for x in layers}
    for shape in shapes:
        if len(shape) != 3 or shape[:2] != expected:
            raise Unusable(
                "the hidden states are not one for every position: an input of "
                f"{_input_shape(batch)} gives a layer of {shape}"
            )

    if len(shapes) > 1:
        sizes = sorted(shape[2] for shape in shapes)
        raise Unusable(
            f"the layers differ in hidden size: {', '.join(map(str, sizes))}"
        )


def _input_shape(batch: Batch) -> tuple[int, ...]:
    return tuple(next(iter(batch.inputs.values())).shape)


def error_summary(error: Exception) -> str:
    """The type of another library's exception, and the first line of its message."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]:.200}"


def _is_same(now: Any, before: Any, compared: set[tuple[int, int]]) -> bool:
    """Whether two copies hold equal values, apart from hooks.

    Values that cannot be compared count as different. ``compared`` holds the pairs that
    were compared before: objects may refer to one another in circles.
    """
    # Copies share their weights: most comparisons end here.
    pair = (id(now), id(before))
    if now is before or pair in compared:
        return True
    if type(now) is not type(before):
        return False
    compared.add(pair)

    if isinstance(now, Tensor):
        is_comparable = not now.is_meta and now.dtype == before.dtype
        return is_comparable and torch.equal(now, before)
    if isinstance(now, np.ndarray):
        return np.array_equal(now, before)

    # Containers and objects are equal if everything in them is; all else has ``==``.
    now = _contents(now)
    before = _contents(before)
    if isinstance(now, list | tuple):
        return len(now) == len(before) and all(
            _is_same(now_value, before_value, compared)
            for now_value, before_value in zip(now, before, strict=True)
        )
    if isinstance(now, Mapping):
        names = {name for name in (*now, *before) if "hooks" not in str(name)}
        if not names <= now.keys() & before.keys():
            return False
        return all(_is_same(now[name], before[name], compared) for name in names)
    return _is_equal(now, before)


def _contents(value: Any) -> Any:
    """The values that an object consists of; the value itself if it is no object."""
    if isinstance(value, partial):
        return value.func, value.args, value.keywords
    if isinstance(value, MethodType):
        return value.__func__, value.__self__
    if isinstance(value, list | tuple | Mapping):
        return value
    has_attributes = hasattr(value, "__dict__") and not callable(value)
    if isinstance(value, nn.Module) or has_attributes:
        return vars(value)
    return value


def _is_equal(now: Any, before: Any) -> bool:
    try:
        return repr(now) == repr(before) or bool(now == before)
    except Exception:  # noqa: BLE001 other projects' objects may raise anything
        return False


@contextmanager
def layer_hooks(
    stack: nn.ModuleList, receive: Callable[[int, Any], None], *, first_layer: int
) -> Iterator[None]:
    """While open, call ``receive`` with every layer's number and output.

    With ``first_layer`` 0 it also receives the first layer's input, as layer 0.
    """

    def receive_output_of(layer: int) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG001
            # Many layers return a tuple whose first entry is the state.
            receive(layer, output if isinstance(output, Tensor) else output[0])

        return hook

    def receive_input(
        module: nn.Module,  # noqa: ARG001
        args: Any,
        options: Any,
    ) -> None:
        # Some models pass the state as a keyword argument.
        x_BTD = args[0] if args else options.get("hidden_states")
        if not isinstance(x_BTD, Tensor):
            raise Unusable("what the first layer reads is no tensor")
        receive(0, x_BTD)

    handles = []
    for number, layer in enumerate(stack, start=1):
        handles.append(layer.register_forward_hook(receive_output_of(number)))
    if first_layer == 0:
        first = stack[0]
        handles.append(first.register_forward_pre_hook(receive_input, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
