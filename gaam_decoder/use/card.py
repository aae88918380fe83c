"""The card of an exported decoder, written from its run: what the hub and its visitors read."""

from __future__ import annotations

import re
from typing import Any

from gaam_cache.messages import (
    MOST_CLASSES,
    NOUNS,
    brief,
    front_matter,
    items,
    licences,
    pipes,
    plain,
)
from gaam_cache.store.encoding import Encoding
from gaam_decoder import stats
from gaam_decoder.catalogue import describe_mechanism
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.result import RunResult
from gaam_decoder.use.decoder_config import DecoderConfig
from gaam_decoder.use.evaluation import evaluation

SLOTS = {
    "license": "of this decoder, such as apache-2.0",
    "language": "of the rows that it learned from, such as en",
}
"""What no program can know."""
PIPELINES = {
    "text": "text-classification",
    "audio": "audio-classification",
    "vision": "image-classification",
}
"""How the hub calls what a decoder does with rows of a kind."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def card(run: RunResult, config: DecoderConfig, encoding: Encoding) -> str:
    """A card in Markdown.

    Args:
        run: that is exported.
        config: what is exported of it.
        encoding: how rows are encoded, of which names may be paths.
    """
    known = encoding.portable()
    head = {
        "library_name": "gaam",
        "tags": sorted({"gaam", "attention-decoder", config.attention.partition(":")[0]}),
        "pipeline_tag": PIPELINES.get(known.kind, ""),
        "base_model": _on_hub(encoding.encoder),
        "datasets": list(filter(None, [_on_hub(encoding.rows)])),
    }
    lines = [
        *front_matter(head, SLOTS),
        "",
        f"# {plain(config.attention)} on {plain(brief(known.rows['name']))}",
        "",
        *_what(run, config, known),
        "",
        *_classes(run, config),
        "",
        "## Evaluation",
        "",
        *evaluation(run, config),
        "",
        *_use(known, local=encoding.encoder["path"] is not None),
        "",
        *_limits(run, known),
        "",
        "## Signature",
        "",
        *_signature(run, config),
        "",
        *licences(("the data", "the encoder", "this decoder")),
    ]
    return "\n".join(lines) + "\n"


def _on_hub(source: dict[str, Any]) -> str:
    """The id of an encoder or data set that came from the hub, else nothing."""
    found = source.get("path") is None and source.get("revision") is not None
    return source["name"] if found and HUB_ID.fullmatch(source["name"]) else ""


def _what(run: RunResult, config: DecoderConfig, encoding: Encoding) -> list[str]:
    about = describe_mechanism(config.attention, len(config.layers), config.hidden_size)
    revision = encoding.encoder["revision"]
    encoder = f"encoder: {brief(encoding.label)}"
    encoder += f", revision {revision}" if revision else ", known by the SHA-256 of its files"
    if encoding.imported:
        encoder = f"encoder: {brief(encoding.label)}, run by somebody else; states were imported"
    mechanism = f"mechanism: {config.attention}: {about['summary']}"
    mechanism += f" {about['formula']}" if about["formula"] else ""
    averaged = f"the average of {len(config.seeds)} decoders, each with a seed of its own"
    noun = NOUNS.get(encoding.kind, "rows")
    return [
        f"Classifies {noun} by the states of all layers of a frozen encoder; made with gaam.",
        "",
        *items(
            [
                f"data set: {brief(encoding.rows['name'])}",
                encoder,
                mechanism.replace("``", ""),
                f"head: {config.head}",
                f"layers: {spell_numbers(run.layer_numbers)}, pooled by {config.pooling}, of "
                f"{config.hidden_size:,} features",
                f"{run.parameters['total']:,} parameters, "
                f"{run.parameters['attention']:,} of them in the mechanism",
                averaged if len(config.seeds) > 1 else f"one decoder, of seed {config.seeds[0]}",
            ]
        ),
    ]


def _classes(run: RunResult, config: DecoderConfig) -> list[str]:
    names = config.class_names[:MOST_CLASSES]
    more = len(config.class_names) - len(names)
    cells = [[brief(name)] for name in names]
    header = ["class"]
    if run.evaluated:
        header.append("test rows")
        tested = stats.confusion(run.labels, run.labels, len(config.class_names)).diagonal()
        cells = [[*cell, f"{n:,}"] for cell, n in zip(cells, tested.tolist(), strict=False)]
    below = ["", f"and {more:,} more, in `config.json`"] if more else []
    return ["## Classes", "", *pipes(header, cells, ("class",)), *below]


def _use(encoding: Encoding, *, local: bool) -> list[str]:
    states = "model.predict_states(states)  # (rows, layers, hidden size), as the cache has them"
    said = {"audio": 'model.predict(["a.wav"])', "vision": 'model.predict(["a.png"])'}
    predict = said.get(encoding.kind, 'model.predict(["a text"])')
    named = '"DIR", encoder="FOLDER OR ID"' if local else '"DIR"'
    lines = [
        "## Use",
        "",
        "```python",
        "import gaam_decoder  # hf download USER/NAME --local-dir DIR",
        f"model = gaam_decoder.load({named})",
        states if encoding.imported else predict,
        "```",
        "",
    ]
    if encoding.imported:
        return lines[:-1]
    said_local = ["The encoder must be that one: its files are compared by their SHA-256.", ""]
    return [
        *lines,
        *(said_local if local else []),
        "In a server:",
        "",
        "```python",
        f"model = gaam_decoder.load({named})  # once",
        "def answer(rows: list[str]) -> list[list[float]]:",
        "    return model.predict_proba(rows).tolist()  # as many columns as classes",
        "```",
    ]


def _limits(run: RunResult, encoding: Encoding) -> list[str]:
    train = run.recipe["train_split"]
    rows = run.cache["rows"][train]
    given = f"{sum(run.drawn.values()):,} of {rows:,}" if run.drawn else f"{rows:,}"
    learned = f"learned from split '{brief(train)}', {given} rows"
    learned += f" without fold {run.recipe['fold']}" if run.recipe.get("fold") else ""
    if run.select == "val":
        part = f"{run.drawn['choose']:,}" if run.drawn else f"{100 * run.recipe['val_fraction']:g}%"
        learned += f"; {part} of them chose the epoch"
    said = [
        learned,
        "it knows no other classes: whatever it is given gets one of them",
        "nothing is known of languages, sources and lengths other than those of its rows",
        "probabilities are not calibrated",
    ]
    if encoding.kind == "text":
        said.append(f"texts are cut at {encoding.identity['max_length']:,} tokens")
    return ["## Limits", "", *items(said)]


def _signature(run: RunResult, config: DecoderConfig) -> list[str]:
    signature = config.signature
    torch = brief(str(run.environment.get("torch", "unknown")))
    recipe = [f"{k}={v}" for k, v in signature["recipe"].items() if v not in (None, False)]
    return items(
        [
            f"gaam {signature['gaam']}, torch {torch}",
            f"cache {config.fingerprint[:8]}, run {config.key[:8]}",
            f"decoder {config.attention} + {config.head} head",
            brief(", ".join(recipe), 1000),
            f"seeds {spell_numbers(config.seeds)}",
        ]
    )
