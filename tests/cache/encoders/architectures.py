"""Every architecture that transformers maps to a model, tiny and random, through the extraction.

    python -m tests.cache.encoders.architectures [--list FILE.json] [NAME ...]

Each is built from a configuration that was shrunk by the names of its fields, saved with a
tokenizer, extracted from as a user would, without layer 0 and with it, and compared with
``hidden_states`` of transformers itself, one text at a time, in a fresh copy of the model. Each has
a process of its own, with bounds on memory and time: one bad architecture ends no other.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import inspect
import json
import os
import re
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import gaam_cache
from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders import _probe as probe
from gaam_cache.errors import GaamError
from tests.cache.encoders.walking import main, names_that_take
from tests.tiny import WORDS, write_csv

SECONDS = 240
MEMORY = 8 * 2**30
PARAMETERS = 30_000_000
POOLS = tuple(plugins.names("gaam_cache.encoders.poolings"))
MAX_LENGTH = 72
PROBE = probe.probe
Judge = Callable[[str, Path], dict[str, Any]]
RIGHT = 1e-5
"""Relative to the norm of the layer."""

RECIPES = [
    {"hidden": 32, "heads": 4, "kv": 2, "head": 8, "inner": 48},
    {"hidden": 32, "heads": 4, "kv": 4, "head": 8, "inner": 64},
    {"hidden": 64, "heads": 2, "kv": 1, "head": 32, "inner": 64},
    {"hidden": 64, "heads": 4, "kv": 4, "head": 16, "inner": 128},
    {"hidden": 32, "heads": 4, "kv": 4, "inner": 64},
    {"hidden": 64, "inner": 128},
    {},  # sizes as they are by default
]
"""Sizes that are tried in turn, until transformers builds a model from them and runs it."""

RULES: list[tuple[str, str | int]] = [
    # a pattern of the field's name -> a size of the recipe, or a number; the first that fits
    (r"vocab_size|vocabulary_size|^n_vocab$|num_embeddings$|char_vocab|alphabet_size", 64),
    (r"head_dim|headdim|d_kv|d_head|dim_head|head_size|attention_head_size|kv_channels", "head"),
    (r"num_(key_value|kv)_heads|multi_query_group|num_.*kv.*heads|n_head_kv", "kv"),
    (r"heads$|n_head$|_nhead$|num_attention_heads|encoder_attention_heads", "heads"),
    (r"num_hidden_groups|inner_group_num|num_.*_groups|n_groups?$|num_groups", 1),
    (r"num_experts_per|top_k|topk|experts_per_tok|moe_k$", 2),
    (r"num_.*experts|n_.*experts|num_local_experts|moe_num_experts", 4),
    (r"intermediate|ffn|inner|mlp_dim|ff_dim|d_ff|feed_?forward|dim_feed|n_inner", "inner"),
    (r"capacity", 4),
    (r"rotary_dim", "head"),
    (r"lora_rank|_rank$|rank$|rope_head_dim", 8),
    (r"num_.*layers|n_layers?$|_layers$|num_blocks|^depth$|^depths$", 3),
    (r"sliding_window|attention_window|window_size|local_window|window$", 16),
    (r"original_max_position|chunk_size|chunk_length|attention_chunk|block_size|local_radius", 16),
    (r"max_position_embeddings|n_positions|max_seq|max_.*positions|seq_length|n_ctx", 128),
    (r"hidden_size|d_model|n_embd|embed_dim|embedding_size|hidden_dim|^dim$|width|"
     r"projection_dim|embedding_dim|emb_dim|proj_dim|model_dim|_hidden$|_dim$|lru", "hidden"),
    (r"bottleneck", "hidden"),
    (r"image_size|crop", 32),
    (r"patch_size", 8),
    (r"num_mel_bins|num_queries|num_query|n_mels", 8),
]  # fmt: skip
SPECIAL = {"pad_token_id": 0, "unk_token_id": 1, "bos_token_id": 2, "cls_token_id": 2,
           "eos_token_id": 3, "sep_token_id": 3, "decoder_start_token_id": 2, "padding_idx": 0,
           "forced_eos_token_id": 3, "forced_bos_token_id": None, "sep_index": 3}  # fmt: skip


def shrink(cls: type, recipe: dict[str, int]) -> Any:
    """A configuration of few weights: every whole number goes by the name of its field."""
    default = cls()
    given: dict[str, Any] = {}
    tokens = iter(range(60, 40, -1))
    for key, value in default.to_dict().items():
        sub = getattr(cls, "sub_configs", {}).get(key)
        if key in ("out_indices", "out_features", "stage_names"):
            continue  # follows from the number of layers
        if sub is not None and key != "backbone_config":
            inner = getattr(default, key, None)
            kind = type(inner) if isinstance(inner, transformers.PretrainedConfig) else sub
            if kind is not transformers.AutoConfig:
                with contextlib.suppress(Exception):
                    given[key] = shrink(kind, recipe)
        elif key in SPECIAL:
            if value is not None:
                given[key] = SPECIAL[key]
        elif re.search(r"token_(id|index)$|_id$|token_ids$", key) and type(value) is int:
            given[key] = next(tokens)
        elif type(value) is int and value > 1:
            given[key] = _small(key, value, recipe)
        elif isinstance(value, dict) and "original_max_position_embeddings" in value:
            given[key] = value | {"original_max_position_embeddings": 16}
        elif isinstance(value, list) and value and all(type(x) is int for x in value):
            given[key] = [_small(key, x, recipe) for x in value[:3]]
    given |= {k: v for k, v in (("layer_types", None), ("mlp_layer_types", None)) if k in given}
    return cls(**given)


def _small(key: str, value: int, recipe: dict[str, int]) -> int:
    for pattern, size in RULES:
        if re.search(pattern, key):
            small = recipe.get(size, value) if isinstance(size, str) else size
            return small if "layers" in key or "vocab" in key else min(value, small)
    return value


class NotBuildable(Exception):  # noqa: N818
    """The shrinker, or this machine, does not get a model out of transformers."""


def build(name: str, folder: Path) -> bool:
    """Save a tiny random model of an architecture with its tokenizer.

    Returns:
        Whether transformers itself runs it on token ids alone.

    Raises:
        NotBuildable: why not.
    """
    problems: list[tuple[Exception, dict[str, int]]] = []
    for recipe in RECIPES:
        try:
            model = draw(shrink(transformers.CONFIG_MAPPING[name], recipe))
            _try(model)
        except Exception as error:  # noqa: BLE001 what a foreign class does not like
            problems.append((error, recipe))
            continue
        break
    else:
        # it may be one that needs more than token ids: let the extraction say so
        for _, recipe in problems:
            with contextlib.suppress(Exception):
                model = draw(shrink(transformers.CONFIG_MAPPING[name], recipe))
                break
        else:
            error = next(
                (e for e, _ in problems if not isinstance(e, NotBuildable)), problems[0][0]
            )
            raise NotBuildable(f"{type(error).__name__}: {str(error).strip():.160}")
    save(model, folder)
    return len(problems) < len(RECIPES)


def draw(config: Any, seed: int = 0) -> Any:
    """A model with weights larger than the usual initialisation, so that errors show."""
    with torch.device("meta"):
        count = sum(
            p.numel()
            for p in transformers.AutoModel.from_config(copy.deepcopy(config)).parameters()
        )
    if count > PARAMETERS:
        raise NotBuildable(f"{count:,} parameters after shrinking")
    torch.manual_seed(seed)
    model = transformers.AutoModel.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter += 0.15 * torch.randn_like(parameter)
    return model


def _try(model: Any) -> None:
    part = text_part(model)
    ids = torch.tensor([list(range(4, 20))])
    with torch.no_grad():
        output = part(input_ids=ids, output_hidden_states=True, **without_cache(part))
    if not all(torch.isfinite(x).all() for x in output.hidden_states):
        raise ValueError("not finite")


def text_part(model: Any) -> Any:
    return model.get_encoder() if model.config.is_encoder_decoder else model


def without_cache(model: Any) -> dict[str, bool]:
    """The option, for models that have it: some fail while they fill a cache."""
    takes = inspect.signature(model.forward).parameters
    return {"use_cache": False} if "use_cache" in takes else {}


def save(model: Any, folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", 2)]
    )
    model.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]"
    ).save_pretrained(folder)


def texts() -> list[str]:
    """Mixed lengths, some equal, from one word to more than any window that is left."""
    rng = np.random.default_rng(0)
    lengths = [1, 1, 2, 3, 4, 5, 5, 7, 8, 9, 12, 15, 16, 17, 18, 22, 31, 32, 33, 40, 63, 64, 75, 95]
    return [" ".join(WORDS[i] for i in rng.integers(len(WORDS), size=n)) for n in lengths]


def reference(folder: Path, rows: Sequence[str]) -> dict[str, list[list[np.ndarray]]]:
    """Pooled ``hidden_states`` of transformers, every text alone in a fresh model."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    fresh = text_part(transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval())
    pooled: dict[str, list[list[np.ndarray]]] = {pool: [] for pool in POOLS}
    for text in rows:
        inputs = tokenizer(text, truncation=True, max_length=MAX_LENGTH, return_tensors="pt")
        model = copy.deepcopy(fresh)
        with torch.no_grad():
            output = model(
                input_ids=inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                output_hidden_states=True,
                **without_cache(model),
            )
        layers = [x[0].double().numpy() for x in output.hidden_states]
        assert {len(x_TD) for x_TD in layers[1:]} == {inputs["input_ids"].shape[1]}
        pooled["mean"].append([x_TD.mean(0) for x_TD in layers])
        pooled["last"].append([x_TD[-1] for x_TD in layers])
        pooled["first"].append([x_TD[0] for x_TD in layers])
        pooled["max"].append([x_TD.max(0) for x_TD in layers])
    return pooled


