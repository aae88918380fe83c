"""One batch through a model of the transformers library, every layer pooled at once.

B batch, T positions (tokens, frames, patches), W positions of the longest part, L layers,
D hidden size.
"""

import copy
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import MethodType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gaam_cache.common.devices import out_of_memory, send
from gaam_cache.encoders._weights import waiting
from gaam_cache.encoders.poolings.base import load_poolings

Mask = Literal[
    "never", "where padded", "always"
]  # when a batch comes with an attention mask


class Unusable(Exception):  # noqa: N818 caught within this package
    """Why a model, or one way of running it, does not yield pooled states."""


class Span(NamedTuple):
    """Of every row the positions that are pooled: from ``start_B`` on, ``length_B`` of them."""

    start_B: Tensor
    length_B: Tensor
    width: int  # W: kept beside the lengths, so that nobody waits for a device

    def of(self, x_BTD: Tensor) -> Tensor:
        """These positions moved to the front, (B, W, D): what is behind a part may be anything."""
        position_W = torch.arange(self.width, device=x_BTD.device)
        start_B = self.start_B.to(x_BTD.device)
        place_BW = (start_B[:, None] + position_W).clamp_max(x_BTD.shape[1] - 1)
        return x_BTD[torch.arange(len(x_BTD), device=x_BTD.device)[:, None], place_BW]


class Batch(NamedTuple):
    """Rows as a model takes them, on its device."""

    inputs: dict[str, Tensor]  # what it is called with, but for the mask
    length_B: Tensor  # how many positions of every row are pooled
    mask: Tensor | None = (
        None  # 1 where there is something of a row, 0 where there is padding
    )
    padded: bool = False  # whether rows differ in length
    positions: int | None = None  # T; None where only the model knows
    span: Span | None = (
        None  # which of these positions are pooled, where it is a part of them
    )


