"""Text encoders of the transformers library, BERT-like and Llama-like.

B batch, T tokens, L layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from gaam_cache import registry
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._base import Encoder, Inputs
from gaam_cache.encoders._choices import choose_dtype, choose_max_length
from gaam_cache.encoders._locate import Located, locate
from gaam_cache.encoders._weights import draw_untrained, load_trained, untrained_identity
from gaam_cache.errors import ConfigError
from gaam_cache.pooling import POOLINGS, check_names

LAYER_CONVENTION = "transformers.hidden_states[1:]"
PROBE_TOKENS = 12
CAUSAL_SHIFT = 1e-6
"""Largest relative effect of a later token that counts as none. To be taken for bidirectional by
mistake costs a causal model some speed; the other mistake would cost the states their truth."""


class TextEncoder(Encoder):
    """Pools every layer of a transformers text model while the forward pass produces it.

    A forward hook on each layer pools its output at once, so that no layer's token states outlive
    the layer. Whether the hooks see what ``transformers`` calls ``hidden_states[1:]``, and whether
    the model is causal, is not read off its name: a probe of a few tokens measures both when the
    weights are loaded.

    Numerics:
        Causal models run with right padding, no attention mask and no key-value cache: a real
        token never sees the padding behind it, and the kernel for plain causal attention stays
        available. Others get a mask, in batches that have padding.
    """

    def __init__(
        self,
        located: Located,
        config: ExtractConfig,
        tokenizer: transformers.PreTrainedTokenizerBase,
        model_config: transformers.PretrainedConfig,
    ) -> None:
        """Use ``TextEncoder.open``."""
        self.name = config.encoder
        self.revision = located.revision
        self.num_layers = int(model_config.num_hidden_layers)
        self.hidden_size = int(model_config.hidden_size)
        self.max_length = choose_max_length(config.max_length, tokenizer, model_config)
        self.device = registry.resolve_device(config.device)
        self.dtype = choose_dtype(config.dtype, self.device)
        if config.untrained_encoder:
            self.untrained_seed = config.encoder_seed or 0
        self._located = located
        self._model_config = model_config
        self._config = config
        self._tokenizer = tokenizer
        self._pad_id = tokenizer.pad_token_id or 0

    @classmethod
    def open(cls, config: ExtractConfig) -> TextEncoder:
        """Find the encoder and read its configuration and tokenizer.

        Raises:
            ConfigError: not a text encoder that transformers knows without remote code, or no such
                device.
        """
        check_names(config.pool)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        located = locate(config.encoder, config.revision, weights=not config.untrained_encoder)
        options = {"local_files_only": True, "trust_remote_code": False}
        try:
            model_config = transformers.AutoConfig.from_pretrained(located.path, **options)
            tokenizer = transformers.AutoTokenizer.from_pretrained(located.path, **options)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise ConfigError(
                f"cannot read the encoder '{config.encoder}'",
                expected="a text encoder and tokenizer that transformers knows by itself",
                found=str(error).strip().splitlines()[0],
                where=str(located.path),
            ) from error
        if not getattr(model_config, "num_hidden_layers", None):
            raise ConfigError(
                f"the architecture '{model_config.model_type}' is not supported",
                expected="one stack of layers (BERT, GPT, Llama and their kin)",
                where=str(located.path),
            )
        return cls(located, config, tokenizer, model_config)

    def identity(self) -> dict[str, Any]:
        """Hashes of all files that decide the numbers, and the settings that do."""
        untrained = {}
        if self.untrained_seed is not None:
            untrained["untrained"] = untrained_identity(self.untrained_seed)
        return {
            **untrained,
            "files": self._located.hashes(),
            "dtype": self.dtype,
            "max_length": self.max_length,
            "special_tokens": True,
            "pooling": list(self._config.pool),
            "layers": LAYER_CONVENTION,
        }

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """Token ids of every text, special tokens included, cut at the maximum length."""
        cut = self._token_ids(rows, max_length=self.max_length)
        full = [i for i, ids in enumerate(cut) if len(ids) == self.max_length]
        truncated = [False] * len(cut)
        if full:
            # only a text that fills the maximum can have been cut: ask for its true length
            for i, ids in zip(full, self._token_ids([rows[i] for i in full]), strict=True):
                truncated[i] = len(ids) > self.max_length
        return Inputs(items=cut, lengths=[len(ids) for ids in cut], truncated=truncated)

    def _token_ids(self, rows: Sequence[str], max_length: int | None = None) -> list[list[int]]:
        encoded = self._tokenizer(
            list(rows),
            add_special_tokens=True,
            padding=False,
            truncation=max_length is not None,
            max_length=max_length,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return encoded["input_ids"]

    def load(self) -> None:
        """Load the weights, or draw them, and probe the model.

        Raises:
            ConfigError: weights that do not fit the architecture.
        """
        if self.untrained_seed is not None:
            model = draw_untrained(self._model_config, self.untrained_seed, self.dtype)
        else:
            device_map = self._config.device_map
            model = load_trained(self._located.path, self.name, self.dtype, device_map)
        if self._config.device_map is None:
            model.to(self.device)
        self._attach(model.eval())

    def _attach(self, model: transformers.PreTrainedModel) -> None:
        self._model: Any = model
        model.config.use_cache = False
        self._states: dict[int, Any] = {}
        self._reduce: Any = None
        stacks = [
            module
            for module in model.modules()
            if isinstance(module, nn.ModuleList) and len(module) == self.num_layers
        ]
        if not stacks:
            raise ConfigError(
                f"found no stack of {self.num_layers} layers in {type(model).__name__}",
                expected="a text encoder with one list of layers",
                where=self.name,
            )
        for index, layer in enumerate(stacks[0]):
            layer.register_forward_hook(self._hook(index))
        self._probe()

    def _hook(self, index: int) -> Any:
        def keep(module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG001
            x_BTD = output if isinstance(output, Tensor) else output[0]
            self._states[index] = self._reduce(x_BTD)

        return keep

    @torch.inference_mode()
    def _probe(self) -> None:
        """Measure what the hooks see and whether later tokens reach earlier states."""
        size = len(self._model.get_input_embeddings().weight)
        # from the middle of the vocabulary: special tokens, which may move positions, lie at its
        # ends
        count = min(PROBE_TOKENS, self.max_length)
        ids = [size // 2 + i % max(1, size // 4) for i in range(count)]
        changed = [*ids[:-1], ids[-1] - 1]
        self._reduce = lambda x_BTD: x_BTD
        output, other = (
            self._model(
                input_ids=torch.tensor([tokens], device=self.device), output_hidden_states=True
            )
            for tokens in (changed, ids)
        )
        expected = other.hidden_states[1:]
        if len(expected) != self.num_layers:
            raise ConfigError(
                f"'{self.name}' returns {len(expected)} layers of hidden states",
                expected=f"{self.num_layers}, as its configuration says",
            )
        same = [torch.equal(self._states[i], x_BTD) for i, x_BTD in enumerate(expected)]
        # Llama and GPT-2 normalise after the last layer and call the result its hidden state
        self._last_from_output = not same[-1]
        if not all(same[:-1]) or not (
            same[-1] or torch.equal(other.last_hidden_state, expected[-1])
        ):
            raise ConfigError(
                f"the layers of {type(self._model).__name__} do not yield its hidden states",
                expected="layer outputs equal to transformers' hidden_states[1:]",
                found=f"layers {[i + 1 for i, ok in enumerate(same) if not ok]} differ",
            )
        before_BTD = expected[-1][:, :-1].float()
        shift = (output.hidden_states[-1][:, :-1].float() - before_BTD).norm()
        # a causal model does not shift at all; a bidirectional one that is untrained shifts little
        self.causal = bool(shift <= CAUSAL_SHIFT * before_BTD.norm())
        self._states.clear()

    def _to_device(self, values: list[Any]) -> Tensor:
        """A tensor on the device; a copy to a GPU neither waits nor makes Python wait."""
        tensor = torch.tensor(values)
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor

    @torch.inference_mode()
    def encode(self, items: Sequence[list[int]]) -> dict[str, Tensor]:
        """Pooled states of every layer for one batch of token ids.

        Shape:
            items: B lists of T_b token ids. Result: (B, L, D) float32 for every pooling.
        """
        lengths = [len(ids) for ids in items]
        longest = max(lengths)
        padded = [ids + [self._pad_id] * (longest - len(ids)) for ids in items]
        ids_BT = self._to_device(padded)
        length_B = self._to_device(lengths)
        mask_BT = None
        if not self.causal and min(lengths) < longest:
            mask_BT = (torch.arange(longest, device=self.device) < length_B[:, None]).long()

        def reduce(x_BTD: Tensor) -> dict[str, Tensor]:
            here_B = length_B.to(x_BTD.device)
            return {name: POOLINGS[name](x_BTD, here_B) for name in self._config.pool}

        self._reduce = reduce
        output = self._model(input_ids=ids_BT, attention_mask=mask_BT)
        if self._last_from_output:
            self._states[self.num_layers - 1] = reduce(output.last_hidden_state)
        layers = [self._states.pop(i) for i in range(self.num_layers)]
        return {
            name: torch.stack([layer[name].to(self.device) for layer in layers], dim=1)
            for name in self._config.pool
        }
