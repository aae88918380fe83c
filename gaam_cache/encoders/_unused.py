"""Tensors of an encoder's files that its model does not take: which of them play no part.

A head of another task, the decoder of an encoder, the other tower of a model of pictures and texts,
and what earlier versions of transformers stored beside weights leave every hidden state as it is.
An adapter, the scales of quantised weights or a layer more do not: whatever is not known to be
harmless is named to the user.
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
"""What a model computes from its configuration, and earlier versions stored; and the head of a
language model, which may stand within a tower."""
CAUSAL_MASK = re.compile(r"(^|\.)(attn|attention)\.bias$")
"""The name of a causal mask, where the tensor has the four axes of one; else of a parameter."""
BESIDE = re.compile(
    r"heads?$|head_|^cls|classif|predict|^scores?$|logit|pooler|pooling|projection|projector"
    r"|^project_|regress|^(linear|dense|fc|output|out_proj|embed_out|proj_out|lm_bias)$"
    r"|summary|quantizer|decoder|generator|discriminator"
    r"|^(vision|visual|image|audio|speech|video|text|language)(_|$)"
)
"""Names of modules that read the last layer or run beside the model: heads, decoders, towers."""
ADAPTER = re.compile(r"adapter|lora_|prefix|prompt|ia3_|oft_|vera_")
"""Names of tensors that change what layers compute, or what they read."""
QUANTISED = re.compile(
    r"\.SCB$|weight_format|scale|qweight|qzeros|g_idx|absmax|quant|zero_point"
)
"""Names of what quantised weights are multiplied with."""
LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h)\.(\d+)\.")
SAVE_ANEW = (
    "if they play no part, save the model without them: "
    "AutoModel.from_pretrained(folder).save_pretrained(other_folder)"
)


def unexplained(
    model: Any, unused: Iterable[str], shapes: Mapping[str, Sequence[int]]
) -> list[str]:
    """Of tensors that a model does not take those that may belong to its layers, sorted.

    Args:
        model: a model of transformers.
        unused: names of the tensors, as transformers reports them.
        shapes: shapes of tensors by their names in the files.
    """
    prefix = f"{model.base_model_prefix}."
    own = {name for name, _ in model.named_children()}
    left = set()
    for name in unused:
        module = name.removeprefix(prefix).split(".")[0]
        beside = (
            module not in own and BESIDE.search(module) and not ADAPTER.search(name)
        )
        mask = CAUSAL_MASK.search(name) and len(shapes.get(name, ())) == 4
        if not (beside or mask or ANYWHERE.search(name)):
            left.add(name)
    for task_class in _task_classes(model.config):
        if not left:
            break
        left -= _tensor_names(task_class, model.config, prefix)
    return sorted(left)


def remedy(model: Any, names: Iterable[str]) -> str | None:
    """What may be done about tensors that a model does not take, as far as their names say it."""
    layers = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    for name in names:
        if ADAPTER.search(name):
            return (
                "merge the adapter into the weights by the library that made it, or keep it beside "
                "them in adapter_model.safetensors with its adapter_config.json"
            )
        if QUANTISED.search(name):
            return (
                "the weights are quantised: config.json needs their quantization_config"
            )
        layer = LAYER.search(name)
        if layer and layers is not None and int(layer[1]) >= layers:
            return f"config.json has num_hidden_layers {layers}: mend it, or name another folder"
    return None


@cache
def _mappings() -> list[Any]:
    """What transformers maps configurations to: models for every task."""
    names = [
        name for name in dir(transformers) if re.fullmatch(r"MODEL_\w*MAPPING", name)
    ]
    return [getattr(transformers, name) for name in names]


def _task_classes(model_config: Any) -> Iterator[type]:
    """Classes of models of a configuration: those that it names first."""
    named = [
        getattr(transformers, name, None) for name in model_config.architectures or ()
    ]
    mapped = [mapping.get(type(model_config), None) for mapping in _mappings()]
    seen = set()
    for entry in (*named, *mapped):
        for task_class in entry if isinstance(entry, tuple) else (entry,):
            kind = getattr(task_class, "config_class", None)
            if kind is type(model_config) and task_class not in seen:
                seen.add(task_class)
                yield task_class


def _tensor_names(task_class: type, model_config: Any, prefix: str) -> set[str]:
    """Names of a model's tensors, with the prefix of the model within it and without."""
    names: set[str] = set()
    with (
        suppress(Exception),
        torch.device("meta"),
    ):  # not every class builds every configuration
        task_model: Any = task_class(copy.deepcopy(model_config))
        named = (*task_model.named_parameters(), *task_model.named_buffers())
        names = {name for name, _ in named} | set(task_model.state_dict())
    return names | {name.removeprefix(prefix) for name in names}
