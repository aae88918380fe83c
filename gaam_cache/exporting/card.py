"""The card of an exported cache: what the hub and its visitors read."""

from __future__ import annotations

from gaam_cache.import_config import is_imported
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
from gaam_cache.store.dtypes import ITEM_BYTES
from gaam_cache.store.plan import Plan

SLOTS = {
    "license": "of the states: what data and encoder allow",
    "source_datasets": "where the rows are from, if that is public",
    "language": "of the texts or sounds, such as en",
}
"""What no program can know."""
SIZES = (("n<1K", 10**3), ("1K<n<10K", 10**4), ("10K<n<100K", 10**5), ("100K<n<1M", 10**6))
"""How the hub calls numbers of rows, and below which each ends."""


def card(plan: Plan) -> str:
    """A card in Markdown.

    Args:
        plan: of the exported cache, which names no path.
    """
    rows = sum(plan.rows.values())
    size = next((name for name, end in SIZES if rows < end), "n>1M")
    head = {
        "pretty_name": f"States of {brief(plan.dataset['name'])}",
        "tags": ["gaam", "embeddings", "hidden-states"],
        "size_categories": [size],
        "configs": [{"config_name": "default", "data_files": _data_files(plan)}],
    }
    return "\n".join([*front_matter(head, SLOTS), "", *_body(plan)]) + "\n"


def _data_files(plan: Plan) -> list[dict[str, str]]:
    return [{"split": split, "path": f"shards/{split}-*.h5"} for split in plan.rows]


def _body(plan: Plan) -> list[str]:
    name = brief(plan.dataset["name"])
    shape = f"{plan.num_layers} layers x {plan.hidden_size}, {plan.storage_dtype}"
    lines = [f"# States of {plain(name)}", "", *_about(plan), "", f"Each row: {shape}.", ""]
    size = plan.num_layers * plan.hidden_size * len(plan.pooling) * ITEM_BYTES[plan.storage_dtype]
    lines += pipes(
        ("split", "rows", "MB of states", "labels"),
        [
            (split, f"{n:,}", f"{n * size / 1e6:,.1f}", "no" if split in plan.unlabelled else "yes")
            for split, n in plan.rows.items()
        ],
        ("split", "labels"),
    )
    named = [brief(one) for one in plan.class_names[:MOST_CLASSES]]
    more = len(plan.class_names) - len(named)
    lines += ["", f"{len(plan.class_names):,} classes; a label is the number of one, from 0:", ""]
    lines += [f"{number}. {plain(one)}" for number, one in enumerate(named)]
    lines += [f"\nand {more:,} more, in `cache.json`"] if more else []
    return [*lines, "", *_use(plan), "", *_limits(plan), "", *licences(("the data", "the encoder"))]


def _about(plan: Plan) -> list[str]:
    """What was encoded with what."""
    identity, encoder, dataset = plan.fingerprint_fields["encoder"], plan.encoder, plan.dataset
    what = NOUNS.get(encoder["kind"], "rows")
    of_encoder = f"encoder: {brief(plan.encoder_label)}"
    of_encoder += f", revision {encoder['revision']}" if encoder["revision"] else ""
    of_data = f"data set: {brief(dataset['name'])}"
    of_data += f", revision {brief(dataset['revision'])}" if dataset.get("revision") else ""
    how = f"computed in {identity['dtype']}"
    how += f", texts cut at {identity['max_length']:,} tokens" if encoder["kind"] == "text" else ""
    if is_imported(encoder):
        how = "computed elsewhere and imported"
    said = [
        of_data,
        of_encoder,
        f"pooled by {', '.join(plan.pooling)}; {how}",
        f"fingerprint {plan.fingerprint}",
        f"made with gaam {brief(str(plan.created_with.get('gaam', 'unknown')))}",
    ]
    if prompt := identity.get("prompt"):
        said.append(f"prompt around every text: {brief(str(prompt), 500)}")
    if plan.columns:
        said.append(f"kept columns, as they were in the data: {', '.join(plan.columns)}")
    intro = f"States of a frozen encoder on {what}: of every layer one pooled vector for each row."
    return [intro, "", *items(said)]


def _use(plan: Plan) -> list[str]:
    split = next(iter(plan.rows))
    return [
        "## Use",
        "",
        "Download the folder, check every byte of it, train on it, or read it:",
        "",
        "```sh",
        "hf download USER/NAME --repo-type dataset --local-dir cache",
        "gaam verify cache",
        "gaam train --cache cache --attn gaam --attn none",
        "```",
        "",
        "```python",
        f'gaam_cache.open_cache("cache")["{split}"].embeddings[:8]  # rows, layers, hidden size',
        f'datasets.load_dataset("USER/NAME", split="{split}")',
        "```",
        "",
        "The shards are plain HDF5, bfloat16 as its bits; FORMAT.md says what lies in them.",
    ]


def _limits(plan: Plan) -> list[str]:
    said = [
        "states are made of the rows: who has encoder and states may guess what a row was, so that "
        "terms and privacy of the data hold for them too",
        "the rows themselves are not here",
    ]
    for split, others in plan.shared_texts.items():
        said += [
            f"{count:,} rows of {split} have a row of {other} that is the same"
            for other, count in others.items()
        ]
    return ["## Limits", "", *items(said)]
