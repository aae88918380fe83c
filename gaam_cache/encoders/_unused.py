"""Finds tensors of an encoder's files that its model leaves unused and that may matter.

Some play no part in a hidden state: the head of another task, the decoder of an
encoder, the other tower of a model of pictures and texts, values that earlier versions
of transformers stored. An adapter, scales of quantised weights or one more layer would
change the states. Whatever is not known to be harmless is reported.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch
import transformers

ANYWHERE = re.compile(
    r"(^|\.)(position_ids|token_type_ids|inv_freq|masked_bias|causal_mask|version"
    r"|relative_position_index|_float_tensor|num_batches_tracked)$|(^|\.)lm_head\."
)
"""Harmless tensors, wherever they stand.

A model computes most of them from its configuration, and earlier versions stored them.
The head of a language model may stand within a tower.
"""
CAUSAL_MASK = re.compile(r"(^|\.)(attn|attention)\.bias$")
"""The name of a causal mask if the tensor has four axes, and else of a parameter."""
CAUSAL_MASK_AXES = 4
BESIDE = re.compile(
    r"heads?$|head_|^cls|classif|predict|^scores?$|logit|pooler|pooling|projection"
    r"|projector|^project_|regress"
    r"|^(linear|dense|fc|output|out_proj|embed_out|proj_out|lm_bias)$"
    r"|summary|quantizer|decoder|generator|discriminator"
    r"|^(vision|visual|image|audio|speech|video|text|language)(_|$)"
)
"""Modules that read the last layer or run beside the model: heads, decoders, towers."""
ADAPTER = re.compile(r"adapter|lora_|prefix|prompt|ia3_|oft_|vera_")
"""Tensors that change what layers compute, or what they read."""
QUANTISED = re.compile(
    r"\.SCB$|weight_format|scale|qweight|qzeros|g_idx|absmax|quant|zero_point"
)
"""Tensors by which quantised weights are multiplied."""
LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h)\.(\d+)\.")
MAPPING = re.compile(r"MODEL_\w*MAPPING")
"""Names under which transformers maps configurations to models, one for every task."""
SAVE_ANEW = (
    "if they play no part, save the model without them: "
    "AutoModel.from_pretrained(folder).save_pretrained(other_folder)"
)


def unexplained(
    model: Any, unused: Iterable[str], shapes: Mapping[str, Sequence[int]]
) -> list[str]:
    """Those unused tensors that may belong to the model's layers, sorted.

    Args:
        model: a model of transformers.
        unused: names of the unused tensors, as transformers reports them.
        shapes: shapes of tensors by their names in the files.
    """
    prefix = f"{model.base_model_prefix}."
    own_modules = {name for name, _ in model.named_children()}
    suspects = set()
    for name in unused:
        module = name.removeprefix(prefix).split(".")[0]
        is_beside = module not in own_modules and _is_beside_model(module, name)
        if is_beside or _is_harmless(name, shapes.get(name, ())):
            continue
        suspects.add(name)

    # A model for a task has its head's tensors, which play no part here. Building it
    # takes time, so that each class is built only as long as there are suspects.
    for task_class in _task_classes(model.config):
        if not suspects:
            break
        suspects -= _tensor_names(task_class, model.config, prefix)
    return sorted(suspects)


def _is_beside_model(module: str, name: str) -> bool:
    """Whether a tensor belongs to a head, a decoder or another tower."""
    return bool(BESIDE.search(module)) and not ADAPTER.search(name)


def _is_harmless(name: str, shape: Sequence[int]) -> bool:
    """Whether the model computes a tensor by itself, or a tensor belongs to a head."""
    if CAUSAL_MASK.search(name) and len(shape) == CAUSAL_MASK_AXES:
        return True
    return bool(ANYWHERE.search(name))


def remedy(model: Any, names: Iterable[str]) -> str | None:
    """What a person may do about unused tensors, as far as their names show it."""
    num_layers = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    for name in names:
        if ADAPTER.search(name):
            return (
                "merge the adapter into the weights by the library that made it, "
                "or keep it beside them in adapter_model.safetensors "
                "with its adapter_config.json"
            )
        if QUANTISED.search(name):
            return (
                "the weights are quantised: config.json needs their quantization_config"
            )
        layer = LAYER.search(name)
        if layer and num_layers is not None and int(layer[1]) >= num_layers:
            return (
                f"config.json has num_hidden_layers {num_layers}: "
                "mend it, or name another folder"
            )
    return None


@cache
def _mappings() -> list[Any]:
    """The maps of transformers from configurations to models, one for every task."""
    names = [name for name in dir(transformers) if MAPPING.fullmatch(name)]
    return [getattr(transformers, name) for name in names]


def _task_classes(model_config: Any) -> Iterator[type]:
    """Classes of models for a configuration; the ones that it names come first."""
    names = model_config.architectures or ()
    candidates: list[Any] = [getattr(transformers, name, None) for name in names]
    for mapping in _mappings():
        mapped = mapping.get(type(model_config), None)
        if isinstance(mapped, tuple):
            candidates.extend(mapped)
        else:
            candidates.append(mapped)

    # A mapped class may belong to another kind of configuration.
    yielded = set()
    for candidate in candidates:
        config_class = getattr(candidate, "config_class", None)
        if config_class is type(model_config) and candidate not in yielded:
            yielded.add(candidate)
            yield candidate


def _tensor_names(task_class: type, model_config: Any, prefix: str) -> set[str]:
    """Names of a task model's tensors, with the inner model's prefix and without."""
    names: set[str] = set()
    # Not every class can build every configuration.
    with suppress(Exception), torch.device("meta"):
        task_model: Any = task_class(copy.deepcopy(model_config))
        tensors = (*task_model.named_parameters(), *task_model.named_buffers())
        names = {name for name, _ in tensors} | set(task_model.state_dict())
    return names | {name.removeprefix(prefix) for name in names}
