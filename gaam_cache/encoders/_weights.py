"""The model of an encoder's files, with its weights or without."""

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
from gaam_cache.common.messages import visible
from gaam_cache.encoders._adapters import apply_adapter
from gaam_cache.encoders._gguf import load_gguf
from gaam_cache.encoders._located import Located, foreign
from gaam_cache.encoders._unused import SAVE_ANEW, remedy, unexplained

PartOf = Callable[[Any], Any]  # of a model the part that is run
IDLE = re.compile(r"pooler|\bmasked_spec_embed$")
"""Weights that play no part: those on top of the last layer, and those for training alone."""
WHOLE = re.compile(r"[IU]\d+")
"""Types of whole numbers, as safetensors writes them."""


class Stored(NamedTuple):
    """A tensor as a file has it."""

    shape: tuple[int, ...]
    dtype: str  # as safetensors writes it: F32, BF16, I8, ...


def load_trained(
    located: Located,
    model_config: transformers.PretrainedConfig,
    name: str,
    dtype: str,
    device_map: str | None,
    part_of: PartOf,
) -> Any:
    """The model with the weights of an encoder's files, which are opened here: no others are.

    Raises:
        ConfigError: a file is damaged, a parameter lacks its tensor, or the files hold tensors that
            the model does not take and that are not known to play no part.
    """
    options: dict[str, Any] = {"dtype": getattr(torch, dtype)}
    if device_map is not None:
        options["device_map"] = device_map
    with foreign(f"cannot load the weights of '{name}'", located.path):
        if located.is_gguf:
            stored: dict[str, Stored] = {}
            model_class = type(skeleton(model_config))
            model, info = load_gguf(located.path, model_class, model_config, options)
        else:
            model, info, stored = _load_safetensors(located, model_config, options)
    _check_missing(model, info, name, located, part_of)
    _check_quantised(model, stored, name, located)
    shapes = {key: tensor.shape for key, tensor in stored.items()}
    unused = unexplained(model, info["unexpected_keys"], shapes)
    if unused:
        raise ConfigError(
            f"the files of '{name}' hold weights that its model does not take",
            expected="weights of the model, and of heads, which play no part in its states",
            found=_listed(unused),
            where=str(located.path),
            hint=remedy(model, unused) or SAVE_ANEW,
        )
    if located.adapter is not None:
        apply_adapter(model, located.adapter, name)
    return model


def _load_safetensors(
    located: Located,
    model_config: transformers.PretrainedConfig,
    options: dict[str, Any],
) -> tuple[Any, dict[str, Any], dict[str, Stored]]:
    """The model, what transformers says of loading it, and what the files hold."""
    model_class = type(skeleton(model_config))
    with ExitStack() as opened:
        state: dict[str, Any] = {}
        for file in located.weight_files():
            weights = opened.enter_context(_open_safetensors(file))
            names = set(weights.keys())
            _refuse_doubles(names & state.keys(), located)
            state |= {key: weights.get_slice(key) for key in names}
        prefix = f"{model_class.base_model_prefix}."
        _refuse_doubles({key for key in state if f"{prefix}{key}" in state}, located)
        stored = {
            key: Stored(tuple(tensor.get_shape()), tensor.get_dtype())
            for key, tensor in state.items()
        }
        model, info = model_class.from_pretrained(
            None,
            config=model_config,
            state_dict=state,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # said later, by name and size
            **options,
        )
    return model, info, stored


def _refuse_doubles(names: set[str], located: Located) -> None:
    """Refuse two tensors for a parameter: transformers takes the one that it reads last."""
    if names:
        raise ConfigError(
            f"the files of '{located.path}' hold the same weights twice",
            expected="one tensor for a parameter, in one file and with one prefix",
            found=_listed(sorted(names)),
            hint="remove the files, or the copy of the weights, that are not of this model",
        )


def _open_safetensors(file: Path) -> Any:
    try:
        return safe_open(file, framework="pt")
    except SafetensorError as error:
        # the header, at the beginning of a file, says where its tensors end
        incomplete = "incomplete" in str(error).lower()
        problem = (
            "is cut off" if incomplete else "is cut off, or is no safetensors file"
        )
        raise CacheError(
            f"the weight file '{file.name}' {problem}",
            expected="a whole safetensors file",
            found=f"{file.stat().st_size:,} bytes; {error}",
            where=str(file.absolute()),
            hint="download or copy it again",
        ) from error