class Forward(ABC):
    """Runs a model and pools its layers.

    Either hooks on a stack of layers pool each layer as it is produced, or the model is asked for
    its hidden states and those are pooled; ``probe`` sets which, and when there is a mask. A model
    may change while it reads: BigBird leaves its sparse attention for good at its first short text.
    Then every batch is read by a new copy, which shares the parameters.
    """

    tries_lengths: ClassVar[bool] = False
    """Whether a row that is longer than those that were tried is read alone."""
    mask: Mask = "always"
    stack: str | None = None
    """Name of the layers that are hooked; None asks the model for its hidden states."""
    last_from_output = False
    """Whether the model's output is the last layer's state: Llama normalises in between."""
    first_layer: Literal[0, 1] = 1
    """Of the ``hidden_states`` of transformers: 0 is what its first layer reads."""
    changes = False  # whether the model was seen to change while it read a row
    renews = True  # whether every batch, and every row alone, is read by a model as it was loaded
    longest: int | None = 0
    """Positions of the longest row that was tried: a batch with a longer one is read row by row, as
    by ``reference``. 0 before anything was tried; None where length means nothing."""
    longest_shared: int | None = None
    """The same of batches of several rows."""

    def __init__(
        self, model: nn.Module, *, device: torch.device, pooling: Sequence[str]
    ) -> None:
        self.loaded: Any = model
        self.device = device
        floating = (p.dtype for p in model.parameters() if p.is_floating_point())
        self.dtype = next(floating, torch.float32)
        self.poolings = load_poolings(pooling)
        self.takes = frozenset(inspect.signature(model.forward).parameters)
        self.takes_mask = "attention_mask" in self.takes
        self._always: dict[str, Any] = (
            {"use_cache": False} if "use_cache" in self.takes else {}
        )
        for setting, value in (("return_dict", True), ("output_hidden_states", False)):
            if hasattr(config := getattr(model, "config", None), setting):
                setattr(config, setting, value)
        self.model = self._renewed()
        self._unchanged: Any = (
            None  # a copy that is as the loaded model, though it has read rows
        )

    def _renewed(self) -> Any:
        """A copy of the loaded model, which shares its weights."""
        shared = (*self.loaded.parameters(), *waiting(self.loaded))
        return copy.deepcopy(self.loaded, {id(held): held for held in shared})

    def take(self, model: Any, dtype: torch.dtype) -> None:
        """Run this model from now on, whose arithmetic is of ``dtype``."""
        self.loaded, self.dtype = model, dtype
        self.model = self._renewed()
        self._unchanged = None

    @abstractmethod
    def batch(self, items: Sequence[Any]) -> Batch:
        """Rows as the model takes them."""

    def is_causal(self, items: Sequence[Any]) -> bool | None:  # noqa: ARG002
        """Whether what comes later in a row shifts no earlier state; None where nobody can say."""
        return None

    def __call__(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Pooled states of a batch: (B, L, D) float32 for every pooling."""
        batch = self.batch(items)
        if self._is_untried(batch):
            return self._one_by_one(items)
        if self.mask == "never" or (self.mask == "where padded" and not batch.padded):
            batch = batch._replace(mask=None)
        if self.renews:
            self.model = self._renewed()
        if self.stack is None:
            layers = self._asked(batch)
        else:
            layers = self._hooked(self.model.get_submodule(self.stack), batch)
        return self._together(layers)

    def _is_untried(self, batch: Batch) -> bool:
        positions = batch.positions or math.inf
        limits = (
            [self.longest]
            if len(batch.length_B) == 1
            else [self.longest, self.longest_shared]
        )
        return any(limit is not None and positions > limit for limit in limits)

    def _one_by_one(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Pooled states of a batch of which nothing is known, by ``reference``."""
        rows = [self.reference(item) for item in items]
        return {name: torch.cat([row[name] for row in rows]) for name in self.poolings}

    def reference(self, item: Any) -> dict[str, Tensor]:
        """The pooled hidden states of one row, by transformers and a model that reads no batch."""
        batch, of_batches = self.batch([item]), self.model
        self.model = (
            (self._unchanged or self._renewed()) if self.renews else self.loaded
        )
        try:
            layers = self._asked(batch)
            if self.renews:
                self._unchanged = (
                    self.model if _same(self.model, self.loaded, set()) else None
                )
                self.changes |= self._unchanged is None
        finally:
            self.model = of_batches
        return self._together(layers)

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """An array where the model reads it."""
        return send(torch.from_numpy(array), self.device)

    def _together(self, layers: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """(B, L, D) for every pooling, of layers that may be on several devices."""
        return {
            name: torch.stack([layer[name].to(self.device) for layer in layers], dim=1)
            for name in self.poolings
        }

    def _asked(self, batch: Batch) -> list[dict[str, Tensor]]:
        return [self._reduce(x_BTD, batch) for x_BTD in self.hidden_states(batch)[1]]

    def _hooked(self, stack: nn.ModuleList, batch: Batch) -> list[dict[str, Tensor]]:
        states: dict[int, dict[str, Tensor]] = {}

        def keep(layer: int, x_BTD: Any) -> None:
            states[layer] = self._reduce(x_BTD, batch)

        with hooks(stack, keep, first_layer=self.first_layer):
            output = self.run(batch)
        if self.last_from_output:
            keep(len(stack), output.last_hidden_state)
        numbers = range(self.first_layer, len(stack) + 1)
        if len(states) != len(numbers):
            raise Unusable("not every layer was run")
        return [states[layer] for layer in numbers]

    def _reduce(self, x_BTD: Any, batch: Batch) -> dict[str, Tensor]:
        """The states of one layer, pooled: (B, D) for every pooling."""
        length_B = batch.length_B
        if batch.span is not None:
            x_BTD, length_B = batch.span.of(x_BTD), batch.span.length_B
        here_B = length_B.to(x_BTD.device)
        return {name: pool(x_BTD, here_B) for name, pool in self.poolings.items()}

    def hidden_states(self, batch: Batch) -> tuple[Any, tuple[Tensor, ...]]:
        """The model's output, and its hidden states from ``first_layer`` on."""
        output = self.run(batch, output_hidden_states=True)
        states = getattr(output, "hidden_states", None)
        if not isinstance(states, tuple | list) or len(states) < 2:
            raise Unusable("the model returns no hidden states")
        layers = tuple(states[self.first_layer :])
        if not all(isinstance(x, Tensor) for x in layers):
            raise Unusable("the hidden states of a layer are no tensor")
        shapes, some = {tuple(x.shape) for x in layers}, tuple(layers[-1].shape)
        positions = (
            some[1] if batch.positions is None and len(some) == 3 else batch.positions
        )
        expected = (len(batch.length_B), positions)
        if wrong := [
            shape for shape in shapes if len(shape) != 3 or shape[:2] != expected
        ]:
            shape = f"an input of {_shape(batch)} gives a layer of {wrong[0]}"
            raise Unusable(f"the hidden states are not one for every position: {shape}")
        if len(shapes) > 1:
            sizes = sorted(shape[2] for shape in shapes)
            raise Unusable(
                f"the layers differ in hidden size: {', '.join(map(str, sizes))}"
            )
        return output, layers

    def run(self, batch: Batch, **options: Any) -> Any:
        """The model's output."""
        if self.takes_mask and batch.mask is not None:
            options["attention_mask"] = batch.mask
        try:
            return self.model(**batch.inputs, **self._always, **options)
        except Unusable:
            raise
        except Exception as error:
            if out_of_memory(error):
                raise
            # a foreign model may fail in any way
            raise Unusable(
                f"it fails on an input of {_shape(batch)}: {said(error)}"
            ) from error


def said(error: Exception) -> str:
    """The kind of an exception of others, and its first line."""
    line = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {line:.200}"


def _same(now: Any, before: Any, seen: set[tuple[int, int]]) -> bool:
    """Whether two copies hold the same, but for hooks; what cannot be compared does not."""
    pair = id(now), id(before)
    if now is before or pair in seen:
        return True
    if type(now) is not type(before):
        return False
    seen.add(pair)
    if isinstance(now, Tensor):
        return (
            not now.is_meta and now.dtype == before.dtype and torch.equal(now, before)
        )
    if isinstance(now, np.ndarray):
        return np.array_equal(now, before)
    if isinstance(now, partial):
        now, before = ((one.func, one.args, one.keywords) for one in (now, before))
    if isinstance(now, MethodType):
        now, before = ((one.__func__, one.__self__) for one in (now, before))
    if isinstance(now, list | tuple):
        pairs = zip(now, before, strict=False)
        return len(now) == len(before) and all(_same(*pair, seen) for pair in pairs)
    if isinstance(now, nn.Module) or (hasattr(now, "__dict__") and not callable(now)):
        now, before = vars(now), vars(before)
    if isinstance(now, Mapping):
        names = {name for name in (*now, *before) if "hooks" not in str(name)}
        both = names <= now.keys() & before.keys()
        return both and all(_same(now[name], before[name], seen) for name in names)
    try:
        return repr(now) == repr(before) or bool(now == before)
    except Exception:  # noqa: BLE001 whatever a foreign object says
        return False


def _shape(batch: Batch) -> tuple[int, ...]:
    return tuple(next(iter(batch.inputs.values())).shape)


@contextmanager
def hooks(
    stack: nn.ModuleList, keep: Callable[[int, Any], None], *, first_layer: int
) -> Iterator[None]:
    """While open, every layer hands its number and output to ``keep``; 0 is the first's input."""

    def hook(layer: int) -> Any:
        def see(module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG001
            keep(layer, output if isinstance(output, Tensor) else output[0])

        return see

    def see_input(module: nn.Module, args: Any, options: Any) -> None:  # noqa: ARG001
        x_BTD = args[0] if args else options.get("hidden_states")
        if not isinstance(x_BTD, Tensor):
            raise Unusable("what the first layer reads is no tensor")
        keep(0, x_BTD)

    handles = [
        layer.register_forward_hook(hook(i)) for i, layer in enumerate(stack, start=1)
    ]
    if first_layer == 0:
        handles.append(stack[0].register_forward_pre_hook(see_input, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
