"""The headline encoder on a GPU: Llama-2-13B's architecture, random bfloat16 weights.

    python -m tests.benchmarks.bench_gpu [--rows 6144] [--json FILE] [--tiny]

The real pipeline, from rows to published shards, on random words whose number follows AG News;
beside it the published loop, one text at a time with ``output_hidden_states``. There are three
shards, because one is written while the next is encoded. The model is written to the current folder
first (26 GB), and loaded from there as any other. Prints tokens per second, the share of the
measured bfloat16 matrix-product ceiling, peak memory above the weights, padding, and the projected
time for all of AG News. ``--tiny`` runs a small model on whatever device there is: it shows that the
script works and says nothing about speed. docs/how-to/llama-13b.md has its tokens per second.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import gaam_cache
from gaam_cache.common import devices
from gaam_cache.config import ExtractConfig
from tests.benchmarks._machine import (
    describe,
    matrix_product_flops,
    needs_gpu,
    synchronise,
)
from tests.benchmarks.bench_extract import flops_per_token
from tests.benchmarks.figures import Figures

LOG_MEAN, LOG_SD = 3.92, 0.31
"""Of the token counts of 4,999 AG News texts under MiniLM's tokenizer (mean 53)."""
AG_NEWS_ROWS = 127_600
LLAMA_2_13B = {
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
TINY = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}


def random_model(
    shape: dict[str, int], device: torch.device, dtype: torch.dtype
) -> Any:
    """A Llama with random weights, made on the device."""
    config = transformers.LlamaConfig(**cast(Any, shape))
    torch.set_default_dtype(dtype)
    with device:
        model = transformers.AutoModel.from_config(config)
    torch.set_default_dtype(torch.float32)
    return model.eval()


def lengths_of_ag_news(rows: int) -> np.ndarray:
    """Tokens of so many texts, drawn as those of AG News are spread."""
    drawn = np.random.default_rng(1).lognormal(LOG_MEAN, LOG_SD, rows)
    return drawn.astype(int) + 1


def write_model(folder: Path, shape: dict[str, int], device: torch.device) -> Any:
    """A random Llama in bfloat16, and a tokenizer of as many words; the model."""
    model = random_model(shape, device, torch.bfloat16)
    model.save_pretrained(folder)
    words = {f"w{number}": number for number in range(shape["vocab_size"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="w0", model_max_length=4096
    ).save_pretrained(folder)
    return model


def write_rows(file: Path, lengths: np.ndarray, vocab_size: int) -> None:
    """Texts of so many random words, in two classes."""
    generator = np.random.default_rng(0)
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("label", "text"))
        for row, length in enumerate(lengths):
            words = generator.integers(3, vocab_size, length)
            writer.writerow(("ab"[row % 2], " ".join(f"w{word}" for word in words)))


@torch.no_grad()
def one_at_a_time(model: Any, lengths: np.ndarray) -> float:
    """The published loop; tokens per second."""
    synchronise(model.device)
    start = time.perf_counter()
    for length in lengths:
        tokens = torch.randint(
            3, model.config.vocab_size, (1, int(length)), device=model.device
        )
        output = model(input_ids=tokens, output_hidden_states=True)
        torch.stack([h[0].mean(0) for h in output.hidden_states[1:]]).float().cpu()
    return float(lengths.sum()) / (time.perf_counter() - start)


def measure(
    folder: Path,
    shape: dict[str, int],
    lengths: np.ndarray,
    batch_tokens: int | None,
    figures: Figures,
) -> None:
    """All figures, of a model and rows that are written to a folder."""
    device = devices.resolve_device("auto")
    figures.add("machine", describe(device))
    figures.add("rows", len(lengths))
    cuda = device.type == "cuda"
    (folder / "rows").mkdir()
    write_rows(folder / "rows" / "train.csv", lengths, shape["vocab_size"])
    model = write_model(folder / "model", shape, device)
    figures.add("parameters", sum(p.numel() for p in model.parameters()))
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    # a rehearsal measures nothing, and need not take long for it
    size = 256 if shape is TINY else None
    ceiling = matrix_product_flops(device, torch.bfloat16, size)
    figures.add("ceiling_tflops", ceiling / 1e12)
    one_at_a_time(model, lengths[:8])  # warm up
    loop = one_at_a_time(model, lengths[:64])
    figures.add("one_at_a_time_tokens_per_second", loop)
    flops = flops_per_token(model, float((lengths**2).sum() / lengths.sum()))
    del model
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    config = ExtractConfig(
        encoder=str(folder / "model"),
        dataset=str(folder / "rows"),
        splits=("train",),
        dtype="bfloat16",
        out=folder / "cache",
        batch_tokens=batch_tokens,
    )
    summary = gaam_cache.extract(config)
    rate = summary.tokens / summary.seconds
    peak = torch.cuda.max_memory_allocated(device) - weights if cuda else None
    figures.add("tokens_per_second", rate)
    figures.add("ratio", rate / loop)
    figures.add("share_of_ceiling", rate * flops / ceiling)
    figures.add("batches", summary.batching)
    figures.add("proof_deviation", summary.deviation)
    figures.add("padding_share", summary.padding_share)
    figures.add("peak_memory_above_weights_gb", peak and peak / 1e9)
    write_share = summary.write_seconds / summary.seconds
    figures.add("write_share_beside_the_encoder", write_share)
    hours = AG_NEWS_ROWS * float(lengths.mean()) / rate / 3600
    figures.add("projected_ag_news_hours", hours)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=6144)
    parser.add_argument("--batch-tokens", type=int)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not arguments.tiny:
        needs_gpu()
    shape = TINY if arguments.tiny else LLAMA_2_13B
    lengths = lengths_of_ag_news(arguments.rows)
    with tempfile.TemporaryDirectory(dir=".") as name:
        figures = Figures(arguments.json)
        measure(Path(name), shape, lengths, arguments.batch_tokens, figures)


if __name__ == "__main__":
    main()