def _check_missing(
    model: Any, info: dict[str, Any], name: str, located: Located, part_of: PartOf
) -> None:
    """Refuse a model of which a parameter that is run has no tensor of its size."""
    part = part_of(model)
    tensors = {id(tensor) for tensor in (*part.parameters(), *part.buffers())}
    named = (*model.named_parameters(), *model.named_buffers())
    used = {
        name
        for name, tensor in named
        if id(tensor) in tensors and not IDLE.search(name)
    }
    wrong = {
        key: f"{there} and not {wanted}"
        for key, there, wanted in info["mismatched_keys"]
    }
    wrong |= dict.fromkeys(info["missing_keys"] - _computed(model), "missing")
    bad = sorted(used & wrong.keys())
    if not bad:
        return
    found = f"{bad[0]}: {wrong[bad[0]]}"
    if len(bad) > 1:
        found += f", and {len(bad) - 1} more"
    unused = sorted(info["unexpected_keys"])
    if unused:
        found += f"; the files hold {_listed(unused)}"
    wrapped = next((key for key in unused if key.endswith(f".{bad[0]}")), None)
    hint = remedy(model, unused)
    if wrapped is not None:
        before = visible(wrapped.removesuffix(bad[0]))
        hint = f"names begin with '{before}': save the model itself, not what it was wrapped in"
    raise ConfigError(
        f"the weights of '{name}' are not those of its configuration",
        expected="a tensor for every parameter of the architecture, of its size",
        found=found,
        where=str(located.path),
        hint=hint,
    )


def _computed(model: Any) -> set[str]:
    """Parameters that a model computes where a file has none: sines of positions."""
    return {
        f"{path}.{name}"
        for path, module in model.named_modules()
        if "Sinusoidal" in type(module).__name__
        for name, _ in module.named_parameters(recurse=False)
    }


def _check_quantised(
    model: Any, stored: Mapping[str, Stored], name: str, located: Located
) -> None:
    """Refuse whole numbers in the place of weights, where nothing says what they stand for."""
    if getattr(model, "hf_quantizer", None) is not None:
        return
    prefix = f"{model.base_model_prefix}."
    weights = {
        key for key, tensor in model.named_parameters() if tensor.is_floating_point()
    }
    whole = [
        key
        for key, tensor in sorted(stored.items())
        if WHOLE.fullmatch(tensor.dtype) and {key, key.removeprefix(prefix)} & weights
    ]
    if whole:
        raise ConfigError(
            f"the weights of '{name}' are quantised, and its configuration does not say how",
            expected="weights of floating point, or a 'quantization_config' in config.json",
            found=f"{_listed(whole)} of type {stored[whole[0]].dtype}",
            where=str(located.path),
        )


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{visible(names[0])}{more}"


def own(model: nn.Module) -> None:
    """Copy what is still a view of the file: who writes to that would change the states.

    After what a GPU runs has been sent there: 26 GB of a 13B model need no copy before.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type == "cpu":
            tensor.data = tensor.data.clone()
    for held in {id(held): held for held in waiting(model)}.values():
        held |= {name: tensor.clone() for name, tensor in held.items()}


def waiting(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Weights that accelerate keeps on the CPU until a layer is run on a GPU."""
    for module in model.modules():
        for hook in _hooks(module):
            held = getattr(hook, "weights_map", None)
            held = getattr(
                held, "dataset", held
            )  # where there is a prefix before their names
            held = getattr(held, "state_dict", held)  # where some of them are on disk
            if isinstance(held, dict):
                yield held


def entry_device(model: nn.Module) -> torch.device:
    """Where a model that accelerate has spread reads token ids: where its first weights work."""
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            works = [getattr(hook, "execution_device", None) for hook in _hooks(module)]
            return next(
                (torch.device(one) for one in works if one is not None),
                parameter.device,
            )
    return torch.device("cpu")


def _hooks(module: nn.Module) -> Sequence[Any]:
    """What accelerate does before and after a module is run."""
    hook = getattr(module, "_hf_hook", None)
    return getattr(hook, "hooks", (hook,))


def _built(model_config: transformers.PretrainedConfig, **options: Any) -> Any:
    """The model that ``AutoModel`` makes; ``T5EncoderModel`` and its kind where one was saved.

    And the class that was saved where ``AutoModel`` has none, as of ``SiglipTextModel``.
    """
    if transformers.MODEL_MAPPING.get(type(model_config), None) is None:
        for name in model_config.architectures or ():
            saved: Any = getattr(transformers, name, None)
            if getattr(saved, "config_class", None) is type(model_config):
                return saved._from_config(model_config, **options)
    auto: Any = transformers.AutoModel
    encoder: Any = transformers.MODEL_FOR_TEXT_ENCODING_MAPPING.get(
        type(model_config), None
    )
    if encoder is not None and encoder.__name__ in (model_config.architectures or ()):
        auto = transformers.AutoModelForTextEncoding
    return auto.from_config(model_config, trust_remote_code=False, **options)


def skeleton(model_config: transformers.PretrainedConfig) -> Any:
    """The model without any memory for its weights, in float32 whatever they are stored in."""
    with torch.device("meta"):
        return _built(copy.deepcopy(model_config), dtype=torch.float32)


def encoder_part(model: Any) -> Any:
    """The model; of an encoder-decoder model its encoder."""
    return (
        model.get_encoder()
        if getattr(model.config, "is_encoder_decoder", False)
        else model
    )


def draw_untrained(
    model_config: transformers.PretrainedConfig, seed: int, dtype: str
) -> Any:
    """A model with the architecture's own initialisation: what does pre-training contribute?

    The same seed gives the same bits: weights are drawn on the CPU and in float32, then rounded.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(
            seed
        )  # torch.manual_seed would set those of GPUs too
        model = _built(model_config, dtype=torch.float32)
    return model.to(getattr(torch, dtype))
