"""One batch through a model of the transformers library, every layer pooled at once.

B batch, T tokens, L layers, D hidden size.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gaam_cache.devices import out_of_memory, send
from gaam_cache.encoders._token_ids import TokenIds
from gaam_cache.encoders.poolings._base import load_poolings
from gaam_cache.errors import ConfigError

Mask = Literal["never", "where padded", "always"]
"""When a batch comes with an attention mask."""


class Unusable(Exception):  # noqa: N818 caught within this package
    """Why a model, or one way of running it, does not yield pooled states."""


class Forward:
    """Runs a model and pools its layers.

    Either forward hooks on a stack of layers pool each layer as it is produced, and no layer's
    token states outlive the layer; or the model is asked for its hidden states and those are
    pooled. Which of the two, and when there is a mask, is set from outside: see ``_probe``.
    """

    mask: Mask = "always"
    stack: nn.ModuleList | None = None
    """The layers that are hooked; None asks the model for its hidden states."""
    last_from_output = False
    """Whether the last layer's states are the model's output rather than that of the last layer:
    Llama and GPT-2 normalise in between."""

    def __init__(
        self,
        model: nn.Module,
        *,
        device: torch.device,
        pooling: Sequence[str],
        pad_id: int,
        vocabulary: int | None,
    ) -> None:
        self.model = model
        self.device = device
        self._poolings = load_poolings(pooling)
        self._pad_id = pad_id
        self.takes = frozenset(inspect.signature(model.forward).parameters)
        self.takes_mask = "attention_mask" in self.takes
        self._always: dict[str, Any] = {"use_cache": False} if "use_cache" in self.takes else {}
        for setting, value in (("return_dict", True), ("output_hidden_states", False)):
            if hasattr(config := getattr(model, "config", None), setting):
                setattr(config, setting, value)
        self.vocabulary = vocabulary

    def __call__(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Pooled states of a batch: (B, L, D) float32 for every pooling.

        Raises:
            Unusable: the model fails, or yields something else.
        """
        tokens = TokenIds.of(items)
        padded_BT = tokens.padded(self._pad_id)
        if self.vocabulary is not None and (largest := int(padded_BT.max())) >= self.vocabulary:
            raise Unusable(
                f"the tokenizer makes the token {largest}, "
                f"the model has embeddings for {self.vocabulary}"
            )
        ids_BT = self._to_device(padded_BT)
        length_B = self._to_device(tokens.length_N)
        longest = ids_BT.shape[1]
        has_padding = int(tokens.length_N.min()) < longest
        mask_BT = None
        if self.mask == "always" or (self.mask == "where padded" and has_padding):
            mask_BT = (torch.arange(longest, device=self.device) < length_B[:, None]).long()
        if self.stack is None:
            layers = self._reduced_hidden_states(ids_BT, mask_BT, length_B)
        else:
            layers = self._hooked(self.stack, ids_BT, mask_BT, length_B)
        return self._together(layers)

    def reference(self, ids: Sequence[int] | NDArray[Any]) -> dict[str, Tensor]:
        """The pooled ``hidden_states[1:]`` of one text, computed by transformers alone."""
        ids_BT = torch.tensor(ids, device=self.device)[None]
        length_B = torch.tensor([len(ids)], device=self.device)
        return self._together(
            self._reduced_hidden_states(ids_BT, torch.ones_like(ids_BT), length_B)
        )

    def _to_device(self, array: NDArray[Any]) -> Tensor:
        return send(torch.from_numpy(array), self.device)

    def _together(self, layers: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
        """(B, L, D) for every pooling, of layers that may be on several devices."""
        return {
            name: torch.stack([layer[name].to(self.device) for layer in layers], dim=1)
            for name in self._poolings
        }

    def hidden_states(
        self, ids_BT: Tensor, mask_BT: Tensor | None
    ) -> tuple[Any, tuple[Tensor, ...]]:
        """The model's output, and its hidden states without the first.

        Raises:
            Unusable: there are none, or they are not one state for every layer and token.
        """
        output = self.run(ids_BT, mask_BT, output_hidden_states=True)
        states = getattr(output, "hidden_states", None)
        if not isinstance(states, tuple | list) or len(states) < 2:
            raise Unusable("the model returns no hidden states")
        layers = tuple(states[1:])
        if not all(isinstance(x, Tensor) and x.is_floating_point() for x in layers):
            raise Unusable("the hidden states are no tensors of numbers")
        shapes = {tuple(x.shape) for x in layers}
        tokens = {shape[:2] for shape in shapes}
        if any(len(shape) != 3 for shape in shapes) or tokens != {tuple(ids_BT.shape)}:
            wrong = next(s for s in shapes if len(s) != 3 or s[:2] != tuple(ids_BT.shape))
            raise Unusable(
                f"the hidden states are not one for every token: {tuple(ids_BT.shape)} token ids "
                f"give a layer of {wrong}"
            )
        if len(shapes) > 1:
            sizes = sorted(shape[2] for shape in shapes)
            raise Unusable(f"the layers differ in hidden size: {', '.join(map(str, sizes))}")
        return output, layers

    def _reduced_hidden_states(
        self, ids_BT: Tensor, mask_BT: Tensor | None, length_B: Tensor
    ) -> list[dict[str, Tensor]]:
        _, layers = self.hidden_states(ids_BT, mask_BT)
        return [self._reduce(x_BTD, length_B) for x_BTD in layers]

    def _reduce(self, x_BTD: Any, length_B: Tensor) -> dict[str, Tensor]:
        here_B = length_B.to(x_BTD.device)
        return {name: pool(x_BTD, here_B) for name, pool in self._poolings.items()}

    def _hooked(
        self, stack: nn.ModuleList, ids_BT: Tensor, mask_BT: Tensor | None, length_B: Tensor
    ) -> list[dict[str, Tensor]]:
        states: dict[int, dict[str, Tensor]] = {}

        def keep(index: int, x_BTD: Tensor) -> None:
            states[index] = self._reduce(x_BTD, length_B)

        with hooks(stack, keep):
            output = self.run(ids_BT, mask_BT)
        if self.last_from_output:
            keep(len(stack) - 1, output.last_hidden_state)
        if len(states) != len(stack):
            raise Unusable("not every layer was run")
        return [states[i] for i in range(len(stack))]

    def run(self, ids_BT: Tensor, mask_BT: Tensor | None, **options: Any) -> Any:
        """The model's output.

        Raises:
            Unusable: it fails, for whatever reason; out of memory stays what it is.
        """
        if self.takes_mask and mask_BT is not None:
            options["attention_mask"] = mask_BT
        try:
            return self.model(input_ids=ids_BT, **self._always, **options)
        except Unusable:
            raise
        except Exception as error:
            if out_of_memory(error):
                raise
            # a foreign model may fail in any way
            shape = " x ".join(map(str, ids_BT.shape))
            said = (str(error).strip().splitlines() or [""])[0]
            raise Unusable(
                f"it fails on {shape} token ids: {type(error).__name__}: {said:.200}"
            ) from error


@contextmanager
def hooks(stack: nn.ModuleList, keep: Callable[[int, Tensor], None]) -> Iterator[None]:
    """While open, every layer hands its output to ``keep``."""

    def hook(index: int) -> Any:
        def see(module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG001
            keep(index, output if isinstance(output, Tensor) else output[0])

        return see

    handles = [layer.register_forward_hook(hook(i)) for i, layer in enumerate(stack)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def vocabulary(*models: Any) -> int | None:
    """How many token ids the first of these models that has such a table has embeddings for."""
    for model in models:
        with suppress(NotImplementedError, AttributeError):
            if isinstance(found := model.get_input_embeddings(), nn.Embedding):
                return found.num_embeddings
    return None


def text_part(model: Any) -> Any:
    """What reads the text: of an encoder-decoder model, its encoder."""
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model


def failed(name: str, reason: Unusable) -> ConfigError:
    """The refusal of an encoder that cannot be run as asked."""
    return ConfigError(
        f"'{name}' does not yield a state for every layer and token",
        expected="a text encoder whose hidden states transformers returns from token ids alone",
        found=str(reason),
        hint="choose another encoder, or fewer tokens with --max-length",
    )
