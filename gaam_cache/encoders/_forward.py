"""Runs a batch through a model of the transformers library, and pools every layer.

Shape suffixes: B rows of a batch, T positions (tokens, frames, patches), W positions of
the widest span, L layers, D hidden size.
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

from gaam_cache.common.devices import copy_to_device, out_of_memory
from gaam_cache.encoders._compiled import LayerCompiler
from gaam_cache.encoders._weights import offloaded_weights
from gaam_cache.encoders.poolings.base import load_poolings

Mask = Literal["never", "where padded", "always"]
"""When the model gets an attention mask with a batch."""


class Unusable(Exception):  # noqa: N818 caught within this package
    """The reason why a model, or one way of running it, yields no pooled states."""


class Span(NamedTuple):
    """The pooled positions of every row, if they are only a part of the row.

    They begin at ``start_B``, and there are ``length_B`` of them.
    """

    start_B: Tensor
    length_B: Tensor
    max_length: (
        int  # W: a Python number, since reading it from a device would take time
    )

    def move_to_front(self, x_BTD: Tensor) -> Tensor:
        """Move the pooled positions of every row to its front: (B, W, D).

        The result has arbitrary values behind the pooled positions of a row.
        """
        offset_W = torch.arange(self.max_length, device=x_BTD.device)
        start_B = self.start_B.to(x_BTD.device)
        # A span may be shorter than W and end at the last position: the indices behind
        # it must not leave the row.
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
    span: Span | None = None  # the pooled positions, if not the first ``length_B``


class Forward(ABC):
    """Runs a model and pools its layers, in one of two ways.

    Either hooks on a stack of layers pool each layer as the model produces it, or the
    model returns all hidden states, and these are pooled. ``probe`` measures which way
    is right, and when the model needs a mask.

    Reading may change a model: BigBird turns its sparse attention off for good at its
    first short text. Each batch of such a model is read by a new copy. The copies share
    their parameters.

    Attributes:
        loaded_model: the model as it was loaded. It never reads a batch.
        running_model: the copy of ``loaded_model`` that reads batches.
        argument_names: names of the arguments that the model accepts.
        takes_mask: whether the model takes an attention mask.
        poolings: name -> pooling.
    """

    reads_long_rows_alone: ClassVar[bool] = False
    """Whether a row that is longer than all rows of the probe is read alone."""
    mask: Mask = "always"
    """With which batches the model gets a mask; with all of them before a probe."""
    stack_name: str | None = None
    """Name of the module list in the model whose layers get hooks.

    None stands for the other way: the model returns its hidden states.
    """
    last_layer_from_output = False
    """Whether the last layer's state is the model's output, not the stack's.

    It is for Llama, which normalises the output of its stack.
    """
    first_layer: Literal[0, 1] = 1
    """Index of the first pooled entry of transformers' ``hidden_states``.

    Entry 0 is the input of the first layer.
    """
    reading_changes_model = False
    """Whether a copy of the model was seen to change while it read a row."""
    uses_fresh_copies = True
    """Whether each batch is read by a fresh copy of the loaded model."""
    longest_batch: int | None = 0
    """Most positions of a batch that runs as a whole.

    The rows of a longer batch run one by one, by ``reference_states``. The limit is the
    length of the longest row of the probe; 0 before a probe, and None if there is none.
    """
    longest_shared_batch: int | None = None
    """The same limit for batches of two or more rows; None if there is none."""

    def __init__(
        self, model: nn.Module, *, device: torch.device, pooling: Sequence[str]
    ) -> None:
        """Prepare to run a model.

        Args:
            model: the part of a loaded model that turns rows into states.
            device: where the model reads its input.
            pooling: names of the poolings.
        """
        self.loaded_model = model
        self.device = device
        self.dtype = _float_dtype(model)
        self.poolings = load_poolings(pooling)
        self.argument_names = frozenset(inspect.signature(model.forward).parameters)
        self.takes_mask = "attention_mask" in self.argument_names
        # arguments that the model gets with every batch
        self._extra_arguments: dict[str, Any] = {}
        # The key-value cache of a decoder serves generation, and would take memory.
        if "use_cache" in self.argument_names:
            self._extra_arguments["use_cache"] = False

        # A saved configuration may ask the model to return tuples, or hidden states in
        # every run.
        config = getattr(model, "config", None)
        for setting, value in (("return_dict", True), ("output_hidden_states", False)):
            if hasattr(config, setting):
                setattr(config, setting, value)

        # Reading may change a model. So copies read all rows, and the loaded model
        # shows whether a copy has changed. Copies are cheap: they share its weights.
        self.running_model = self._copy_loaded_model()
        self._reusable_copy: nn.Module | None = None
        """A copy that has read single rows, and still equals the loaded model.

        None if there is none.
        """

    def _copy_loaded_model(self) -> nn.Module:
        """Copy the loaded model; the copy shares its weights and has its own buffers.

        Reading a row may change buffers and settings, but no weights.
        """
        shared = (
            *self.loaded_model.parameters(),
            *offloaded_weights(self.loaded_model),
        )
        # deepcopy takes what is in this table for copies that it has made before, and
        # so puts the original weights into the copy.
        return copy.deepcopy(
            self.loaded_model, {id(weight): weight for weight in shared}
        )

    def use_model(self, model: nn.Module, dtype: torch.dtype) -> None:
        """From now on, run a copy of another model, which computes in ``dtype``.

        What was measured on the model before must hold for this one too, such as
        ``reading_changes_model``: whether its states differ once hooks have read it.
        """
        self.loaded_model = model
        self.dtype = dtype
        self.running_model = self._copy_loaded_model()
        # this was a copy of the model before
        self._reusable_copy = None

    def compile_layers(self) -> None:
        """From now on, read batches with compiled layers; single rows as before.

        ``stack_name`` must name the layers, and reading must not change the model.
        """
        self.running_model = self._copy_loaded_model()
        assert self.stack_name is not None
        stack = cast(nn.ModuleList, self.running_model.get_submodule(self.stack_name))
        compiler = LayerCompiler(self.device.type)
        for layer in stack:
            compiler.compile(layer)

    @abstractmethod
    def batch(self, items: Sequence[Any]) -> Batch:
        """Collate rows as the model takes them."""

    def is_causal(self, items: Sequence[Any]) -> bool | None:  # noqa: ARG002
        """Whether later positions leave earlier states unchanged.

        This method tries nothing and returns None. A subclass may run the model on rows
        to find out.

        Args:
            items: the rows to try.

        Returns:
            None if it is not known.
        """
        return None

    def __call__(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Run the model on a batch; return its states, (B, L, D) float32 by pooling.

        Hooks on the layers in ``stack_name`` pool the states. If this is None, they are
        pooled from the hidden states that the model returns.
        """
        batch = self.batch(items)
        # Nothing has shown that so long a batch gives rows their right states.
        if self._is_longer_than_probed(batch):
            return self._run_row_by_row(items)

        # Faster kernels for plain attention are available only without a mask.
        needs_no_mask = self.mask == "where padded" and not batch.padded
        if self.mask == "never" or needs_no_mask:
            batch = batch._replace(mask=None)
        # Some models change while they run: each batch then gets a fresh copy.
        if self.uses_fresh_copies:
            self.running_model = self._copy_loaded_model()
        if self.stack_name is None:
            layers = self._pool_hidden_states(batch)
        else:
            layers = self._pool_by_hooks(self.stack_name, batch)
        return self._stack_layers(layers)

    def _is_longer_than_probed(self, batch: Batch) -> bool:
        """Whether the rows, with their padding, are longer than those of the probe.

        The probe compared states on rows of some lengths when the model was loaded. Up
        to ``longest_batch`` positions, a row has its right states; up to
        ``longest_shared_batch``, it has them beside other rows too. None stands for any
        length.
        """
        # T, as all rows of a batch are padded to one length. If it is unknown, the
        # batch counts as longer than any limit.
        padded_length = batch.positions or math.inf
        limits = [self.longest_batch]
        num_rows = len(batch.length_B)
        if num_rows != 1:
            limits.append(self.longest_shared_batch)
        return any(limit is not None and padded_length > limit for limit in limits)

    def _run_row_by_row(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Pooled states of a batch, (B, L, D), whose rows are run one by one.

        Each row has the states that transformers itself returns for it alone.
        """
        states_of_rows = [self.reference_states(item) for item in items]
        return {
            name: torch.cat([states[name] for states in states_of_rows])
            for name in self.poolings
        }

    def reference_states(self, item: Any) -> dict[str, Tensor]:
        """Pool the hidden states that transformers itself returns for one row alone.

        These are the right states of the row, with which its states in a batch are
        compared. No batch has been read by the model that computes them.

        Returns:
            The pooled states, (1, L, D) for every pooling.
        """
        batch = self.batch([item])
        # ``_pool_hidden_states`` runs ``running_model``: another model takes its place
        # for a moment. Even if that fails, batches must get the model that they had.
        model_of_batches = self.running_model
        self.running_model = self._model_without_batches()
        try:
            layers = self._pool_hidden_states(batch)
            if self.uses_fresh_copies:
                self._reuse_copy_if_unchanged(self.running_model)
        finally:
            self.running_model = model_of_batches
        return self._stack_layers(layers)

    def _model_without_batches(self) -> nn.Module:
        """A model that has read no batch, and that single rows have not changed.

        It is the loaded model itself, if the probe has found that reading does not
        change the model. Otherwise it is a copy.
        """
        if not self.uses_fresh_copies:
            return self.loaded_model
        if self._reusable_copy is not None:
            return self._reusable_copy
        return self._copy_loaded_model()

    def _reuse_copy_if_unchanged(self, model_copy: nn.Module) -> None:
        """Keep a copy that has read a row for the next row, if it has not changed.

        Otherwise the copy is dropped, and ``reading_changes_model`` becomes True.
        """
        if _is_same(model_copy, self.loaded_model):
            self._reusable_copy = model_copy
        else:
            self._reusable_copy = None
            self.reading_changes_model = True

    def to_device(self, array: NDArray[Any]) -> Tensor:
        """Copy an array to the device from which the model reads its input."""
        return copy_to_device(torch.from_numpy(array), self.device)

    def _stack_layers(self, layers: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Stack the pooled states of all layers: (B, L, D) for every pooling.

        ``layers`` holds the states of every layer, (B, D) for every pooling. They may
        lie on several devices.
        """
        return {
            name: torch.stack([layer[name].to(self.device) for layer in layers], dim=1)
            for name in self.poolings
        }

    def _pool_hidden_states(self, batch: Batch) -> list[dict[str, Tensor]]:
        """Let the model return all hidden states, and then pool them.

        Returns:
            For every layer the pooled states, (B, D) for every pooling.
        """
        _, layers = self.hidden_states(batch)
        return [self._pool_layer(x_BTD, batch) for x_BTD in layers]

    def _pool_by_hooks(self, stack_name: str, batch: Batch) -> list[dict[str, Tensor]]:
        """Pool every layer as soon as it has run, by hooks on the layers.

        Args:
            stack_name: name of the list of layers in the model.
            batch: the rows.

        Returns:
            For every layer the pooled states, (B, D) for every pooling.
        """
        stack = cast(nn.ModuleList, self.running_model.get_submodule(stack_name))
        states: dict[int, dict[str, Tensor]] = {}

        def pool(layer: int, x_BTD: Tensor) -> None:
            states[layer] = self._pool_layer(x_BTD, batch)

        with layer_hooks(stack, pool, first_layer=self.first_layer):
            output = self.run(batch)
        # If a final norm follows the stack, transformers' last hidden state is the
        # output of the norm. It replaces what the hook of the last layer has pooled.
        if self.last_layer_from_output:
            pool(len(stack), output.last_hidden_state)

        expected_layers = range(self.first_layer, len(stack) + 1)
        if len(states) != len(expected_layers):
            raise Unusable("not every layer was run")
        return [states[layer] for layer in expected_layers]

    def _pool_layer(self, x_BTD: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Pool the states of one layer: (B, D) for every pooling."""
        length_B = batch.length_B
        # A pooling reads the first positions of a row. If only a span of the row is to
        # be pooled, the span has to come first.
        if batch.span is not None:
            x_BTD = batch.span.move_to_front(x_BTD)
            length_B = batch.span.length_B
        length_B = length_B.to(x_BTD.device)
        return {name: pool(x_BTD, length_B) for name, pool in self.poolings.items()}

    def hidden_states(self, batch: Batch) -> tuple[Any, tuple[Tensor, ...]]:
        """Run the model, and check that it returns a state for every position.

        Returns:
            The model's output; and its hidden states from ``first_layer`` on, each
            (B, T, D).
        """
        output = self.run(batch, output_hidden_states=True)
        states = getattr(output, "hidden_states", None)
        # The first of the hidden states is the input of the first layer: a model with
        # a layer returns two or more.
        if not isinstance(states, tuple | list) or len(states) < 2:
            raise Unusable("the model returns no hidden states")

        layers = tuple(states[self.first_layer :])
        if not all(isinstance(x, Tensor) for x in layers):
            raise Unusable("the hidden states of a layer are no tensor")
        _check_shapes(layers, batch)
        return output, layers

    def run(self, batch: Batch, **options: Any) -> Any:
        """Run the model and return its output, an object of transformers.

        ``options`` are more arguments for the model. Any failure but a lack of memory
        becomes ``Unusable``.
        """
        if self.takes_mask and batch.mask is not None:
            options["attention_mask"] = batch.mask
        try:
            # A hook may raise ``Unusable`` while the model runs.
            return self.running_model(
                **batch.inputs, **self._extra_arguments, **options
            )
        except Unusable:
            raise
        except Exception as error:
            if out_of_memory(error):
                raise
            # The model is code of other projects, and may raise any error.
            raise Unusable(
                f"it fails on an input of {_input_shape(batch)}: {error_summary(error)}"
            ) from error


def _float_dtype(model: nn.Module) -> torch.dtype:
    """The type of the model's first floating-point weight; float32 if it has none."""
    for parameter in model.parameters():
        if parameter.is_floating_point():
            return parameter.dtype
    return torch.float32


def _check_shapes(layers: Sequence[Tensor], batch: Batch) -> None:
    """Refuse hidden states that cannot be pooled and stacked.

    Every layer must have one state for every position of every row, (B, T, D), and all
    layers the same D.
    """
    # If only the model knows the number of positions, the last layer shows it.
    positions = batch.positions
    if positions is None and layers[-1].ndim == 3:
        positions = layers[-1].shape[1]
    expected = (len(batch.length_B), positions)

    # Almost always, all layers have one shape.
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
    """Shape of the model's first argument, for messages."""
    return tuple(next(iter(batch.inputs.values())).shape)


def error_summary(error: Exception) -> str:
    """The type of a library's exception, and the first line of its message.

    At most 200 characters of the message are taken.
    """
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]:.200}"