def extract(folder: Path, root: Path, *, layer_zero: bool = False) -> ExtractConfig:
    rows = [("ab"[i % 2], text) for i, text in enumerate(texts())]
    write_csv(root / "data" / "train.csv", rows)
    config = ExtractConfig(
        encoder=str(folder),
        dataset=str(root / "data"),
        splits=("train",),
        storage_dtype="float32",
        out=root / f"cache-{layer_zero}",
        layer_zero=layer_zero,
        batch_tokens=300,
        max_length=MAX_LENGTH,
        pool=POOLS,
        device="cpu",
    )
    gaam_cache.extract(config)
    return config


def compare(config: ExtractConfig, expected: dict[str, list[list[np.ndarray]]]) -> float:
    """The largest deviation of a stored state, relative to the norm of its layer."""
    split = gaam_cache.open_cache(config.out)["train"]
    assert split.first_layer == 1 - config.layer_zero
    worst = 0.0
    for pool in POOLS:
        for stored, layers in zip(split.pooled(pool)[:], expected[pool], strict=True):
            alone = np.stack(layers[split.first_layer :])
            assert stored.shape == alone.shape, (stored.shape, alone.shape)
            norm = np.maximum(np.linalg.norm(alone, axis=1), 1e-30)
            worst = max(worst, float((np.linalg.norm(stored - alone, axis=1) / norm).max()))
    return worst


