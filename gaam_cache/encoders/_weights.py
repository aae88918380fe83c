"""Builds the model of an encoder, with trained weights, random weights or none."""

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from gaam_cache.common.errors import CacheError, ConfigError
from gaam_cache.common.messages import join_first, visible
from gaam_cache.encoders._adapters import apply_adapter
from gaam_cache.encoders._gguf import load_gguf
from gaam_cache.encoders._located import LocatedEncoder, library_errors_as
from gaam_cache.encoders._unused import (
    SAVE_ANEW,
    advise_on_unused_tensors,
    find_suspicious_tensors,
)

SelectPart = Callable[[Any], Any]
"""A function that takes a model and returns the part of it that is run."""
UNUSED_WEIGHTS = re.compile(r"pooler|\bmasked_spec_embed$")
"""Names of weights that change no state.

They lie behind the last layer, or are used only in training.
"""
INTEGER_TYPE = re.compile(r"[IU]\d+")
"""Names of integer types, as safetensors writes them."""


class StoredTensor(NamedTuple):
    """The shape and type of a tensor in a file."""

    shape: tuple[int, ...]
    dtype: str  # as safetensors writes it: F32, BF16, I8, ...


class _LoadedModel(NamedTuple):
    """A model with the weights of its files."""

    model: Any
    report: dict[str, Any]  # transformers' report, with keys such as "missing_keys"
    stored: dict[str, StoredTensor]  # the tensors in the files, by name


def load_trained(
    located: LocatedEncoder,
    model_config: transformers.PretrainedConfig,
    *,
    name: str,
    dtype: str,
    device_map: str | None,
    select_part: SelectPart,
) -> Any:
    """Load the model with the weights of an encoder's files, and of no other files.

    Args:
        located: the encoder's files.
        model_config: transformers' configuration of the model.
        name: the encoder's name, for messages.
        dtype: the arithmetic, such as "bfloat16".
        device_map: how accelerate spreads the layers over devices, such as "auto"; None
            to load the model without it.
        select_part: returns the part of the model that is run.

    Raises:
        ConfigError: a file is damaged, a parameter lacks its tensor, or the files hold
            unused tensors that may change the states.
    """
    options: dict[str, object] = {"dtype": getattr(torch, dtype)}
    if device_map is not None:
        options["device_map"] = device_map

    with library_errors_as(f"cannot load the weights of '{name}'", located.path):
        # a skeleton, which is a model without weights, shows the class
        model_class = type(skeleton(model_config))
        if located.is_gguf:
            model, loading_report = load_gguf(
                located.path, model_class, model_config, options
            )
            stored: dict[str, StoredTensor] = {}
        else:
            model, loading_report, stored = _load_safetensors(
                located, model_class, model_config, options
            )

    _check_parameters(model, loading_report, name, located, select_part)
    _check_quantised(model, stored, name, located)
    _check_unused(model, loading_report, stored, name, located)
    if located.adapter is not None:
        apply_adapter(model, located.adapter, name)
    return model


def _load_safetensors(
    located: LocatedEncoder,
    model_class: Any,
    model_config: transformers.PretrainedConfig,
    options: dict[str, Any],
) -> _LoadedModel:
    """Load the model from safetensors files.

    Args:
        located: the encoder's files.
        model_class: the model's class in transformers.
        model_config: the model's configuration.
        options: more arguments for the class's ``from_pretrained``.
    """
    # By itself, transformers would read any file in the folder. So it gets no folder,
    # but the tensors of the right files. A slice is read when transformers needs it:
    # until then, the files must stay open.
    with ExitStack() as open_files:
        slices: dict[str, Any] = {}
        for file in located.weight_files():
            weights = open_files.enter_context(_open_safetensors(file))
            names = set(weights.keys())
            _refuse_duplicates(names & slices.keys(), located)
            slices |= {name: weights.get_slice(name) for name in names}

        # A file may hold the same weights twice, with the prefix of their model and
        # without.
        prefix = f"{model_class.base_model_prefix}."
        with_and_without = {name for name in slices if f"{prefix}{name}" in slices}
        _refuse_duplicates(with_and_without, located)

        stored = {
            name: StoredTensor(tuple(tensor.get_shape()), tensor.get_dtype())
            for name, tensor in slices.items()
        }
        # ``_check_parameters`` refuses tensors of another size, with a better message.
        model, loading_report = model_class.from_pretrained(
            None,
            config=model_config,
            state_dict=slices,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **options,
        )
    return _LoadedModel(model, loading_report, stored)