def _is_same(
    now: Any, before: Any, compared: set[tuple[int, int]] | None = None
) -> bool:
    """Whether two copies of an object hold equal values, apart from hooks.

    Values that cannot be compared count as different.

    Args:
        now: the copy that has read rows.
        before: the object as it was.
        compared: ids of the pairs whose comparison has begun. They are not compared
            again, because objects may refer to one another in circles. None for the
            outermost pair.
    """
    if compared is None:
        compared = set()
    # Copies share their weights, so that most comparisons end here.
    pair = (id(now), id(before))
    if now is before or pair in compared:
        return True
    if type(now) is not type(before):
        return False
    compared.add(pair)

    # A tensor on the device "meta" has no numbers.
    if isinstance(now, Tensor):
        is_comparable = not now.is_meta and now.dtype == before.dtype
        return is_comparable and torch.equal(now, before)
    if isinstance(now, np.ndarray):
        return np.array_equal(now, before)

    # Containers and objects are equal if all of their contents are. Any other value is
    # compared by ``==``.
    now = _contents(now)
    before = _contents(before)
    if isinstance(now, list | tuple):
        return len(now) == len(before) and all(
            _is_same(now_value, before_value, compared)
            for now_value, before_value in zip(now, before, strict=True)
        )
    if isinstance(now, Mapping):
        # A hook observes a model, and is no part of what decides its states.
        names = {name for name in (*now, *before) if "hooks" not in str(name)}
        # A name that only one of the two has is a difference.
        if not names <= now.keys() & before.keys():
            return False
        return all(_is_same(now[name], before[name], compared) for name in names)
    return _is_equal(now, before)