def judge(name: str, root: Path) -> dict[str, Any]:
    """What becomes of one architecture: {"verdict", "about"}; with layer 0 under "zero"."""
    seen: dict[str, Any] = {}
    probe = PROBE

    def spy(forward: Any, *rows: Any, **options: Any) -> Any:
        found = probe(forward, *rows, **options)
        seen["how"] = "layers" if forward.stack is not None else "hidden states"
        seen["mask"] = forward.mask
        seen["batching"] = found.batching
        seen["leaks"] = {k: v for k, v in found.leaks.items() if v < 1e9}
        return found

    sys.modules["gaam_cache.encoders._model"].probe = spy  # type: ignore[attr-defined]
    try:
        seen["runs"] = build(name, root / "encoder")
    except NotBuildable as error:
        return {"verdict": "not buildable", "about": str(error)}
    except Exception as error:  # noqa: BLE001
        return {"verdict": "not buildable", "about": f"{type(error).__name__}: {error!s:.160}"}
    expected: list[Any] = []
    found = _judge(root, seen, expected, layer_zero=False)
    if found["verdict"] == "right":
        zero = _judge(root, {"runs": seen["runs"]}, expected, layer_zero=True)
        found["zero"] = {name: zero[name] for name in ("verdict", "about")}
        found["zero"]["how"] = seen["how"]
    return found


