"""An encoder of the transformers library in a folder: what is read, hashed, loaded and run.

B batch, L layers, D hidden size.
"""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Self

import torch
import transformers
from torch import Tensor

from gaam_cache.config import ExtractConfig
from gaam_cache.devices import (
    check_arithmetic,
    has_bfloat16,
    out_of_memory,
    resolve_device,
    said_of_memory,
)
from gaam_cache.encoders._adapters import check_package
from gaam_cache.encoders._base import Encoder
from gaam_cache.encoders._forward import Forward, Unusable
from gaam_cache.encoders._gguf import alone
from gaam_cache.encoders._located import Located, foreign, locate
from gaam_cache.encoders._notices import other_weights
from gaam_cache.encoders._probe import Items, probe
from gaam_cache.encoders._weights import (
    draw_untrained,
    encoder_part,
    entry_device,
    load_trained,
    own,
    skeleton,
)
from gaam_cache.encoders.poolings._base import load_poolings
from gaam_cache.errors import ConfigError, ShortOfMemoryError
from gaam_cache.messages import visible
from gaam_cache.store.plan import CONVENTIONS


class ModelEncoder(Encoder):
    """Pools every layer of a transformers model while the forward pass produces it.

    How a model must be run for the states of a row to be its own, whatever else is in the batch,
    is not read off its name: a probe measures it when the weights are loaded.
    """

    given: ClassVar[frozenset[str]]  # names of arguments by one of which its models are given rows
    reads: ClassVar[str]  # what it is, for messages: 'a text encoder and tokenizer'
    states_of: ClassVar[str]  # what of a row has a state in every layer, for messages
    _forward: Forward

    def __init__(self, located: Located, config: ExtractConfig, model_config: Any) -> None:
        """Use ``open``."""
        self.name, self.revision = config.encoder, located.revision
        self.device = resolve_device(config.device)
        self.dtype = choose_dtype(config.dtype, self.device)
        if config.untrained_encoder:
            self.untrained_seed = config.encoder_seed or 0
        self._kept = [int(n) for n in (config.layers or "").split("-") if n]  # first and last
        self._first_run: Literal[0, 1] = 0 if config.layer_zero or self._kept[:1] == [0] else 1
        self._located, self._config, self._model_config = located, config, model_config
        self.adapter_of = located.adapter.base if located.adapter else None

    @classmethod
    def open_outline(cls, config: ExtractConfig) -> Self:
        """The same of an encoder whose weights are not there, and not fetched from the hub."""
        return cls.open(config, weights=False)

    @classmethod
    def open(cls, config: ExtractConfig, *, weights: bool = True) -> Self:
        """Find the encoder and read all but its weights."""
        load_poolings(config.pool)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        weights &= not config.untrained_encoder
        located = locate(config.encoder, config.revision, weights=weights)
        if located.adapter is not None:
            check_package(located.adapter)
        expected = f"{cls.reads} that transformers knows by itself"
        with foreign(f"cannot read the encoder '{config.encoder}'", located.path, expected):
            model_config = _read_config(located)
            mapped = transformers.MODEL_MAPPING.get(type(model_config), None)
            models = mapped if isinstance(mapped, tuple) else (mapped,)
            takes = [inspect.signature(m.forward).parameters for m in models if m is not None]
            # one that is not mapped is refused by the library, in its words
            if takes and not any(cls.given & names.keys() for names in takes):
                raise ConfigError(
                    f"'{config.encoder}' does not read such rows",
                    expected=cls.reads,
                    found=f"model_type: {visible(str(model_config.model_type))}",
                    hint="choose another --encoder, or look at what the --dataset holds",
                )
            encoder = cls(located, config, model_config)
            try:
                encoder.max_length = encoder._read()
            except Unusable as reason:
                raise encoder._failed(reason) from reason
        return encoder

    @abstractmethod
    def _read(self) -> int:
        """Read what else the folder holds, such as a tokenizer; returns the longest length."""

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """What decides the numbers beside files, arithmetic and pooling: JSON values."""

    def _part_of(self, model: Any) -> Any:
        """Of a model the part that is run."""
        return encoder_part(model)

    @abstractmethod
    def _forward_of(self, part: Any, model: Any) -> Forward:
        """How it is run."""

    @abstractmethod
    def _candidates(self, part: Any) -> tuple[Sequence[Items], int]:
        """Rows for the probe, and the length up to which they are tried together."""

    def _more_files(self) -> set[str]:
        """Names of files that are read beside the usual ones."""
        return set()

    def _failed(self, reason: Unusable) -> ConfigError:
        """The refusal of an encoder that cannot be run as asked."""
        message = f"'{self.name}' does not yield a state for every layer and {self.states_of}"
        expected = f"{self.reads} whose hidden states transformers returns"
        return ConfigError(message, expected=expected, found=str(reason))

    def identity(self) -> dict[str, Any]:
        """Hashes of all files that decide the numbers, and the settings that do."""
        untrained: dict[str, Any] = {}
        if self.untrained_seed is not None:
            # neither library promises to draw the same numbers in another version
            untrained["untrained"] = {
                "seed": self.untrained_seed,
                "torch": torch.__version__.partition("+")[0],
                "transformers": transformers.__version__,
            }
        return {
            **untrained,
            "files": self._located.hashes(self._more_files()),
            "dtype": self.dtype,
            "max_length": self.max_length,
            "pooling": list(self._config.pool),
            "layers": f"transformers.hidden_states[{self._kept[0]}:{self._kept[-1] + 1}]"
            if self._kept
            else CONVENTIONS[self._first_run],
            **self._settings(),
        }

    def notices(self) -> list[str]:
        """Weights beside those that are read, where they differ."""
        return list(other_weights(self._located))

    def outline(self) -> None:
        """Set ``num_layers`` and ``hidden_size`` as the configuration has them."""
        with foreign(f"cannot build '{self.name}'", self._located.path):
            part = self._part_of(skeleton(self._model_config))
            told = (getattr(part, "config", None) or self._model_config).get_text_config()
            self._keep(told.num_hidden_layers + 1 - self._first_run)
            self.hidden_size = told.hidden_size

    def load(self) -> None:
        """Load the weights, or draw them, and probe the model."""
        try:
            model = self._loaded()
            part = self._part_of(model.eval()).requires_grad_(False)
            if self._config.device_map is None:
                part.to(self.device)
            else:
                self.device = entry_device(part)
                check_arithmetic(self.dtype, self.device)
            if self.untrained_seed is None:
                own(model)
            self._forward = self._forward_of(part, model)
            self._forward.first_layer = self._first_run
            candidates, longest = self._candidates(part)
            with torch.inference_mode():
                found = probe(self._forward, candidates, dtype=self.dtype, longest=longest)
        except Unusable as reason:
            raise self._failed(reason) from reason
        except Exception as error:
            if not out_of_memory(error):
                raise
            numbers = self._part_of(skeleton(self._model_config)).parameters()
            size = sum(p.numel() for p in numbers) * getattr(torch, self.dtype).itemsize
            raise ShortOfMemoryError(
                f"the encoder does not fit into the memory of {self.device}",
                expected=f"{size / 1e9:,.1f} GB for its weights in {self.dtype}, and more for "
                "what it computes",
                found=said_of_memory(error),
                where=self.name,
                hint="--dtype bfloat16, another --device, or --set device-map=auto (several GPUs)",
            ) from error
        self.batching, layers, self.hidden_size = found
        self._keep(layers)

    def _keep(self, run: int) -> None:
        """Of so many layers that are run those that are asked for."""
        first, last = self._first_run, self._first_run + run - 1
        kept = self._kept or [first, last]
        if kept[-1] > last:
            message = f"--layers {self._config.layers} is more than '{self.name}' has"
            raise ConfigError(message, expected=f"layers from 0 to {last}")
        self._slice = slice(kept[0] - first, kept[-1] + 1 - first)
        self.num_layers = self._slice.stop - self._slice.start

    def _loaded(self) -> Any:
        if self.untrained_seed is not None:
            with foreign(f"cannot build '{self.name}'", self._located.path):
                return draw_untrained(self._model_config, self.untrained_seed, self.dtype)
        return load_trained(
            self._located,
            self._model_config,
            self.name,
            self.dtype,
            self._config.device_map,
            self._part_of,
        )

    def encode(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Pooled states of a batch: (B, L, D) float32 for every pooling."""
        return self._pooled(self._forward, items)

    def encode_alone(self, item: Any) -> dict[str, Tensor]:
        """Pooled hidden states of one row as transformers itself gives them.

        By none of the ways that ``encode`` takes, so that a proof shares none of its faults.
        """
        return self._pooled(self._forward.reference, item)

    @torch.inference_mode()
    def _pooled(self, run: Callable[[Any], dict[str, Tensor]], rows: Any) -> dict[str, Tensor]:
        try:
            return {name: x_BLD[:, self._slice] for name, x_BLD in run(rows).items()}
        except Unusable as reason:
            raise self._failed(reason) from reason


def _read_config(located: Located) -> Any:
    """The configuration of a folder or of a GGUF file."""
    options = {"local_files_only": True, "trust_remote_code": False}
    if not located.is_gguf:
        return transformers.AutoConfig.from_pretrained(located.path, **options)
    with alone(located.path) as (folder, reading):
        return transformers.AutoConfig.from_pretrained(folder, **options | reading)


def choose_dtype(asked: str, device: torch.device) -> str:
    """Of ``auto`` bfloat16 where the device has it, else float16 on a GPU, float32 elsewhere."""
    check_arithmetic(asked, device)
    if asked != "auto":
        return asked
    if has_bfloat16(device):
        return "bfloat16"
    return "float16" if device.type == "cuda" else "float32"
