"""The models of the transformers library: trained weights, random ones as a control, or none."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from torch import Tensor, nn

from gaam_cache.errors import ConfigError, GaamError

PartOf = Callable[[Any], Any]
"""Of a model the part that is run."""
IDLE = re.compile(r"pooler|\bmasked_spec_embed$")
"""Weights that play no part: those on top of the last layer, and those for training alone."""


@contextmanager
def foreign(problem: str, folder: Path, expected: str | None = None) -> Iterator[None]:
    """What the library raises on an encoder's files is a ``ConfigError``; but for out of memory."""
    try:
        yield
    except (GaamError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # settings of others reach code that checks none of them
        said = " ".join(str(error).split()[:60])
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
    """The model with the weights of some files, which are opened here: no other one is."""
    options = {} if device_map is None else {"device_map": device_map}
    with foreign(f"cannot load the weights of '{name}'", files[0].parent), ExitStack() as opened:
        state: dict[str, Any] = {}
        for file in files:
            weights = opened.enter_context(safe_open(file, framework="pt"))
            state |= {key: weights.get_slice(key) for key in weights.keys()}  # noqa: SIM118
        model, info = type(skeleton(model_config)).from_pretrained(
            None,
            config=model_config,
            state_dict=state,
            dtype=getattr(torch, dtype),
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # said below, by name and size
            **options,
        )
    _own(model)
    part = part_of(model)
    tensors = {id(tensor) for tensor in (*part.parameters(), *part.buffers())}
    named = (*model.named_parameters(), *model.named_buffers())
    used = {name for name, tensor in named if id(tensor) in tensors and not IDLE.search(name)}
    wrong = {key: f"{there} and not {wanted}" for key, there, wanted in info["mismatched_keys"]}
    wrong |= dict.fromkeys(info["missing_keys"], "missing")
    if bad := sorted(used & wrong.keys()):
        raise ConfigError(
            f"the weights of '{name}' are not those of its configuration",
            expected="a tensor for every parameter of the architecture, of its size",
            found=f"{bad[0]}: {wrong[bad[0]]}" + f", and {len(bad) - 1} more" * (len(bad) > 1),
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


def waiting(model: nn.Module) -> Iterator[dict[str, Tensor]]:
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


def encoder_part(model: Any) -> Any:
    """The model; of an encoder-decoder model its encoder."""
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model


def draw_untrained(model_config: transformers.PretrainedConfig, seed: int, dtype: str) -> Any:
    """A model with the architecture's own initialisation: what does pre-training contribute?

    The same seed gives the same bits: weights are drawn on the CPU and in float32, then rounded.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would set those of GPUs too
        model = _built(model_config, dtype=torch.float32)
    return model.to(getattr(torch, dtype))


@contextmanager
def quiet() -> Iterator[None]:
    """While open nothing is logged: that kernels are missing is not about the extraction."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
