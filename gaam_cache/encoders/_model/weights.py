"""The weights of an encoder: trained ones from disk, or random ones as a control."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from torch import nn

from gaam_cache.devices import out_of_memory, said_of_memory
from gaam_cache.errors import ConfigError, GaamError, ShortOfMemoryError

PartOf = Callable[[Any], Any]
"""Of a model the part that is run."""
IDLE = re.compile(r"pooler|\bmasked_spec_embed$")
"""Weights that play no part: a pooler sits on top of the last layer, and what stands for masked
features of a sound is for training, and missing from models that were tuned without."""


@contextmanager
def foreign(problem: str, folder: Path, expected: str | None = None) -> Iterator[None]:
    """Whatever the library says of an encoder's files, in whichever type, is one message.

    Args:
        problem: what cannot be done.
        folder: where the files are.
        expected: what would do.

    Raises:
        ConfigError: saying what the library said; out of memory stays what it is.
    """
    try:
        yield
    except (GaamError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # settings of others reach code that checks none of them
        lines = str(error).strip().splitlines() or [type(error).__name__]
        said = lines[0]
        if said.endswith(":") and len(lines) > 1:
            said += f" {lines[1].strip()}"
        if not isinstance(error, OSError | ValueError | ImportError | RuntimeError):
            said = f"{type(error).__name__}: {said}"
        raise ConfigError(
            problem,
            expected=expected,
            found=said,
            where=str(folder),
            hint="pip install accelerate" if "accelerate" in said.lower() else None,
        ) from error


def load_trained(
    files: Sequence[Path],
    model_config: transformers.PretrainedConfig,
    name: str,
    dtype: str,
    device_map: str | None,
    part_of: PartOf,
) -> Any:
    """The model with the weights of some files, which are opened here: no other one is.

    Args:
        files: safetensors files.
        model_config: configuration of the model.
        name: what the user calls the encoder.
        dtype: arithmetic.
        device_map: 'auto' spreads it over GPUs.
        part_of: the part of it whose weights must be there.

    Raises:
        ConfigError: weights that do not fit the architecture.
    """
    options = {} if device_map is None else {"device_map": device_map}
    with foreign(f"cannot load the weights of '{name}'", files[0].parent), ExitStack() as opened:
        tensors: dict[str, Any] = {}
        for file in files:
            weights = opened.enter_context(safe_open(file, framework="pt"))
            tensors |= {key: weights.get_slice(key) for key in weights.keys()}  # noqa: SIM118
        model, info = type(skeleton(model_config)).from_pretrained(
            None,
            config=model_config,
            state_dict=tensors,
            dtype=getattr(torch, dtype),
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # said below, by name and size
            **options,
        )
    _own(model)
    used = {key for key in _names_in(model, part_of(model)) if not IDLE.search(key)}
    for key, there, expected in sorted(info["mismatched_keys"]):
        if key in used:
            raise ConfigError(
                f"the weights of '{name}' are not those of its configuration",
                expected=f"{key} of the size {' x '.join(map(str, expected))}",
                found=" x ".join(map(str, there)),
                where=str(files[0].parent),
            )
    missing = set(info["missing_keys"]) & used
    if missing:
        raise ConfigError(
            f"the weights of '{name}' are incomplete",
            expected="a tensor for every parameter of the architecture",
            found=f"{len(missing)} missing, first {min(missing)}",
            where=str(files[0].parent),
        )
    return model


def _own(model: nn.Module) -> None:
    """Copy what is still a view of the file: who writes to that would change the states."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.device.type == "cpu":
            tensor.data = tensor.data.clone()
    for held in {id(held): held for held in waiting(model)}.values():
        held |= {name: tensor.clone() for name, tensor in held.items()}


def waiting(model: nn.Module) -> Iterator[dict[str, torch.Tensor]]:
    """Weights that accelerate keeps on the CPU until a layer is run on a GPU."""
    for module in model.modules():
        for hook in _hooks(module):
            held = getattr(hook, "weights_map", None)
            held = getattr(held, "dataset", held)  # where there is a prefix before their names
            held = getattr(held, "state_dict", held)  # where some of them are on disk
            if isinstance(held, dict):
                yield held


def entry_device(model: nn.Module) -> torch.device:
    """Where a model that accelerate has spread reads token ids: where its first weights work."""
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            works = [getattr(hook, "execution_device", None) for hook in _hooks(module)]
            return next((torch.device(one) for one in works if one is not None), parameter.device)
    return torch.device("cpu")


def _hooks(module: nn.Module) -> Sequence[Any]:
    """What accelerate does before and after a module is run."""
    hook = getattr(module, "_hf_hook", None)
    return getattr(hook, "hooks", (hook,))


@contextmanager
def room_for(
    name: str,
    model_config: transformers.PretrainedConfig,
    dtype: str,
    device: torch.device,
    part_of: PartOf,
) -> Iterator[None]:
    """While open, an encoder that the memory is too small for is said with what its weights take.

    Raises:
        ShortOfMemoryError: naming what to try.
    """
    try:
        yield
    except Exception as error:
        if not out_of_memory(error):
            raise
        numbers = sum(p.numel() for p in part_of(skeleton(model_config)).parameters())
        raise ShortOfMemoryError(
            f"the encoder does not fit into the memory of {device}",
            expected=f"{numbers * getattr(torch, dtype).itemsize / 1e9:,.1f} GB for its weights in "
            f"{dtype}, and more for what it computes",
            found=said_of_memory(error),
            where=name,
            hint="--dtype bfloat16 (half of float32), another --device, or --set device-map=auto, "
            "which spreads it over GPUs and the CPU",
        ) from error


def _names_in(model: nn.Module, part: nn.Module) -> set[str]:
    """What the model calls the weights of a part of it."""
    used = {id(tensor) for tensor in (*part.parameters(), *part.buffers())}
    named = (*model.named_parameters(), *model.named_buffers())
    return {name for name, tensor in named if id(tensor) in used}


def _built(model_config: transformers.PretrainedConfig, **options: Any) -> Any:
    """The model that ``AutoModel`` makes; ``T5EncoderModel`` and its kind where one was saved."""
    auto: Any = transformers.AutoModel
    encoder: Any = transformers.MODEL_FOR_TEXT_ENCODING_MAPPING.get(type(model_config), None)
    if encoder is not None and encoder.__name__ in (model_config.architectures or ()):
        auto = transformers.AutoModelForTextEncoding
    return auto.from_config(model_config, trust_remote_code=False, **options)


def skeleton(model_config: transformers.PretrainedConfig) -> Any:
    """The model without any memory for its weights."""
    with torch.device("meta"):
        return _built(copy.deepcopy(model_config))


def draw_untrained(model_config: transformers.PretrainedConfig, seed: int, dtype: str) -> Any:
    """A model with the architecture's own initialisation: what does pre-training contribute?

    The same seed gives the same bits; the global random state is left as it was. No weight file
    is read.

    Numerics:
        Weights are drawn on the CPU and in float32, so that every device and every arithmetic
        gets the same network (rounded). That takes 4 bytes of memory per parameter.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would set those of GPUs too
        model = _built(model_config, dtype=torch.float32)
    return model.to(getattr(torch, dtype))


def untrained_identity(seed: int) -> dict[str, Any]:
    """What decides random weights, beside the configuration: JSON values.

    Neither library promises to draw the same numbers in another version.
    """
    return {
        "seed": seed,
        "torch": torch.__version__.partition("+")[0],
        "transformers": transformers.__version__,
    }
