"""An encoder in a GGUF file, which transformers reads and dequantises; and its tokenizer.

transformers takes of such a file what it has a name for and drops the rest. What it drops here and
decides the numbers is refused: tensors, and settings such as those of a scaled rotary embedding.
"""

from __future__ import annotations

import copy
import importlib.util
import math
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

from gaam_cache.common.errors import CacheError, ConfigError, GaamError
from gaam_cache.common.messages import install, visible

NAME = "model.gguf"
HEAD = re.compile(r"(output|cls|cls\.output)\.(weight|bias)|token_types\.weight")
"""Tensors of heads: they read the last layer."""
EXPERTS = re.compile(r"_exps\.(weight|bias)$")
"""Tensors of all experts of a layer, which transformers takes apart: a missing one would show."""
DECIDES = re.compile(
    r"rope\.(scal|freq_base)|sliding_window|softcap|(^|[._])scale|clamp|\.causal$|temperature"
    r"|epsilon$"
)
"""Settings that change states and no shape of a weight."""
NEUTRAL: tuple[Any, ...] = ("none", "", 0, 1)
"""Values of such settings that change nothing; of attention it is that it is causal."""


def check_packages(file: Path) -> None:
    """Refuse a GGUF file where a package that transformers reads it with is missing."""
    needed = ("gguf", "accelerate")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            "transformers needs more packages to read a GGUF file",
            expected=" and ".join(needed),
            found=f"no {' and no '.join(missing)}",
            where=str(file),
            hint=install("gguf"),
        )


@contextmanager
def alone(file: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A folder with nothing but a file, and the options that make transformers read it.

    Of a file's own folder transformers would read tokenizers and adapters too.
    """
    check_packages(file)
    with tempfile.TemporaryDirectory(prefix="gaam-gguf-") as name:
        folder = Path(name)
        (folder / NAME).symlink_to(file.absolute())
        try:
            yield folder, {"gguf_file": NAME, "local_files_only": True}
        except GaamError:
            raise
        except Exception:  # of others, who raise what they like
            _check_readable(file)
            raise


def _check_readable(file: Path) -> None:
    """Refuse a file that ends before its tensors do."""
    from gguf import GGUFReader

    try:
        GGUFReader(file)
    except Exception as error:
        raise CacheError(
            f"the GGUF file '{file.name}' is cut off or damaged",
            found=f"{file.stat().st_size:,} bytes; {type(error).__name__}: {error}",
            where=str(file.absolute()),
            hint="download or copy it again",
        ) from error


def load_gguf(
    file: Path, model_class: Any, model_config: Any, options: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """The dequantised model of a file, and what transformers says of loading it."""
    with alone(file) as (folder, reading):
        _check_whole(folder / NAME, model_class, model_config)
        quantization = getattr(transformers, "GgufConfig", None)
        if quantization is not None:
            # else packed weights would run in kernels that are fetched from the hub
            options = options | {"quantization_config": quantization(dequantize=True)}
        with _without_bar():
            model, info = model_class.from_pretrained(
                folder,
                config=model_config,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **reading,
                **options,
            )
    if hasattr(model, "hf_quantizer"):
        del model.hf_quantizer  # it holds the file open
    return model, info


@contextmanager
def _without_bar() -> Iterator[None]:
    """Without the progress bar of transformers, which it shows whatever it was told."""
    from transformers import modeling_gguf_pytorch_utils as reading

    bar = reading.tqdm
    reading.tqdm = partial(bar, disable=True)
    try:
        yield
    finally:
        reading.tqdm = bar


def _check_whole(file: Path, model_class: Any, model_config: Any) -> None:
    """Refuse a file of which transformers would drop what decides the numbers."""
    from gguf import GGUFReader

    reader = GGUFReader(file)
    settings = {name: field.contents() for name, field in reader.fields.items()}
    parts = settings.get("split.count", 1)
    if parts > 1:
        raise ConfigError(
            "the GGUF file is one part of several",
            expected="a whole model in one file",
            found=f"one part of {parts}",
            hint="join them: llama-gguf-split --merge FIRST_PART WHOLE_FILE",
        )
    tensors = [tensor.name for tensor in reader.tensors]
    architecture = str(settings["general.architecture"])
    dropped = _settings_dropped(settings, model_config)
    dropped += _tensors_dropped(tensors, architecture, model_class, model_config)
    if dropped:
        more = f", and {len(dropped) - 1} more" if len(dropped) > 1 else ""
        raise ConfigError(
            "transformers would drop a part of the GGUF file that decides the states",
            expected="tensors and settings that transformers has a name for",
            found=f"{visible(dropped[0])}{more}",
            hint="use the checkpoint that the file was made from",
        )


def _settings_dropped(settings: dict[str, Any], model_config: Any) -> list[str]:
    """Settings that decide the states, that transformers has no name for, and that it has not."""
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

    architecture = str(settings["general.architecture"])
    known: Any = GGUF_CONFIG_MAPPING
    names = {*known.get(architecture, ()), *known.get(model_config.model_type, ())}
    there = dict(_flat(model_config.to_dict()))
    dropped = []
    for key, value in settings.items():
        name = key.removeprefix(f"{architecture}.")
        if key == name or name in names or not DECIDES.search(name):
            continue
        neutral = value is True if name.endswith("causal") else value in NEUTRAL
        if not neutral and not _has(there, name.split(".")[-1], value):
            dropped.append(f"{key} = {value}")
    return dropped


def _flat(settings: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested settings, by their own names."""
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from _flat(value, str(key))
    else:
        yield name, settings


def _has(there: dict[str, Any], name: str, value: Any) -> bool:
    """Whether a configuration has a value: a fraction under any name, all else under its own."""
    if isinstance(value, float):
        fractions = [number for number in there.values() if isinstance(number, float)]
        return any(math.isclose(value, number, rel_tol=1e-6) for number in fractions)
    return name in there and there[name] == value


def _tensors_dropped(
    tensors: list[str], architecture: str, model_class: Any, model_config: Any
) -> list[str]:
    """Tensors that transformers has no name for, but for those of heads."""
    from transformers import modeling_gguf_pytorch_utils as reading

    with suppress(ImportError):
        from transformers.integrations.gguf.gguf_conversion_mapping import GGUF_ARCHS

        # of these it tells what it did not take, as of any checkpoint
        if architecture in GGUF_ARCHS:
            return []
    with torch.device("meta"):
        model = model_class(copy.deepcopy(model_config))
    bodies = [name for name in tensors if not HEAD.fullmatch(name)]
    if len(bodies) == len(model.state_dict()):
        # one for each: where one had no name, a parameter would be missing, which is refused later
        return []
    processor = reading.TENSOR_PROCESSORS.get(architecture, reading.TensorProcessor)(
        config={}
    )
    taken = reading.get_gguf_hf_weights_map(model, processor)
    return [name for name in bodies if name not in taken and not EXPERTS.search(name)]
