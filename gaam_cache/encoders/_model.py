"""An encoder of the transformers library in a folder: what is read, hashed, loaded and run.

B batch, L layers, D hidden size.
"""

import copy
import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
import transformers
from torch import Tensor

from gaam_cache.common.devices import (
    check_arithmetic,
    cpu_name,
    give_back,
    has_bfloat16,
    memory_message,
    name_of,
    out_of_memory,
    resolve_device,
)
from gaam_cache.common.errors import ConfigError, ShortOfMemoryError
from gaam_cache.common.messages import visible
from gaam_cache.common.version import __version__
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders import _kept
from gaam_cache.encoders._adapters import check_package
from gaam_cache.encoders._forward import Forward, Unusable
from gaam_cache.encoders._gguf import alone
from gaam_cache.encoders._located import Located, foreign, locate
from gaam_cache.encoders._notices import other_weights
from gaam_cache.encoders._precision import exact_or_none
from gaam_cache.encoders._probe import Items, Measured, probe
from gaam_cache.encoders._weights import (
    draw_untrained,
    encoder_part,
    entry_device,
    load_trained,
    own,
    skeleton,
)
from gaam_cache.encoders.base import Encoder, ExactStates
from gaam_cache.encoders.poolings.base import load_poolings
from gaam_cache.store.files import hash_file
from gaam_cache.store.plan import CONVENTIONS, Batching