def _refuse_duplicates(names: set[str], located: LocatedEncoder) -> None:
    """Refuse two tensors for one parameter, of which transformers takes the last.

    ``names`` are the names of such tensors; without any, nothing happens.
    """
    if names:
        raise ConfigError(
            f"the files of '{located.path}' hold the same weights twice",
            expected="one tensor for a parameter, in one file and with one prefix",
            found=_first_and_count(sorted(names)),
            hint="remove the files, or the copy of the weights, "
            "that are not of this model",
        )


def _open_safetensors(file: Path) -> Any:
    """Open a file of weights, to be closed by the caller; refuse a damaged file."""
    try:
        return safe_open(file, framework="pt")
    except SafetensorError as error:
        # safetensors finds a cut file by its header, which gives the size of the file.
        problem = "is cut off, or is no safetensors file"
        if "incomplete" in str(error).lower():
            problem = "is cut off"
        raise CacheError(
            f"the weight file '{file.name}' {problem}",
            expected="a whole safetensors file",
            found=f"{file.stat().st_size:,} bytes; {error}",
            where=str(file.absolute()),
            hint="download or copy it again",
        ) from error


def _check_parameters(
    model: Any,
    loading_report: dict[str, Any],
    name: str,
    located: LocatedEncoder,
    select_part: SelectPart,
) -> None:
    """Refuse a model if the files lack a parameter of the part that is run.

    A parameter that is stored in another shape is refused too. The message names the
    first such parameter, and a tensor that may have been meant for it.

    Args:
        model: the whole model, as transformers has loaded it.
        loading_report: transformers' report on the loading (``output_loading_info``).
        name: of the encoder, for messages.
        located: the files of the encoder.
        select_part: returns the part of the model that is run, such as its encoder.
    """
    # Name of a parameter -> what is wrong with its tensor.
    problems = {
        key: f"{stored_shape} and not {shape}"
        for key, stored_shape, shape in loading_report["mismatched_keys"]
    }
    missing_keys = loading_report["missing_keys"] - _names_of_computed_tensors(model)
    problems |= dict.fromkeys(missing_keys, "missing")
    bad_keys = sorted(_names_in_part(model, select_part) & problems.keys())
    if not bad_keys:
        return

    unused = sorted(loading_report["unexpected_keys"])
    summary = join_first([f"{key}: {problems[key]}" for key in bad_keys], 1)
    if unused:
        summary += f"; the files hold {_first_and_count(unused)}"
    raise ConfigError(
        f"the weights of '{name}' are not those of its configuration",
        expected="a tensor for every parameter of the architecture, of its size",
        found=summary,
        where=str(located.path),
        hint=_advice_for_wrapped_weights(unused, bad_keys[0])
        or advise_on_unused_tensors(model, unused),
    )


def _names_in_part(model: nn.Module, select_part: SelectPart) -> set[str]:
    """Names of the tensors that decide the states: those in the part that is run.

    They are the names that the tensors have in the whole model.
    """
    # Tied parameters share one tensor under several names: compare tensors, not names.
    part = select_part(model)
    part_ids = {id(tensor) for tensor in (*part.parameters(), *part.buffers())}
    named_tensors = (*model.named_parameters(), *model.named_buffers())
    names = {name for name, tensor in named_tensors if id(tensor) in part_ids}
    return {name for name in names if not UNUSED_WEIGHTS.search(name)}


