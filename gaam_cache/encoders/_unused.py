"""Finds unused tensors in an encoder's files that may change its states.

A tensor is unused if the model has no parameter for it. Many unused tensors are
harmless: the head of another task, the decoder beside an encoder, the other tower of a
model of pictures and texts, values that earlier versions of transformers stored. Others
would change the states: an adapter, scales of quantised weights, one more layer. Every
tensor that is not known to be harmless is reported.
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

HARMLESS_TENSOR = re.compile(
    r"(^|\.)(position_ids|token_type_ids|inv_freq|masked_bias|causal_mask|version"
    r"|relative_position_index|_float_tensor|num_batches_tracked)$|(^|\.)lm_head\."
)
"""Names of harmless tensors in any module.

A model computes most of them from its configuration; earlier versions of transformers
stored them. The head of a language model may lie inside a tower.
"""
CAUSAL_MASK = re.compile(r"(^|\.)(attn|attention)\.bias$")
"""Names of causal masks, and of parameters: a mask has ``CAUSAL_MASK_AXES`` axes."""
CAUSAL_MASK_AXES = 4
MODULE_BESIDE_MODEL = re.compile(
    r"heads?$|head_|^cls|classif|predict|^scores?$|logit|pooler|pooling|projection"
    r"|projector|^project_|regress"
    r"|^(linear|dense|fc|output|out_proj|embed_out|proj_out|lm_bias)$"
    r"|summary|quantizer|decoder|generator|discriminator"
    r"|^(vision|visual|image|audio|speech|video|text|language)(_|$)"
)
"""Names of heads, which read the last layer, and of decoders and other towers."""
ADAPTER_TENSOR = re.compile(r"adapter|lora_|prefix|prompt|ia3_|oft_|vera_")
"""Names of tensors that change the computation of layers, or their input."""
QUANTISATION_TENSOR = re.compile(
    r"\.SCB$|weight_format|scale|qweight|qzeros|g_idx|absmax|quant|zero_point"
)
"""Names of tensors that turn quantised weights into numbers, such as scales."""
LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h)\.(\d+)\.")
"""The number of a layer in the name of a tensor."""
MAPPING = re.compile(r"MODEL_\w*MAPPING")
"""Names under which transformers maps configurations to models, one for every task."""
SAVE_ANEW = (
    "if they play no part, save the model without them: "
    "AutoModel.from_pretrained(folder).save_pretrained(other_folder)"
)


def find_suspicious_tensors(
    model: Any, unused: Iterable[str], shapes: Mapping[str, Sequence[int]]
) -> list[str]:
    """Find the unused tensors that are not known to be harmless.

    Args:
        model: a model of transformers.
        unused: names of the tensors in the files for which the model has no parameter,
            as transformers reports them.
        shapes: name in the files -> shape of the tensor. A name may be missing: then
            the name alone decides whether the tensor is harmless.

    Returns:
        Names of the suspicious tensors, sorted; an empty list if all are harmless.
    """
    prefix = f"{model.base_model_prefix}."
    own_modules = {name for name, _ in model.named_children()}
    # a tensor outside of the encoder (beside it), or one that a model can compute by
    # itself, is no suspect
    suspects = set()
    for name in unused:
        module = name.removeprefix(prefix).split(".")[0]
        # "decoder" is beside BERT, but part of a model that has such a module itself.
        is_beside = module not in own_modules and _is_beside_model(module, name)
        is_harmless = is_beside or _is_harmless(name, shapes.get(name, ()))
        if not is_harmless:
            suspects.add(name)

    # A tensor is harmless too if a model for some task has it for its head. Building
    # such a model takes time, so that it is built only while there are suspects.
    for task_class in _task_classes(model.config):
        if not suspects:
            break
        suspects -= _tensor_names(task_class, model.config, prefix)
    return sorted(suspects)


def _is_beside_model(module: str, name: str) -> bool:
    """Whether a tensor belongs to a head, a decoder or another tower.

    Args:
        module: the first part of the tensor's name, without the model's prefix.
        name: the whole name.
    """
    # An adapter changes the layers, even if its module is called as a head is.
    if ADAPTER_TENSOR.search(name):
        return False
    return MODULE_BESIDE_MODEL.search(module) is not None


def _is_harmless(name: str, shape: Sequence[int]) -> bool:
    """Whether a tensor is known to change no state, whatever module it is in.

    It is a causal mask or another tensor that the model computes by itself, or part of
    the head of a language model. ``shape`` is empty if it is not known.
    """
    if CAUSAL_MASK.search(name) and len(shape) == CAUSAL_MASK_AXES:
        return True
    return HARMLESS_TENSOR.search(name) is not None


def advise_on_unused_tensors(model: Any, names: Iterable[str]) -> str | None:
    """Advise what to do about unused tensors, as the last line of an error message.

    Args:
        model: the model, which has no parameter for these tensors.
        names: names of the tensors. The first one that shows what is wrong decides.

    Returns:
        None if no name shows what to do.
    """
    num_layers = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    for name in names:
        if ADAPTER_TENSOR.search(name):
            return (
                "merge the adapter into the weights by the library that made it, "
                "or keep it beside them in adapter_model.safetensors "
                "with its adapter_config.json"
            )
        if QUANTISATION_TENSOR.search(name):
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
    """The maps of transformers from a configuration's class to model classes.

    There is one for every task. ``dir`` finds them, since transformers lists them
    nowhere.
    """
    names = [name for name in dir(transformers) if MAPPING.fullmatch(name)]
    return [getattr(transformers, name) for name in names]


def _task_classes(model_config: transformers.PretrainedConfig) -> Iterator[type]:
    """Yield the model classes for all tasks that a configuration can build.

    Every class is yielded once. The class that the configuration names comes first,
    because it is the likeliest to have the tensors of the files.
    """
    names = model_config.architectures or ()
    candidates: list[Any] = [getattr(transformers, name, None) for name in names]
    # one map from a configuration's class to model classes for every task
    for mapping in _mappings():
        mapped = mapping.get(type(model_config), None)
        if isinstance(mapped, tuple):
            candidates.extend(mapped)
        else:
            candidates.append(mapped)

    # A map may hold None, or a class that is for another class of configurations.
    yielded = set()
    for candidate in candidates:
        config_class = getattr(candidate, "config_class", None)
        if config_class is type(model_config) and candidate not in yielded:
            yielded.add(candidate)
            yield candidate


def _tensor_names(
    task_class: type, model_config: transformers.PretrainedConfig, prefix: str
) -> set[str]:
    """Names of the tensors in a model for a task, each with the prefix and without.

    Args:
        task_class: the class of the model, such as ``BertForMaskedLM``.
        model_config: transformers' configuration of the model.
        prefix: what the task model puts before the names of the encoder: "bert.".

    Returns:
        An empty set if the class cannot build a model of this configuration.
    """
    names: set[str] = set()
    # On the device "meta", a model has names and shapes, and takes no memory.
    with suppress(Exception), torch.device("meta"):
        task_model: Any = task_class(copy.deepcopy(model_config))
        tensors = (*task_model.named_parameters(), *task_model.named_buffers())
        names = {name for name, _ in tensors} | set(task_model.state_dict())
    return names | {name.removeprefix(prefix) for name in names}