class ModelEncoder(Encoder):
    """Pools every layer of a transformers model while the forward pass produces it.

    How a model must be run for the states of a row to be its own, whatever else is in the batch,
    is not read off its name: a probe measures it when the weights are loaded.
    """

    given: ClassVar[
        frozenset[str]
    ]  # names of arguments by one of which its models are given rows
    reads: ClassVar[str]  # what it is, for messages: 'a text encoder and tokenizer'
    states_of: ClassVar[str]  # what of a row has a state in every layer, for messages
    _forward: Forward

    def __init__(
        self, located: Located, config: ExtractConfig, model_config: Any
    ) -> None:
        """Use ``open``."""
        self.name, self.revision = config.encoder, located.revision
        self.device = resolve_device(config.device)
        self.dtype = choose_dtype(config.dtype, self.device)
        if config.untrained_encoder:
            self.untrained_seed = config.encoder_seed or 0
        self._kept = [
            int(n) for n in (config.layers or "").split("-") if n
        ]  # first and last
        self._first_run: Literal[0, 1] = (
            0 if config.layer_zero or self._kept[:1] == [0] else 1
        )
        self._located, self._config, self._model_config = located, config, model_config
        self._has_weights = False
        self._reach = 0  # length of the longest row that the model was probed for
        self._identity: dict[str, Any] | None = None
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
        with foreign(
            f"cannot read the encoder '{config.encoder}'", located.path, expected
        ):
            model_config = _read_config(located)
            mapped = transformers.MODEL_MAPPING.get(type(model_config), None)
            models = mapped if isinstance(mapped, tuple) else (mapped,)
            takes = [
                inspect.signature(m.forward).parameters for m in models if m is not None
            ]
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
    def _candidates(self, part: Any, reach: int) -> tuple[Sequence[Items], int]:
        """Rows for the probe up to a length, and the length up to which all share a batch."""

    def _more_files(self) -> set[str]:
        """Names of files that are read beside the usual ones."""
        return set()

    def _failed(self, reason: Unusable) -> ConfigError:
        """The refusal of an encoder that cannot be run as asked."""
        message = (
            f"'{self.name}' does not yield a state for every layer and {self.states_of}"
        )
        expected = f"{self.reads} whose hidden states transformers returns"
        return ConfigError(message, expected=expected, found=str(reason))

    def identity(self) -> dict[str, Any]:
        """Hashes of all files that decide the numbers, and the settings that do."""
        if self._identity is None:  # the files are hashed once
            self._identity = self._identified()
        return copy.deepcopy(self._identity)

    def _identified(self) -> dict[str, Any]:
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
            told = (
                getattr(part, "config", None) or self._model_config
            ).get_text_config()
            self._keep(told.num_hidden_layers + 1 - self._first_run)
            self.hidden_size = told.hidden_size

    def load(self) -> None:
        """Load the weights, or draw them, and probe the model for rows of any length."""
        self.load_for()

    def load_for(
        self,
        longest: int | None = None,
        *,
        batching: Batching | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Load the weights, or draw them, and probe the model as far as rows so long need it."""
        with self._refusing():
            if not self._has_weights:
                self._load_weights()
            if longest is None and batching != "alone":
                longest = self.max_length
            if longest is not None:
                self._check_memory(min(longest, self.max_length))
            if batching == "alone":
                self._look_at_shape()
            else:
                self._measure(min(longest or self.max_length, self.max_length), tell)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Why a model cannot be run becomes a refusal, and so does too little memory for it."""
        try:
            yield
        except Unusable as reason:
            raise self._failed(reason) from reason
        except Exception as error:
            if isinstance(error, ShortOfMemoryError) or not out_of_memory(error):
                raise
            numbers = self._part_of(skeleton(self._model_config)).parameters()
            size = sum(p.numel() for p in numbers) * getattr(torch, self.dtype).itemsize
            raise ShortOfMemoryError(
                f"the encoder does not fit into the memory of {self.device}",
                expected=f"{size / 1e9:,.1f} GB for its weights in {self.dtype}, and more for "
                "what it computes",
                found=memory_message(error),
                where=self.name,
                hint="--dtype bfloat16, another --device, or --set device-map=auto (several GPUs)",
            ) from error

    def _load_weights(self) -> None:
        model = self._loaded()
        self._part = self._part_of(model.eval()).requires_grad_(False)
        if self._config.device_map is None:
            self._part.to(self.device)
        else:
            self.device = entry_device(self._part)
            check_arithmetic(self.dtype, self.device)
        if self.untrained_seed is None:
            own(model)
        self._forward = self._forward_of(self._part, model)
        self._forward.first_layer = self._first_run
        self._has_weights = True

    def _check_memory(self, longest: int) -> None:
        """Refuse rows so long that the system would end this process for the memory they take."""

    def _look_at_shape(self) -> None:
        """Set what is known of a model of which every row is encoded alone."""
        if self._reach:
            return  # more was measured
        for rows in self._candidates(self._part, 1)[0]:
            try:
                with torch.inference_mode():
                    states = self._forward.reference(rows[0])
                break
            except Unusable as reason:
                failed = reason
        else:
            raise failed
        _, layers, self.hidden_size = next(iter(states.values())).shape
        self.batching = "alone"
        self._keep(layers)

    def _measure(self, longest: int, tell: Callable[[str], None]) -> None:
        """Probe the model with rows up to a length, unless somebody did, and remember it."""
        reach = self._reach_of(longest)
        if reach <= self._reach:
            return
        conditions = self._conditions(reach)
        measured = _kept.read(conditions)
        if measured is None or not measured.fits(self._forward):
            tell("measuring which rows share batches")
            measured = self._probe(reach)
            if measured.longest in (None, reach):
                _kept.write(conditions, measured)
        measured.apply(self._forward)
        self._reach = reach
        self.batching, self.acts_causal = measured.batching, measured.acts_causal
        self.hidden_size = measured.hidden_size
        self._keep(measured.num_layers)

    @torch.inference_mode()
    def _probe(self, reach: int) -> Measured:
        """The same with rows that are shorter where there is no memory for several such rows."""
        while True:
            candidates, together = self._candidates(self._part, reach)
            try:
                return probe(
                    self._forward,
                    candidates,
                    dtype=self.dtype,
                    together=together,
                    shared=self._shared(reach),
                )
            except Exception as error:
                too_long = self._forward.tries_lengths and reach > together
                if not too_long or not out_of_memory(error):
                    raise
            # not before here: an exception that is handled holds all tensors of where it came from
            give_back(self.device)
            reach = max(together, reach // 2)

    def _reach_of(self, longest: int) -> int:  # noqa: ARG002
        """Length of the longest row that is tried, where rows up to ``longest`` are encoded."""
        return self.max_length

    def _shared(self, reach: int) -> int | None:  # noqa: ARG002
        """Beyond how many positions a row, of at most so many, fills a batch; None: none does."""
        return None

    def _conditions(self, reach: int) -> dict[str, Any]:
        """All that what is measured depends on. JSON values."""
        of_model = getattr(self._part, "config", self._model_config)
        on_cpu = self.device.type == "cpu"
        return {
            "encoder": self.identity(),
            "kind": self.noun,
            "longest": reach,
            "longest_shared": self._shared(reach),
            "device": [
                self.device.type,
                cpu_name() if on_cpu else name_of(self.device),
            ],
            "device_map": self._config.device_map,
            "attention": getattr(of_model, "_attn_implementation", None),
            "gaam": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "source": [
                _source_of(cls)
                for cls in (type(self._part), Forward, Measured, type(self))
            ],
        }

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
                return draw_untrained(
                    self._model_config, self.untrained_seed, self.dtype
                )
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

    def exact(
        self, items: Sequence[Any], row: int
    ) -> tuple[ExactStates, ExactStates] | None:
        """A row's states in its batch, and alone, in float64, or of half precision in float32."""
        exact = exact_or_none(self._forward)
        if exact is None:
            return None
        try:
            together = exact.together(items)
            alone = exact.alone(items[row])
        except Exception as error:
            if not isinstance(error, Unusable) and not out_of_memory(error):
                raise
            return None
        kept = self._slice
        return (
            {name: x_BLD[row, kept].cpu().numpy() for name, x_BLD in together.items()},
            {name: x_BLD[0, kept].cpu().numpy() for name, x_BLD in alone.items()},
        )

    @torch.inference_mode()
    def _pooled(
        self, run: Callable[[Any], dict[str, Tensor]], rows: Any
    ) -> dict[str, Tensor]:
        try:
            return {name: x_BLD[:, self._slice] for name, x_BLD in run(rows).items()}
        except Unusable as reason:
            raise self._failed(reason) from reason


def _source_of(cls: type) -> str:
    """Digest of the file that a class is written in; empty where there is none."""
    try:
        return hash_file(Path(inspect.getfile(cls)))
    except (OSError, TypeError):
        return ""


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