def _judge(
    root: Path, seen: dict[str, Any], expected: list[Any], *, layer_zero: bool
) -> dict[str, Any]:
    """One extraction; ``expected`` is what it is compared with, made by the first."""
    try:
        config = extract(root / "encoder", root, layer_zero=layer_zero)
    except GaamError as error:
        said = "; ".join([error.message, *error.details.values()])
        kind = "wrong" if "another state in its batch" in said else "refused"
        return {"verdict": kind, "about": said, **seen}
    except Exception:  # noqa: BLE001 what must not happen is counted
        return {"verdict": "crashed", "about": traceback.format_exc()[-1500:], **seen}
    try:
        if not expected:
            expected.append(reference(root / "encoder", texts()))
        worst = compare(config, expected[0])
    except Exception as error:  # noqa: BLE001
        about = f"no reference: {type(error).__name__}: {error!s:.200}"
        return {"verdict": "wrong", "about": about, **seen}
    verdict = "right" if worst <= RIGHT else "wrong"
    return {"verdict": verdict, "about": f"{worst:.1e}", **seen}


def in_a_process(name: str, judge: Judge = judge) -> dict[str, Any]:
    """``judge`` in a fork of this process, bounded in memory and time."""
    with tempfile.TemporaryDirectory(prefix="gaam-architecture-") as folder:
        answer = Path(folder) / "answer.json"
        child = os.fork()
        if child == 0:
            try:
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
                signal.alarm(SECONDS)
                warnings.simplefilter("ignore")
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                answer.write_text(json.dumps(judge(name, Path(folder))))
            finally:
                os._exit(0)
        status = os.waitpid(child, 0)[1]
        if answer.exists():
            return json.loads(answer.read_text())
        built = (Path(folder) / "encoder" / "config.json").exists()
        verdict = "crashed" if built else "not buildable"
        return {"verdict": verdict, "about": f"its process ended with status {status}"}


def names() -> list[str]:
    """All that AutoModel maps and that takes token ids."""
    return names_that_take("input_ids")


def walk(chosen: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    import gaam_cache.encoders.text
    import gaam_cache.extraction.extract  # noqa: F401 once, not in every fork

    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory(prefix="gaam-architecture-") as folder:
        judge("bert", Path(folder))  # imports once what every fork needs
    for name in chosen:
        yield name, in_a_process(name)


def table(results: dict[str, dict[str, Any]]) -> str:
    """How many of each."""
    count: collections.Counter[str] = collections.Counter()
    for result in results.values():
        kind = result["verdict"]
        if kind == "right":
            kind += f", {result['batching']}, by {result['how']}"
        elif kind == "refused" and not result["runs"]:
            kind += ", as by transformers itself on token ids alone"
        elif kind == "refused":
            kind += ": " + re.sub(r"[0-9][0-9.e+-]*", "N", result["about"])[-120:]
        count[kind] += 1
        if zero := result.get("zero"):
            by = (
                f", by {zero['how']}" if zero["verdict"] == "right" else f": {zero['about'][-120:]}"
            )
            count[f"layer 0 {zero['verdict']}{by}"] += 1
    lines = [f"{number:4d}  {kind}" for kind, number in sorted(count.items())]
    return "\n".join([f"{len(results):4d}  architectures", *lines])


if __name__ == "__main__":
    main(names, walk, table)
