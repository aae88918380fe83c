"""Encoders of the transformers library: finding, hashing, loading, probing and running.

Text, audio and image encoders extend ``ModelEncoder``. They add what their rows need,
such as a tokenizer.

Shape suffixes: B rows of a batch, L layers, D hidden size.
"""

import copy
import inspect
import logging
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
import transformers
from torch import Tensor, nn

from gaam_cache.common.devices import (
    check_arithmetic,
    cpu_name,
    free_cached_memory,
    has_bfloat16,
    memory_message,
    name_of,
    out_of_memory,
    resolve_device,
)
from gaam_cache.common.errors import ConfigError, GaamWarning, ShortOfMemoryError
from gaam_cache.common.messages import visible
from gaam_cache.common.version import __version__
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._adapters import check_peft_is_installed
from gaam_cache.encoders._compiled import reason_not_to_compile
from gaam_cache.encoders._forward import Forward, Unusable
from gaam_cache.encoders._gguf import gguf_in_own_folder
from gaam_cache.encoders._kept import read_probe_result, write_probe_result
from gaam_cache.encoders._located import LocatedEncoder, library_errors_as, locate
from gaam_cache.encoders._notices import other_weights
from gaam_cache.encoders._precision import higher_precision_or_none
from gaam_cache.encoders._probe import ProbeResult, ProbeRows, probe
from gaam_cache.encoders._weights import (
    copy_mapped_weights,
    draw_untrained,
    encoder_part,
    entry_device,
    load_trained,
    skeleton,
)
from gaam_cache.encoders.base import Encoder, PreciseStates, RowStates
from gaam_cache.encoders.poolings.base import load_poolings
from gaam_cache.store.files import hash_file
from gaam_cache.store.plan import CONVENTIONS

logger = logging.getLogger(__name__)


