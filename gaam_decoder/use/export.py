"""A finished run -> a folder that the hub takes, with a card for its visitors."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.markdown import (
    MOST_CLASSES,
    NOUNS,
    front_matter,
    items,
    licences,
    pipes,
    plain,
)
from gaam_cache.common.messages import brief, visible
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.store.files import digest_of, replace_folder, sealed_text, write_file
from gaam_decoder import stats
from gaam_decoder.catalogue import describe_mechanism
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.columns import sheet
from gaam_decoder.reports.notes import notes
from gaam_decoder.reports.table import build_tables
from gaam_decoder.runs.result import RunResult
from gaam_decoder.stats.scores.base import percent
from gaam_decoder.use.load import (
    CARD_FILE,
    CONFIG_FILE,
    FORMAT,
    MODEL_FILE,
    OWN_FILES,
    open_decoder,
    read_export,
)
from gaam_decoder.use.predictor import DecoderConfig, Predictions, Predictor

SLOTS = {
    "license": "of this decoder, such as apache-2.0",
    "language": "of the rows that it learned from, such as en",
}
# what the hub says before '-classification', and a row
ROWS = {
    "text": ("text", "a text"),
    "audio": ("audio", "a.wav"),
    "vision": ("image", "a.png"),
}
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
USE = """
```python
import gaam_decoder  # hf download USER/NAME --local-dir DIR
model = gaam_decoder.load("DIR")  # encoder="FOLDER OR ID" where the encoder is a local one
model.{}
```
"""


@dataclass(frozen=True, slots=True)
class DecoderExport:
    """What an export of a run made."""

    path: str
    key: str
    seeds: tuple[int, ...]
    files: int
    bytes: int

    to_dict = asdict

    def in_words(self) -> str:
        text = f"exported to '{shown_path(self.path)}', {_which(self.seeds)}: {self.files} files, "
        text += f"{self.bytes / 1e6:,.1f} MB; licences in {CARD_FILE} are for you to fill in"
        return visible(text)


def _which(seeds: Sequence[int]) -> str:
    return (
        f"of seed {seeds[0]}"
        if len(seeds) == 1
        else f"the average of {len(seeds)} seeds"
    )


def export_run(
    path: str | Path,
    out: str | Path,
    *,
    seed: int | None = None,
    cache: str | Path | None = None,
    overwrite: bool = False,
) -> DecoderExport:
    """Make a folder of a run that holds no path and no name of this machine.

    >>> made = gaam_decoder.export_run(runs[0].path, "news-decoder")

    Args:
        path: folder of the run.
        out: a folder that is not there yet, or is empty.
        seed: whose decoder alone is exported; default: all that finished, averaged.
        cache: folder of its cache; default: what the run says of it.
        overwrite: replace an earlier export.

    Raises:
        NotFoundError: no finished run there.
        ConfigError: a seed or mechanism that cannot be exported, or something in the way.
        CacheError: the run is damaged.
    """
    folder, out = absolute_path(path), absolute_path(out)
    run, config, weights = open_decoder(folder, seed, cache)
    if run is None:
        raise ConfigError(
            "it was exported already", expected="a run", where=str(folder)
        )
    Predictor(config, weights, device="cpu")  # or it cannot be used

    def is_export(there: Path) -> bool:
        return {one.name for one in there.iterdir()} == {*OWN_FILES} and bool(
            read_export(there)
        )

    with replace_folder(folder, out, is_export, overwrite=overwrite) as made:
        whole = {
            name: one.cpu().contiguous() for name, one in weights.items()
        }  # each (S, ...)
        content = save(whole, {"format": "pt"})
        about = {**FORMAT, **config.to_dict(), "sha256_of_weights": digest_of(content)}
        write_file(made / MODEL_FILE, content)
        write_file(made / CONFIG_FILE, sealed_text(about).encode())
        write_file(made / CARD_FILE, card(run, config).encode())
        sizes = [file.stat().st_size for file in made.iterdir()]
    return DecoderExport(str(out), run.key, config.seeds, len(sizes), sum(sizes))


def card(run: RunResult, config: DecoderConfig) -> str:
    plan, train = config.plan.portable(), run.recipe["train_split"]
    mechanism = describe_mechanism(
        config.attention, len(config.layers), plan.hidden_size
    )
    formula = f"{mechanism['summary']} {mechanism['formula'] or ''}".replace("``", "")
    revision = plan.encoder["revision"]
    source = f"revision {revision}" if revision else "known by the SHA-256 of its files"
    source = "run by somebody else; states were imported" if plan.imported else source
    recipe = ", ".join(
        f"{k}={v}" for k, v in run.recipe.items() if v not in (None, False)
    )
    about = [
        f"data set: {brief(plan.dataset_label)}",
        f"encoder: {brief(plan.encoder_label)}, {source}",
        f"mechanism: {config.attention}: {formula}",
        f"head: {config.head}",
        f"layers: {spell_numbers(run.layer_numbers)}, pooled by {run.recipe['pool']}, "
        f"of {plan.hidden_size:,} features",
        f"{run.parameters['total']:,} parameters, {run.parameters['attention']:,} in the mechanism",
        f"seeds: {spell_numbers(config.seeds)}, {_which(config.seeds)}",
        f"recipe: {brief(recipe, 1000)}",
        f"made with gaam {config.gaam}, torch {brief(str(run.environment.get('torch')))}: "
        f"cache {plan.fingerprint[:8]}, run {config.key[:8]}",
    ]
    rows = sum(run.drawn.values()) or run.cache["rows"][train]
    limits = [f"learned from split '{brief(train)}', {rows:,} rows"]
    limits += [
        "whatever it is given gets one of its classes; probabilities are not calibrated"
    ]
    if plan.kind == "text":
        limits += [f"texts are cut at {plan.identity['max_length']:,} tokens"]
    classes, more = (
        plan.class_names[:MOST_CLASSES],
        len(plan.class_names) - MOST_CLASSES,
    )
    states = (
        "predict_states(states)  # (rows, layers, hidden size), as the cache has them"
    )
    task, row = ROWS.get(plan.kind, ("", "a row"))
    head = {
        "library_name": "gaam",
        "tags": sorted(
            {"gaam", "attention-decoder", config.attention.partition(":")[0]}
        ),
        "pipeline_tag": f"{task}-classification" if task else "",
        "base_model": _on_hub(config.plan.encoder),
        "datasets": list(filter(None, [_on_hub(config.plan.dataset)])),
    }
    lines = [
        *front_matter(head, SLOTS),
        f"# {plain(config.attention)} on {plain(brief(plan.dataset_label))}",
        f"Classifies {NOUNS.get(plan.kind, 'rows')} by the states of all layers of a frozen",
        *("encoder; made with gaam.", "", *items(about)),
        *("", f"{len(plan.class_names):,} classes:", "", *items(map(brief, classes))),
        *items([f"and {more:,} more, in config.json"] * (more > 0)),
        *("", "## Evaluation", "", *_evaluation(run, config), "", "## Use"),
        USE.format(states if plan.imported else f'predict(["{row}"])'),
        *("## Limits", "", *items(limits), ""),
        *licences(("the data", "the encoder", "this decoder")),
    ]
    return "\n".join([*lines, ""])


def _on_hub(source: dict[str, Any]) -> str:
    """The id of an encoder or data set that came from the hub, else nothing."""
    found = source.get("path") is None and source.get("revision") is not None
    return source["name"] if found and HUB_ID.fullmatch(source["name"]) else ""


def _evaluation(run: RunResult, config: DecoderConfig) -> list[str]:
    """The table of a report and all that stands below it; what is averaged reaches more."""
    if not run.evaluated:
        return items(
            [
                f"not evaluated: no rows were kept for it; exported: {_which(config.seeds)}"
            ]
        )
    [table], places = (
        build_tables([run], every_candidate=True),
        map(run.seeds.index, config.seeds),
    )
    own_NC = Predictions.of(
        run.logits[[*places]], run.cache["class_names"]
    ).probabilities_NC
    right, shown = percent(stats.accuracy(own_NC.argmax(-1), run.labels)), sheet(table)
    marks = [
        f"as it is exported, {_which(config.seeds)}, it has an accuracy of {right}%"
    ]
    marks += ["LABELS WERE SHUFFLED: what it predicts means nothing"] * run.shuffled
    if fold := run.recipe.get("fold"):
        marks += [
            f"learned without fold {fold}, tested on it; other folds are not here"
        ]
    if run.tuning_seeds:
        seeds = spell_numbers(run.tuning_seeds)
        marks += [
            f"rate and weight decay were chosen on validation rows, by seeds {seeds}"
        ]
    table_of = pipes(shown.header, shown.lines, shown.words)
    return [*table_of, "", *items([*marks, *notes(table)])]