def _names_of_computed_tensors(model: nn.Module) -> set[str]:
    """Names of parameters that the model computes: sinusoidal position embeddings.

    The files of the weights need no tensors for them.
    """
    computed = set()
    for path, module in model.named_modules():
        if "Sinusoidal" in type(module).__name__:
            for name, _ in module.named_parameters(recurse=False):
                computed.add(f"{path}.{name}")
    return computed


def _advice_for_wrapped_weights(unused: Sequence[str], missing_key: str) -> str | None:
    """Advise to save the model itself, if its weights were saved inside a wrapper.

    A wrapper, such as that of a training library, puts its prefix before the names of
    the tensors. The file then holds "module.embeddings", and the model looks for
    "embeddings".

    Args:
        unused: names of tensors in the files that the model does not take.
        missing_key: name of a parameter that has no tensor in the files.

    Returns:
        None if no unused name ends with a dot and the missing name.
    """
    for key in unused:
        if key.endswith(f".{missing_key}"):
            prefix = visible(key.removesuffix(missing_key))
            return (
                f"names begin with '{prefix}': save the model itself, "
                "not what it was wrapped in"
            )
    return None


def _check_quantised(
    model: Any, stored: Mapping[str, StoredTensor], name: str, located: LocatedEncoder
) -> None:
    """Refuse integers in the place of weights if no configuration explains them.

    Args:
        model: the loaded model.
        stored: the tensors in the files, by name; empty for a GGUF file.
        name: the encoder's name, for the message.
        located: the encoder's files.
    """
    # If the model has a quantizer, transformers knows what the integers stand for.
    if getattr(model, "hf_quantizer", None) is not None:
        return
    prefix = f"{model.base_model_prefix}."
    weight_names = {
        key for key, tensor in model.named_parameters() if tensor.is_floating_point()
    }
    quantised = []
    for key, tensor in sorted(stored.items()):
        # Files may hold the names with the prefix of the model, or without it.
        is_weight = key in weight_names or key.removeprefix(prefix) in weight_names
        if is_weight and INTEGER_TYPE.fullmatch(tensor.dtype):
            quantised.append(key)
    if quantised:
        raise ConfigError(
            f"the weights of '{name}' are quantised, "
            "and its configuration does not say how",
            expected="weights of floating point, "
            "or a 'quantization_config' in config.json",
            found=f"{_first_and_count(quantised)} of type {stored[quantised[0]].dtype}",
            where=str(located.path),
        )


def _check_unused(
    model: Any,
    loading_report: dict[str, Any],
    stored: dict[str, StoredTensor],
    name: str,
    located: LocatedEncoder,
) -> None:
    """Refuse files with unused tensors that may change the states.

    Args:
        model: the whole model, as transformers has loaded it.
        loading_report: transformers' report on the loading (``output_loading_info``).
        stored: the tensors in the files, by name.
        name: of the encoder, for messages.
        located: the files of the encoder.
    """
    shapes = {key: tensor.shape for key, tensor in stored.items()}
    suspicious = find_suspicious_tensors(
        model, loading_report["unexpected_keys"], shapes
    )
    if suspicious:
        raise ConfigError(
            f"the files of '{name}' hold weights that its model does not take",
            expected="weights of the model, and of heads, which play no part "
            "in its states",
            found=_first_and_count(suspicious),
            where=str(located.path),
            hint=advise_on_unused_tensors(model, suspicious) or SAVE_ANEW,
        )


def _first_and_count(names: Sequence[str]) -> str:
    """Write the first of some names, and how many more there are."""
    return visible(join_first(names, 1))


