"""Encoders of the transformers library: finding, hashing, loading, probing and running.

Text, audio and image encoders extend ``ModelEncoder``. They add what their rows need,
such as a tokenizer.

B batch, L layers, D hidden size.
"""

import copy
import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
import transformers
from torch import Tensor, nn

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

    The states of a row must not depend on the other rows of its batch. How a model must
    be run for that is not read off its name: a probe measures it once the weights are
    loaded.
    """

    given: ClassVar[frozenset[str]]
    """Model arguments for rows; a model must have at least one of them."""
    reads: ClassVar[str]
    """The kind of encoder, for messages: 'a text encoder and tokenizer'."""
    states_of: ClassVar[str]
    """The part of a row that has a state in every layer, for messages: 'token'."""
    _forward: Forward
    _part: nn.Module

    def __init__(
        self, located: Located, config: ExtractConfig, model_config: Any
    ) -> None:
        """Use ``open``."""
        self._located = located
        self._config = config
        self._model_config = model_config
        self.name = config.encoder
        self.revision = located.revision
        self.device = resolve_device(config.device)
        self.dtype = choose_dtype(config.dtype, self.device)
        if located.adapter is not None:
            self.adapter_of = located.adapter.base
        if config.untrained_encoder:
            self.untrained_seed = config.encoder_seed or 0

        self._requested_layers = _parse_layers(config.layers)
        reads_layer_zero = config.layer_zero
        if self._requested_layers is not None:
            reads_layer_zero = reads_layer_zero or self._requested_layers[0] == 0
        self._first_layer: Literal[0, 1] = 0 if reads_layer_zero else 1

        self._has_weights = False
        self._probed_length = 0  # length of the longest row that the probe covered
        self._identity: dict[str, Any] | None = None

    @classmethod
    def open_outline(cls, config: ExtractConfig) -> Self:
        """Open an encoder without its weights, which the hub need not send."""
        return cls.open(config, weights=False)

    @classmethod
    def open(cls, config: ExtractConfig, *, weights: bool = True) -> Self:
        """Find the encoder and read everything but its weights."""
        # A wrong --pool is refused before anything is fetched.
        load_poolings(config.pool)
        library_logging: Any = transformers.logging
        library_logging.set_verbosity_error()
        library_logging.disable_progress_bar()

        needs_weights = weights and not config.untrained_encoder
        located = locate(config.encoder, config.revision, weights=needs_weights)
        if located.adapter is not None:
            check_package(located.adapter)

        problem = f"cannot read the encoder '{config.encoder}'"
        expected = f"{cls.reads} that transformers knows by itself"
        with foreign(problem, located.path, expected):
            model_config = _read_config(located)
            cls._check_arguments(config.encoder, model_config)
            encoder = cls(located, config, model_config)
            try:
                encoder.max_length = encoder._read()
            except Unusable as reason:
                raise encoder._refusal(reason) from reason
        return encoder

    @classmethod
    def _check_arguments(cls, name: str, model_config: Any) -> None:
        """Refuse a model that takes no rows of this kind."""
        # One configuration may belong to several model classes, to one, or to none.
        mapped = transformers.MODEL_MAPPING.get(type(model_config), None)
        model_classes = mapped if isinstance(mapped, tuple) else (mapped,)
        arguments_by_class = [
            inspect.signature(model_class.forward).parameters
            for model_class in model_classes
            if model_class is not None
        ]

        # transformers itself refuses a model without a class, in its own words.
        if not arguments_by_class:
            return
        if not any(cls.given & arguments.keys() for arguments in arguments_by_class):
            raise ConfigError(
                f"'{name}' does not read rows of this kind",
                expected=cls.reads,
                found=f"model_type: {visible(str(model_config.model_type))}",
                hint="choose another --encoder, or check the rows of --dataset",
            )

    @abstractmethod
    def _read(self) -> int:
        """Read the other files of the folder, such as a tokenizer's.

        Returns:
            The maximum length of a row.
        """

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Settings that decide the numbers, beside files, arithmetic and pooling.

        JSON values.
        """

    def _part_of(self, model: nn.Module) -> Any:
        """Select the part of a model that is run."""
        return encoder_part(model)

    @abstractmethod
    def _forward_of(self, part: nn.Module, model: nn.Module) -> Forward:
        """Build the forward of that part."""

    @abstractmethod
    def _candidates(self, part: nn.Module, reach: int) -> tuple[Sequence[Items], int]:
        """Make rows for the probe.

        Args:
            part: the part of the model that is run.
            reach: length of the longest row.

        Returns:
            Sets of rows, of which the probe takes the first that the model can read;
            and the length up to which all rows of a set share a batch.
        """

    def _more_files(self) -> set[str]:
        """Names of files that the encoder reads beside the usual ones."""
        return set()

    def _refusal(self, reason: Unusable) -> ConfigError:
        """Build the error for an encoder that cannot be run."""
        return ConfigError(
            f"'{self.name}' does not yield a state for every layer and "
            f"{self.states_of}",
            expected=f"{self.reads} whose hidden states transformers returns",
            found=str(reason),
        )

    def identity(self) -> dict[str, Any]:
        """Hashes of all files that decide the numbers, and the settings that do."""
        # The files are large: they are hashed once.
        if self._identity is None:
            self._identity = self._compute_identity()
        return copy.deepcopy(self._identity)

    def _compute_identity(self) -> dict[str, Any]:
        identity: dict[str, Any] = {}
        if self.untrained_seed is not None:
            # Another version of these libraries may draw other random weights.
            identity["untrained"] = {
                "seed": self.untrained_seed,
                "torch": torch.__version__.partition("+")[0],
                "transformers": transformers.__version__,
            }
        identity["files"] = self._located.hashes(self._more_files())
        identity["dtype"] = self.dtype
        identity["max_length"] = self.max_length
        identity["pooling"] = list(self._config.pool)
        identity["layers"] = self._layer_convention()
        identity.update(self._settings())
        return identity

    def _layer_convention(self) -> str:
        """The pooled layers as a slice of transformers' hidden states."""
        if self._requested_layers is None:
            return CONVENTIONS[self._first_layer]
        first_kept, last_kept = self._requested_layers
        return f"transformers.hidden_states[{first_kept}:{last_kept + 1}]"

    def notices(self) -> list[str]:
        """Remarks on other weights in the folder that differ from those in use."""
        return list(other_weights(self._located))

    def outline(self) -> None:
        """Set ``num_layers`` and ``hidden_size`` from the configuration."""
        with foreign(f"cannot build '{self.name}'", self._located.path):
            part = self._part_of(skeleton(self._model_config))
            # A model of several kinds of rows keeps these numbers in a nested part.
            config = getattr(part, "config", None) or self._model_config
            settings = config.get_text_config()
            self._select_layers(settings.num_hidden_layers + 1 - self._first_layer)
            self.hidden_size = settings.hidden_size

    def load(self) -> None:
        """Load or draw the weights, and probe the model for rows of any length."""
        self.load_for()

    def load_for(
        self,
        longest: int | None = None,
        *,
        batching: Batching | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Load or draw the weights, and probe the model as far as these rows need."""
        with self._refusing():
            if not self._has_weights:
                self._load_weights()

            if longest is None and batching != "alone":
                longest = self.max_length
            if longest is not None:
                self._check_memory(min(longest, self.max_length))

            # Rows that are encoded alone need no probe of what batches do to them.
            if batching == "alone":
                self._measure_shape()
            else:
                self._measure(min(longest or self.max_length, self.max_length), tell)

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        """Explain to the user why a model cannot be run, or that memory is short."""
        try:
            yield
        except Unusable as reason:
            raise self._refusal(reason) from reason
        except Exception as error:
            if isinstance(error, ShortOfMemoryError) or not out_of_memory(error):
                raise
            raise self._short_of_memory(error) from error

    def _short_of_memory(self, error: Exception) -> ShortOfMemoryError:
        """Build the error for a model that does not fit into memory."""
        # The weights need not be in memory to be counted.
        part = self._part_of(skeleton(self._model_config))
        count = sum(parameter.numel() for parameter in part.parameters())
        size = count * getattr(torch, self.dtype).itemsize
        return ShortOfMemoryError(
            f"the encoder does not fit into the memory of {self.device}",
            expected=f"{size / 1e9:,.1f} GB for its weights in {self.dtype}, and more "
            "for what it computes",
            found=memory_message(error),
            where=self.name,
            hint="--dtype bfloat16, another --device, or --set device-map=auto "
            "(several GPUs)",
        )

    def _load_weights(self) -> None:
        model = self._load_model()
        self._part = self._part_of(model.eval()).requires_grad_(False)
        if self._config.device_map is None:
            self._part.to(self.device)
        else:
            # accelerate has spread the layers: rows go to the device of the first one.
            self.device = entry_device(self._part)
            check_arithmetic(self.dtype, self.device)

        # Drawn weights lie in memory already; loaded ones may be views of a file.
        if self.untrained_seed is None:
            own(model)
        self._forward = self._forward_of(self._part, model)
        self._forward.first_layer = self._first_layer
        self._has_weights = True

    def _load_model(self) -> Any:
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

    def _check_memory(self, longest: int) -> None:
        """Refuse rows whose memory would make the system kill this process."""

    def _measure_shape(self) -> None:
        """Set what is known of a model that encodes every row alone."""
        # A probe has measured this and more.
        if self._probed_length:
            return
        states = self._read_shortest_row()
        _, num_layers, self.hidden_size = next(iter(states.values())).shape
        self.batching = "alone"
        self._select_layers(num_layers)

    @torch.inference_mode()
    def _read_shortest_row(self) -> dict[str, Tensor]:
        """States of the first row of the first candidates that the model can read."""
        candidates, _ = self._candidates(self._part, 1)
        *first_candidates, last_candidate = candidates
        for rows in first_candidates:
            with suppress(Unusable):
                return self._forward.reference(rows[0])
        return self._forward.reference(last_candidate[0])

    def _measure(self, longest: int, tell: Callable[[str], None]) -> None:
        """Probe the model with rows up to a length, unless an earlier probe is kept."""
        probe_length = self._reach_of(longest)
        if probe_length <= self._probed_length:
            return

        conditions = self._conditions(probe_length)
        measured = _kept.read(conditions)
        if measured is None or not measured.fits(self._forward):
            tell("measuring which rows share batches")
            measured = self._probe(probe_length)
            # A result for shorter rows is not kept: the next start may have more room.
            if measured.longest in (None, probe_length):
                _kept.write(conditions, measured)

        measured.apply(self._forward)
        self._probed_length = probe_length
        self.batching = measured.batching
        self.acts_causal = measured.acts_causal
        self.hidden_size = measured.hidden_size
        self._select_layers(measured.num_layers)

    @torch.inference_mode()
    def _probe(self, probe_length: int) -> Measured:
        """Probe the model, with shorter rows where memory is too small for these."""
        while True:
            candidates, short_length = self._candidates(self._part, probe_length)
            try:
                return probe(
                    self._forward,
                    candidates,
                    dtype=self.dtype,
                    short_length=short_length,
                    longest_shared=self._shared(probe_length),
                )
            except Exception as error:
                can_shorten = (
                    self._forward.tries_lengths and probe_length > short_length
                )
                if not can_shorten or not out_of_memory(error):
                    raise

            # Inside the handler, the exception would keep the tensors of its frames.
            give_back(self.device)
            probe_length = max(short_length, probe_length // 2)

    def _reach_of(self, longest: int) -> int:  # noqa: ARG002
        """Length of the probe's longest row for rows up to ``longest``."""
        return self.max_length

    def _shared(self, reach: int) -> int | None:  # noqa: ARG002
        """Length above which a row is alone in its batch; None if no row is too long.

        ``reach`` is the length of the longest row.
        """
        return None

    def _conditions(self, probe_length: int) -> dict[str, Any]:
        """Everything that the result of a probe depends on, as JSON values."""
        on_cpu = self.device.type == "cpu"
        device_name = cpu_name() if on_cpu else name_of(self.device)
        # The attention kernel that transformers chose is in the part's configuration.
        part_config = getattr(self._part, "config", self._model_config)
        # Changed code is measured anew, even within one version of gaam.
        classes = (type(self._part), Forward, Measured, type(self))
        return {
            "encoder": self.identity(),
            "kind": self.noun,
            "longest": probe_length,
            "longest_shared": self._shared(probe_length),
            "device": [self.device.type, device_name],
            "device_map": self._config.device_map,
            "attention": getattr(part_config, "_attn_implementation", None),
            "gaam": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "source": [_source_digest(cls) for cls in classes],
        }

    def _select_layers(self, count: int) -> None:
        """Select the requested layers of the ``count`` layers that the model runs."""
        # Layers count as transformers' hidden states do: 0 is the first layer's input.
        first_layer = self._first_layer
        last_layer = first_layer + count - 1
        first_kept, last_kept = self._requested_layers or (first_layer, last_layer)
        if last_kept > last_layer:
            raise ConfigError(
                f"--layers {self._config.layers}: '{self.name}' has no layer "
                f"{last_kept}",
                expected=f"layers from 0 to {last_layer}",
            )
        self._slice = slice(first_kept - first_layer, last_kept + 1 - first_layer)
        self.num_layers = last_kept + 1 - first_kept

    def encode(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Pooled states of a batch: (B, L, D) float32 for every pooling."""
        return self._encode(self._forward, items)

    def encode_alone(self, item: Any) -> dict[str, Tensor]:
        """Pooled hidden states of one row as transformers itself returns them.

        ``encode`` has other ways, so a proof against these states shares none of their
        faults.
        """
        return self._encode(self._forward.reference, item)

    @torch.inference_mode()
    def _encode(
        self, run: Callable[[Any], dict[str, Tensor]], rows: Any
    ) -> dict[str, Tensor]:
        # The model runs all its layers; only the requested ones are returned.
        try:
            states = run(rows)
        except Unusable as reason:
            raise self._refusal(reason) from reason
        return {name: x_BLD[:, self._slice] for name, x_BLD in states.items()}

    def states_in_higher_precision(
        self, items: Sequence[Any], row: int
    ) -> tuple[ExactStates, ExactStates] | None:
        """A row's states in its batch and alone, in higher precision.

        That is float64 for a float32 encoder, and float32 for half precision.
        """
        exact = exact_or_none(self._forward)
        if exact is None:
            return None
        try:
            in_batch = exact.together(items)
            alone = exact.alone(items[row])
        # The caller can judge without these states, less sharply.
        except Exception as error:
            if not isinstance(error, Unusable) and not out_of_memory(error):
                raise
            return None
        return self._exact_row(in_batch, row), self._exact_row(alone, 0)

    def _exact_row(self, states: dict[str, Tensor], row: int) -> ExactStates:
        return {
            name: x_BLD[row, self._slice].cpu().numpy()
            for name, x_BLD in states.items()
        }


def _parse_layers(layers: str | None) -> tuple[int, int] | None:
    """The first and last layer of ``--layers``, such as "20-40" or "7"."""
    numbers = [int(number) for number in (layers or "").split("-") if number]
    if not numbers:
        return None
    return numbers[0], numbers[-1]


def _source_digest(cls: type) -> str:
    """Digest of the file that defines a class; empty if there is none."""
    try:
        return hash_file(Path(inspect.getfile(cls)))
    except (OSError, TypeError):
        return ""


def _read_config(located: Located) -> Any:
    """Read the configuration of a folder or of a GGUF file."""
    # Nothing is fetched, and code in a model's folder is never run.
    options = {"local_files_only": True, "trust_remote_code": False}
    if not located.is_gguf:
        return transformers.AutoConfig.from_pretrained(located.path, **options)
    with alone(located.path) as (folder, gguf_options):
        return transformers.AutoConfig.from_pretrained(folder, **options | gguf_options)


def choose_dtype(dtype: str, device: torch.device) -> str:
    """Resolve ``auto`` for a device.

    It means bfloat16 on a device that has it, else float16 on a GPU and float32
    elsewhere.
    """
    check_arithmetic(dtype, device)
    if dtype != "auto":
        return dtype
    if has_bfloat16(device):
        return "bfloat16"
    return "float16" if device.type == "cuda" else "float32"