class ModelEncoder(Encoder):
    """Pools every layer of a transformers model while the forward pass produces it.

    The states of a row must not depend on the other rows of its batch. After the
    weights are loaded, a probe measures how the model must be run for that; the model's
    name decides nothing.
    """

    input_names: ClassVar[frozenset[str]]
    """Arguments through which models take rows of this kind: ``input_ids`` for texts.

    A model must have at least one of them.
    """
    expected_encoder: ClassVar[str]
    """What ``--encoder`` must name, for messages: 'a text encoder and tokenizer'."""
    example_encoder: ClassVar[str]
    """Id of an encoder for rows of this kind, for messages."""
    position_noun: ClassVar[str]
    """People's word for one position of a row, for messages: 'token'."""
    _forward: Forward
    _part: nn.Module

    def __init__(
        self,
        located: LocatedEncoder,
        config: ExtractConfig,
        model_config: transformers.PretrainedConfig,
    ) -> None:
        """Set up what needs no file. Callers use ``open``, which also reads files.

        Args:
            located: the encoder's files.
            config: the settings of the extraction.
            model_config: transformers' configuration of the model.
        """
        self._located = located
        self._config = config
        self._model_config = model_config
        self.name = config.encoder
        self.revision = located.revision
        self.device = resolve_device(config.device)
        self.dtype = choose_dtype(config.dtype, self.device)
        # Both stay None without an adapter, and with trained weights.
        if located.adapter is not None:
            self.adapter_of = located.adapter.base
        if config.untrained_encoder:
            self.untrained_seed = config.encoder_seed or 0

        # Layer 0, the input of the first layer, is pooled if the user asks for it by
        # either of two options.
        self._requested_layers = _parse_layers(config.layers)
        pools_layer_zero = config.layer_zero
        if self._requested_layers is not None and self._requested_layers.first == 0:
            pools_layer_zero = True
        self._first_layer: Literal[0, 1] = 0 if pools_layer_zero else 1

        self._has_weights = False  # whether ``load`` has loaded or drawn the weights
        self._probed_length = 0  # length of the longest row of the last probe
        self._identity: dict[str, Any] | None = None

    @classmethod
    def open_outline(cls, config: ExtractConfig) -> Self:
        """Open an encoder without its weights, which the hub need not send."""
        return cls.open(config, needs_weights=False)

    @classmethod
    def open(cls, config: ExtractConfig, *, needs_weights: bool = True) -> Self:
        """Find the encoder's files and read all of them but the weights.

        Args:
            config: the settings of the extraction.
            needs_weights: whether ``load`` will follow. If not, the files of the
                weights may be missing.
        """
        # The poolings are not needed yet. They are loaded so that a wrong --pool is
        # refused before anything is fetched.
        load_poolings(config.pool)
        library_logging: Any = transformers.logging
        library_logging.set_verbosity_error()
        library_logging.disable_progress_bar()

        # An untrained encoder draws its weights and reads no file of weights.
        needs_weight_files = needs_weights and not config.untrained_encoder
        located = locate(
            config.encoder, config.revision, needs_weights=needs_weight_files
        )
        logger.debug("encoder '%s' is read from %s", config.encoder, located.path)
        if located.adapter is not None:
            check_peft_is_installed(located.adapter)

        problem = f"cannot read the encoder '{config.encoder}'"
        expected = f"{cls.expected_encoder} that transformers knows by itself"
        with library_errors_as(problem, located.path, expected):
            model_config = _read_config(located)
            cls._check_model_accepts_inputs(config.encoder, model_config)
            encoder = cls(located, config, model_config)
            try:
                encoder._read_preprocessor()
            except Unusable as reason:
                raise encoder._unusable_error(reason) from reason
        return encoder

    @classmethod
    def _check_model_accepts_inputs(
        cls, name: str, model_config: transformers.PretrainedConfig
    ) -> None:
        """Refuse a model whose classes take none of the arguments ``input_names``.

        Args:
            name: the encoder's name, for the message.
            model_config: transformers' configuration of the model.
        """
        # transformers maps a configuration to one model class, to a tuple, or to none.
        mapped = transformers.MODEL_MAPPING.get(type(model_config), None)
        candidates = mapped if isinstance(mapped, tuple) else (mapped,)
        model_classes = [candidate for candidate in candidates if candidate is not None]
        if not model_classes:
            # Loading refuses such a model in transformers' own words.
            return

        argument_names: set[str] = set()
        for model_class in model_classes:
            argument_names.update(inspect.signature(model_class.forward).parameters)
        if not cls.input_names & argument_names:
            raise ConfigError(
                f"'{name}' does not read rows of this kind, but such as "
                f"--encoder {cls.example_encoder} does",
                expected=cls.expected_encoder,
                found=f"model_type: {visible(str(model_config.model_type))}",
                hint="choose another --encoder, or check the rows of --dataset",
            )

    @abstractmethod
    def _read_preprocessor(self) -> None:
        """Read the tokenizer, feature extractor or image processor.

        It sets ``max_length``, the maximum length of a row.
        """

    @abstractmethod
    def _settings(self) -> dict[str, Any]:
        """Settings of this kind of rows that decide the numbers, as JSON values.

        ``identity`` adds them to the hashes of files, the arithmetic and the pooling.
        """

    def _select_part(self, model: nn.Module) -> Any:
        """Select the part of a model that is run.

        It is the encoder of an encoder-decoder model; any other model runs as a whole.
        """
        return encoder_part(model)

    @abstractmethod
    def _make_forward(self, part: nn.Module, model: nn.Module) -> Forward:
        """Build the ``Forward``, which runs a part of the model and pools its layers.

        Args:
            part: the part of the model that is run.
            model: the whole model.
        """

    @abstractmethod
    def _make_probe_rows(self, part: nn.Module, probe_length: int) -> ProbeRows:
        """Make the rows on which the probe tries the model.

        Args:
            part: the part of the model that is run.
            probe_length: length of the longest row.
        """

    def _extra_file_names(self) -> set[str]:
        """Names of more files that the preprocessor reads, for their hashes.

        Usual names, such as tokenizer.json, need not be among them.
        """
        return set()

    def _unusable_error(self, reason: Unusable) -> ConfigError:
        """Build the error for a model that yields no usable states."""
        return ConfigError(
            f"'{self.name}' does not yield a state for every layer and "
            f"{self.position_noun}",
            expected=f"{self.expected_encoder} whose hidden states "
            "transformers returns",
            found=str(reason),
        )

    def identity(self) -> dict[str, Any]:
        """Hashes of all files that decide the numbers, and the settings that do."""
        # The files are large: they are hashed once.
        if self._identity is None:
            self._identity = self._compute_identity()
        return copy.deepcopy(self._identity)

    def _compute_identity(self) -> dict[str, Any]:
        """Hash the files, and collect the settings; see ``identity``."""
        identity: dict[str, Any] = {}
        if self.untrained_seed is not None:
            # Another version of these libraries may draw other random weights.
            identity["untrained"] = {
                "seed": self.untrained_seed,
                "torch": torch.__version__.partition("+")[0],
                "transformers": transformers.__version__,
            }
        identity["files"] = self._located.hashes(self._extra_file_names())
        identity["dtype"] = self.dtype
        identity["max_length"] = self.max_length
        identity["pooling"] = list(self._config.pool)
        identity["layers"] = self._layer_convention()
        identity.update(self._settings())
        return identity

    def _layer_convention(self) -> str:
        """Text for the fingerprint: the stored layers, as a slice of hidden states.

        The count is that of transformers, where 0 is the input of the first layer.
        Without ``--layers``, the slice is that of all layers, with or without layer 0.
        """
        if self._requested_layers is None:
            return CONVENTIONS[self._first_layer]
        first, last = self._requested_layers
        return f"transformers.hidden_states[{first}:{last + 1}]"

    def notices(self) -> list[str]:
        """Remarks on weights and adapters in the folder that gaam does not read."""
        return list(other_weights(self._located))

    def outline(self) -> None:
        """Set ``num_layers`` and ``hidden_size`` from the configuration.

        ``load`` would measure them, and needs the weights.
        """
        with library_errors_as(f"cannot build '{self.name}'", self._located.path):
            # a skeleton is the model without weights
            part = self._select_part(skeleton(self._model_config))
            config = getattr(part, "config", None) or self._model_config
            # The configuration of a model for texts and pictures holds one for its
            # texts, with these numbers. Any other configuration returns itself here.
            settings = config.get_text_config()
            num_pooled_layers = settings.num_hidden_layers
            # Layer 0 is the input of the first layer, and no layer of the model.
            if self._first_layer == 0:
                num_pooled_layers += 1
            self._select_layers(num_pooled_layers)
            self.hidden_size = settings.hidden_size

    def load(self) -> None:
        """Load or draw the weights, and probe the model for rows of any length."""
        self.load_for()

    def load_for(
        self,
        longest: int | None = None,
        *,
        encodes_alone: bool = False,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Load the weights, or draw random ones, and probe the model.

        Args:
            longest: length of the longest row to be encoded, in tokens or positions;
                None if it is not known.
            encodes_alone: whether the caller will encode every row alone. The probe
                measures what batches do to rows, and is left out then.
            tell: receives a message before the probe.
        """
        with self._explaining_failures():
            if not self._has_weights:
                self._load_weights()

            # Rows of unknown length may have the maximum length. But a caller that
            # encodes its rows alone takes them from a finished cache: they have been
            # encoded before, and their memory is not checked again.
            if longest is None and not encodes_alone:
                longest = self.max_length
            if longest is not None:
                self._check_memory(min(longest, self.max_length))

            if encodes_alone:
                self._measure_shape()
            else:
                # If the longest row has the length 0, all rows are empty, and the probe
                # still needs a length.
                self._measure_batching(
                    min(longest or self.max_length, self.max_length), tell
                )

    @contextmanager
    def _explaining_failures(self) -> Iterator[None]:
        """While open, turn ``Unusable`` and a lack of memory into errors for the user.

        ``Unusable`` is the reason why the model yields no states. Other errors stay as
        they are.
        """
        try:
            yield
        except Unusable as reason:
            raise self._unusable_error(reason) from reason
        except Exception as error:
            if isinstance(error, ShortOfMemoryError) or not out_of_memory(error):
                raise
            raise self._memory_error(error) from error

    def _memory_error(self, error: Exception) -> ShortOfMemoryError:
        """Build the error for a model that does not fit into memory.

        ``error`` is the library's own error.
        """
        # A skeleton has the shapes of all weights, and takes no memory.
        part = self._select_part(skeleton(self._model_config))
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
        """Load or draw the weights, and build the ``Forward`` that runs the model.

        This also sets ``device`` if several devices share the model.
        """
        model = self._load_model()
        # The part is the encoder of an encoder-decoder model, or the whole model.
        self._part = self._select_part(model.eval()).requires_grad_(False)
        if self._config.device_map is None:
            self._part.to(self.device)
        else:
            # accelerate has spread the layers: rows go to the device of the first one.
            # The type was chosen for another device, and may not suit this one.
            self.device = entry_device(self._part)
            check_arithmetic(self.dtype, self.device)

        # Drawn weights lie in memory already; loaded ones may be views of a file, which
        # somebody could change during the extraction.
        if self.untrained_seed is None:
            copy_mapped_weights(model)
        self._forward = self._make_forward(self._part, model)
        self._forward.first_layer = self._first_layer
        self._has_weights = True

    def _load_model(self) -> Any:
        """Build the whole model, with random weights or with those of its files.

        Raises:
            ConfigError: the library cannot build the model, or its files do not have
                the weights of the part that is run.
        """
        if self.untrained_seed is not None:
            with library_errors_as(f"cannot build '{self.name}'", self._located.path):
                return draw_untrained(
                    self._model_config, self.untrained_seed, self.dtype
                )
        return load_trained(
            self._located,
            self._model_config,
            name=self.name,
            dtype=self.dtype,
            device_map=self._config.device_map,
            select_part=self._select_part,
        )

    def _check_memory(self, longest: int) -> None:
        """Refuse rows up to the length ``longest`` if they need too much memory.

        On a CPU the system would kill the process without a message. This method
        refuses nothing: a subclass whose rows may be very long replaces it.
        """

    def _measure_shape(self) -> None:
        """Measure the number of layers and the hidden size with one short row.

        This sets ``num_layers`` and ``hidden_size``. It also sets ``batching`` to
        "alone": no probe has shown that rows may share a batch.
        """
        # An earlier probe has measured this and more.
        if self._probed_length:
            return
        states = self._read_shortest_row()
        # All poolings have states of one shape, (1, L, D).
        _, num_layers, self.hidden_size = next(iter(states.values())).shape
        self.batching = "alone"
        self._select_layers(num_layers)

    @torch.inference_mode()
    def _read_shortest_row(self) -> dict[str, Tensor]:
        """States of the shortest row of the probe: (1, L, D) for every pooling.

        The probe, which measures the loaded model, has several sets of rows, each
        sorted by length. The row is the first one of the first set that the model can
        read.
        """
        # Only the shortest row is read: the length of the longest does not matter.
        probe_rows = self._make_probe_rows(self._part, probe_length=1)
        *earlier_sets, last_set = probe_rows.sets
        for rows in earlier_sets:
            with suppress(Unusable):
                return self._forward.reference_states(rows[0])
        # If the model fails on this set too, the user gets its error.
        return self._forward.reference_states(last_set[0])

    def _measure_batching(
        self, longest: int, show_message: Callable[[str], None]
    ) -> None:
        """Probe the model with rows up to a length, or read an earlier result.

        The result sets how the model is run, and ``batching``, ``acts_causal``,
        ``num_layers`` and ``hidden_size``.

        Args:
            longest: length of the longest row of the extraction.
            show_message: receives a message before the probe.
        """
        probe_length = self._choose_probe_length(longest)
        # The last probe covers these rows too.
        if probe_length <= self._probed_length:
            return

        conditions = self._probe_conditions(probe_length)
        result = read_probe_result(conditions)
        if result is None or not result.fits(self._forward):
            show_message("measuring which rows share batches")
            result = self._probe(probe_length)
            # If only shorter rows may share a batch, memory was too small. The next
            # start may have more of it: it measures anew.
            has_no_limit = result.longest_batch is None
            if has_no_limit or result.longest_batch == probe_length:
                write_probe_result(conditions, result)

        logger.debug(
            "probe of rows of up to %d tokens or frames: %s, longest batch %s",
            probe_length,
            result.batching,
            result.longest_batch,
        )
        result.apply(self._forward)
        self._probed_length = probe_length
        self.batching = result.batching
        self.acts_causal = result.acts_causal
        self.hidden_size = result.hidden_size
        self._select_layers(result.num_layers)

    @torch.inference_mode()
    def _probe(self, probe_length: int) -> ProbeResult:
        """Measure whether rows may share a batch, and how the model must run.

        If memory is too small, the probe halves the length of its rows. Only a model
        that ``reads_long_rows_alone`` allows this: it reads every row that is longer
        than those of the probe in a batch of its own. For other models, a lack of
        memory is an error.

        Args:
            probe_length: length of the longest row of the probe.
        """
        while True:
            probe_rows = self._make_probe_rows(self._part, probe_length)
            try:
                return probe(
                    self._forward,
                    probe_rows,
                    dtype=self.dtype,
                    longest_shared=self._longest_shared_length(probe_length),
                )
            except Exception as error:
                is_shortest = probe_length <= probe_rows.short_length
                if is_shortest or not self._forward.reads_long_rows_alone:
                    raise
                if not out_of_memory(error):
                    raise

            # Memory was too small. This stands behind the handler, since inside it the
            # exception would keep the tensors of the failed probe in memory.
            free_cached_memory(self.device)
            probe_length = max(probe_rows.short_length, probe_length // 2)

    def _choose_probe_length(self, longest: int) -> int:  # noqa: ARG002
        """Choose the length of the longest row on which the probe tries the model.

        Here it is the maximum length, so that one probe serves all rows. A subclass may
        choose a shorter one, at least ``longest``, which is the length of the longest
        row of the extraction.
        """
        return self.max_length

    def _longest_shared_length(self, probe_length: int) -> int | None:  # noqa: ARG002
        """Length up to which a row may share a batch; None if every row may.

        A subclass overrides this method if some rows fill a batch by themselves. The
        probe then tries no batches of such rows.

        Args:
            probe_length: length of the longest row that the probe tries.
        """
        return None

    def _probe_conditions(self, probe_length: int) -> dict[str, object]:
        """Everything that decides the result of a probe, as JSON values.

        The probe measures which rows may share a batch. Its result is kept on disk, and
        is used again only under equal conditions.

        Args:
            probe_length: most tokens of a row of the probe.
        """
        on_cpu = self.device.type == "cpu"
        device_name = cpu_name() if on_cpu else name_of(self.device)
        # The attention kernel that transformers chose is in the part's configuration.
        part_config = getattr(self._part, "config", self._model_config)
        # Changed code of these classes is measured anew, even in one version of gaam.
        classes = (type(self._part), Forward, ProbeResult, type(self))
        return {
            "encoder": self.identity(),
            "kind": self.noun,
            "longest": probe_length,
            "longest_shared": self._longest_shared_length(probe_length),
            "device": [self.device.type, device_name],
            "device_map": self._config.device_map,
            "attention": getattr(part_config, "_attn_implementation", None),
            "gaam": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "source": [_source_digest(cls) for cls in classes],
        }

    def _select_layers(self, num_pooled_layers: int) -> None:
        """Set which of the pooled layers are stored, and ``num_layers``, their number.

        The user may request a few layers; those that the model lacks are refused.

        Args:
            num_pooled_layers: number of the layers whose states are pooled, with layer
                0, the input of the first layer, if it is pooled.
        """
        # Layers count as transformers' hidden states do: 0 is the first layer's input.
        first_layer = self._first_layer
        last_layer = first_layer + num_pooled_layers - 1
        stored = self._requested_layers or _LayerRange(first_layer, last_layer)
        if stored.last > last_layer:
            raise ConfigError(
                f"--layers {self._config.layers}: '{self.name}' has no layer "
                f"{stored.last}",
                expected=f"layers from 0 to {last_layer}",
            )
        # indices of the stored layers among the pooled ones
        self._stored_layers = slice(
            stored.first - first_layer, stored.last + 1 - first_layer
        )
        self.num_layers = stored.last + 1 - stored.first

    def compile_layers(self) -> None:
        """Compile the layers that read batches, if the setting ``compile`` is on.

        Warns:
            GaamWarning: they cannot be compiled.
        """
        if self._config.compile == "off":
            return
        forward = self._forward
        reason: str | None = "its layers cannot be run one by one"
        if forward.stack_name is not None and not forward.uses_fresh_copies:
            reason = reason_not_to_compile(forward.loaded_model, self.device)
        if reason is None:
            forward.compile_layers()
        else:
            text = f"compile=on has no effect on '{self.name}': {reason}"
            warnings.warn(text, GaamWarning, stacklevel=2)

    def encode(self, items: Sequence[Any]) -> dict[str, Tensor]:
        """Pooled states of a batch: (B, L, D) float32 for every pooling."""
        return self._encode(self._forward, items)

    def encode_alone(self, item: Any) -> dict[str, Tensor]:
        """Pooled hidden states of one row as transformers itself returns them.

        The proof of a shard, a sample of rows that are encoded twice, compares the
        states of ``encode`` with these. ``encode`` pools by hooks and in batches: none
        of its faults could be in these states.
        """
        return self._encode(self._forward.reference_states, item)

    @torch.inference_mode()
    def _encode(
        self, run: Callable[[Any], dict[str, Tensor]], rows: Any
    ) -> dict[str, Tensor]:
        """Compute states, and keep the layers that the user requested.

        Args:
            run: computes the states of all layers, (B, L, D) for every pooling.
            rows: what ``run`` takes: several rows, or one.
        """
        try:
            states = run(rows)
        except Unusable as reason:
            raise self._unusable_error(reason) from reason
        return {name: x_BLD[:, self._stored_layers] for name, x_BLD in states.items()}

    def states_in_higher_precision(
        self, items: Sequence[Any], row: int
    ) -> PreciseStates | None:
        """States of one row, computed in its batch and alone, in higher precision.

        Higher precision is float64 for a float32 encoder, and float32 for half
        precision.

        Args:
            items: the rows of the batch.
            row: index of the row in the batch.

        Returns:
            None if this machine cannot compute them: the caller then judges without
            them, less sharply.
        """
        precise_model = higher_precision_or_none(self._forward)
        if precise_model is None:
            return None
        try:
            batch_states = precise_model.states_in_batch(items)
            states_alone = precise_model.states_alone(items[row])
        except Exception as error:
            if isinstance(error, Unusable) or out_of_memory(error):
                return None
            raise
        return PreciseStates(
            in_batch=self._row_states(batch_states, row),
            alone=self._row_states(states_alone, 0),
        )

    def _row_states(self, states: dict[str, Tensor], row: int) -> RowStates:
        """The requested layers of one row, (L, D) for every pooling, as NumPy arrays.

        Args:
            states: pooled states of a batch, (B, L, D) for every pooling.
            row: index of the row in the batch.
        """
        return {
            name: x_BLD[row, self._stored_layers].cpu().numpy()
            for name, x_BLD in states.items()
        }


class _LayerRange(NamedTuple):
    """A range of layers, counted as transformers' hidden states: 0 is the input."""

    first: int
    last: int  # the last layer of the range itself


def _parse_layers(layers: str | None) -> _LayerRange | None:
    """The range of layers in ``--layers``, such as "20-40" or "7".

    None if the option is not set.
    """
    layer_numbers = [int(number) for number in (layers or "").split("-") if number]
    if not layer_numbers:
        return None
    # A single number is the first layer and the last one.
    return _LayerRange(layer_numbers[0], layer_numbers[-1])


def _source_digest(cls: type) -> str:
    """SHA-256 of the file that defines a class; an empty text if there is no file.

    A class that was typed into an interpreter has none.
    """
    try:
        return hash_file(Path(inspect.getfile(cls)))
    except (OSError, TypeError):
        return ""


def _read_config(located: LocatedEncoder) -> Any:
    """Read the model's configuration from a folder or a GGUF file, by transformers."""
    # Nothing is fetched, and code in a model's folder is never run.
    options = {"local_files_only": True, "trust_remote_code": False}
    if not located.is_gguf:
        return transformers.AutoConfig.from_pretrained(located.path, **options)
    with gguf_in_own_folder(located.path) as (folder, gguf_options):
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