def copy_mapped_weights(model: nn.Module) -> None:
    """Replace all weights on the CPU by copies in memory, in place.

    Loaded weights may be views of a file, and somebody may change the file. Call this
    after the model has moved to its GPU. The weights there are copies already, and a
    13B model has 26 GB of them.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type == "cpu":
            tensor.data = tensor.data.clone()
    # Several hooks share one dictionary of weights: copy every dictionary only once.
    weights_by_id = {id(weights): weights for weights in offloaded_weights(model)}
    for weights in weights_by_id.values():
        for name, tensor in weights.items():
            weights[name] = tensor.clone()


def offloaded_weights(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Yield weights that accelerate keeps on the CPU until a layer runs on a GPU.

    Each is a dictionary of tensors by name; the same dictionary may come several times.
    A model without weights of this kind yields nothing.
    """
    for module in model.modules():
        for hook in _hooks(module):
            weights = getattr(hook, "weights_map", None)
            # Two wrappers may lie around the dictionary. One puts a prefix before the
            # names, the other one can read weights from a disk.
            weights = getattr(weights, "dataset", weights)
            weights = getattr(weights, "state_dict", weights)
            if isinstance(weights, dict):
                yield weights


def entry_device(model: nn.Module) -> torch.device:
    """The device on which the first layer of a model computes.

    accelerate has spread the layers over several devices. The first module that has
    weights decides; a model without weights computes on the CPU.
    """
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            # Weights may wait on the CPU until accelerate moves them to a GPU: then
            # the hook knows the GPU.
            for hook in _hooks(module):
                device = getattr(hook, "execution_device", None)
                if device is not None:
                    return torch.device(device)
            return parameter.device
    return torch.device("cpu")


def _hooks(module: nn.Module) -> Sequence[object]:
    """The hooks with which accelerate runs a module.

    Without accelerate, the only entry is None, which has no attribute of a hook.
    """
    hook = getattr(module, "_hf_hook", None)
    # A hook may hold several others.
    hooks: Sequence[object] = getattr(hook, "hooks", (hook,))
    return hooks


def _build(model_config: transformers.PretrainedConfig) -> Any:
    """Build the model of a configuration in float32, as ``AutoModel`` does.

    There are two exceptions. ``AutoModel`` lacks some classes, such as
    ``SiglipTextModel``: for these, the configuration names the class. And if the
    configuration names an encoder such as ``T5EncoderModel``, that encoder is built.
    """
    config_class = type(model_config)
    saved_names = model_config.architectures or ()
    if transformers.MODEL_MAPPING.get(config_class, None) is None:
        for name in saved_names:
            saved_class: Any = getattr(transformers, name, None)
            if getattr(saved_class, "config_class", None) is config_class:
                return saved_class._from_config(model_config, dtype=torch.float32)

    auto_class: Any = transformers.AutoModel
    encoders: Any = transformers.MODEL_FOR_TEXT_ENCODING_MAPPING
    encoder_class = encoders.get(config_class, None)
    if encoder_class is not None and encoder_class.__name__ in saved_names:
        auto_class = transformers.AutoModelForTextEncoding
    return auto_class.from_config(
        model_config, trust_remote_code=False, dtype=torch.float32
    )


def skeleton(model_config: transformers.PretrainedConfig) -> Any:
    """Build the model in float32, without memory for its weights.

    Its tensors have shapes and no numbers.
    """
    # Building a model changes the configuration, and the caller needs the original.
    with torch.device("meta"):
        return _build(copy.deepcopy(model_config))


def encoder_part(model: Any) -> Any:
    """The encoder of an encoder-decoder model; any other model as a whole."""
    if getattr(model.config, "is_encoder_decoder", False):
        return model.get_encoder()
    return model


def draw_untrained(
    model_config: transformers.PretrainedConfig, seed: int, dtype: str
) -> Any:
    """Build a model with random weights, which shows what pre-training contributes.

    The same seed gives the same bits, because the CPU draws the weights in float32,
    before they are rounded to ``dtype``.
    """
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would set the generators of GPUs too.
        torch.default_generator.manual_seed(seed)
        model = _build(model_config)
    return model.to(getattr(torch, dtype))