def _contents(value: Any) -> Any:
    """Break a container or an object into what it holds, for a comparison.

    Returns:
        A list or tuple of values; or the attributes of an object, by name; or the value
        itself if it holds no others, as a number, a class or a function.
    """
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


def _is_equal(now: object, before: object) -> bool:
    """Whether two small values, such as numbers and settings, are equal.

    Tensors, arrays and containers are compared elsewhere. Values that print alike count
    as equal too: objects without a comparison of their own, and NaN. A comparison that
    fails counts as a difference.
    """
    try:
        return repr(now) == repr(before) or bool(now == before)
    except Exception:  # noqa: BLE001 other projects' objects may raise anything
        return False


@contextmanager
def layer_hooks(
    stack: nn.ModuleList, receive: Callable[[int, Tensor], None], *, first_layer: int
) -> Iterator[None]:
    """While open, call ``receive`` with the number and output of every layer that runs.

    Args:
        stack: the layers; the first one has the number 1.
        receive: takes a layer's number and its output.
        first_layer: 0 to call ``receive`` with the first layer's input too, under the
            number 0; otherwise 1.
    """

    # A function of its own for every layer remembers the layer's number.
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
            raise Unusable("the input of the first layer is no tensor")
        receive(0, x_BTD)

    handles = []
    for number, layer in enumerate(stack, start=1):
        handles.append(layer.register_forward_hook(receive_output_of(number)))
    if first_layer == 0:
        handle = stack[0].register_forward_pre_hook(receive_input, with_kwargs=True)
        handles.append(handle)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
