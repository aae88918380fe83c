"""One self-contained page: tables, pictures, provenance. It asks nothing of any network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TextIO

import gaam_cache
from gaam_cache.messages import brief
from gaam_cache.store.digest import short_digest
from gaam_decoder import stats
from gaam_decoder.reports import finals
from gaam_decoder.reports.answer import claims, conclusion
from gaam_decoder.reports.notes import notes, versions, warnings
from gaam_decoder.reports.pictures.pictures import DETAILED, pictures
from gaam_decoder.reports.table import SEPARATE, Format, Table
from gaam_decoder.reports.writing import learned_table, sheets
from gaam_decoder.reports.writing.numbers import percent
from gaam_decoder.reports.writing.page import STYLE, escape
from gaam_decoder.reports.writing.page_parts import breakable, figure, list_html, part, sheet_html
from gaam_decoder.reports.writing.section import Section, sections

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""The browser is told to load nothing, even if a name in the data should contain an address."""

ALIASES = ("htm", "web")


class Html(Format):
    """A page for a phone, a screen and paper, light and dark."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write the page."""
        title = "gaam report"
        stream.write(
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f'<link rel="icon" href="data:,"><title>{title}</title>'
            f"<style>{STYLE}</style></head>\n<body><header><h1>{title}</h1>\n"
        )
        if len(tables) > 1:
            stream.write(f'<p class="warn">{len(tables)} separate tables: {SEPARATE}.</p><nav><ul>')
            for number, table in enumerate(tables, 1):
                stream.write(f'<li><a href="#t{number}">{escape(table.title())}</a></li>')
            stream.write("</ul></nav>")
        stream.write("</header>\n<main>\n")
        detailed = max(1, DETAILED // len(tables))
        for number, table in enumerate(tables, 1):
            for text in _section(table, number, detailed):
                stream.write(text + "\n")
        stream.write(
            f'</main><footer class="muted">Made by gaam {gaam_cache.__version__} from finished '
            "runs; every number is computed from their test logits.</footer></body></html>\n"
        )


def _section(table: Table, number: int, detailed: int) -> Iterator[str]:
    """A table, with pictures of its ``detailed`` most accurate rows."""
    key = f"t{number}"
    by_kind: dict[str, list[str]] = {}
    for count, picture in enumerate(pictures(table, detailed)):
        by_kind.setdefault(picture.kind, []).append(figure(picture, f"{key}p{count}"))
    yield f'<section aria-labelledby="{key}"><h2 id="{key}">{escape(table.title())}</h2>'
    if lead := conclusion(table):
        yield f'<p class="lead">{escape(lead)}.</p>'
    if table.rows:
        yield _facts(table)
    yield from (f'<p class="warn">{escape(text)}</p>' for text in warnings(table))
    if table.rows:
        yield f"<h3>Test {escape(table.unit.score.title)}</h3>"
        yield sheet_html(sheets.accuracies(table))
        if hidden := table.left_out():
            yield f'<p class="muted">{escape(hidden)}.</p>'
    if final := [final.in_words() for final in table.finals]:
        yield part(finals.HEADING.capitalize(), list_html(final))
    if compared := sheets.differences(table):
        made = [table.comparisons[place] for place in table.places]
        found = [one.claim.significant for one in made if one is not None]
        yield f"<h3>Differences to {escape(brief(str(table.baseline)))}</h3>"
        yield list_html(claims(table)) or (
            f"<p>No claim: fewer than {stats.LEAST_SEEDS} paired seeds.</p>"
        )
        yield sheet_html(compared, found)
    yield _grid(by_kind, "accuracy", "differences")
    yield part("How to read this", list_html(notes(table)))
    if "curves" in by_kind:
        yield part("Learning curves", _grid(by_kind, "curves"))
    if len(table.rows) > detailed:
        most = "most accurate" if detailed == 1 else f"{detailed} most accurate"
        below = f"The pictures below are of the {most} of {len(table.rows)} decoders."
        yield f'<p class="muted">{below}</p>'
    if "attention" in by_kind:
        yield part("What the mechanisms attend to", _grid(by_kind, "attention"))
    if learned := sheets.learned(table):
        body = f"{sheet_html(learned)}\n{list_html(learned_table.notes(table.rows))}"
        yield part("Learned parameters", body + _grid(by_kind, "learned"))
    if "confusion" in by_kind:
        yield part("Confusion between classes", _grid(by_kind, "confusion"))
    for place, section in enumerate(sections(table)):
        yield _further(section, f"{key}s{place}")
    yield part("Provenance", provenance(table)) + "</section>"


def _further(section: Section, key: str) -> str:
    heading = f"<h3>{escape(section.heading)}</h3>"
    lead = f"<p>{escape(section.lead[0].upper() + section.lead[1:])}.</p>"
    body = "".join(sheet_html(sheet) for sheet in section.sheets)
    body += list_html(section.lines)
    body += f"<pre><code>{escape(section.verbatim)}</code></pre>" if section.verbatim else ""
    drawn = [figure(picture, f"{key}p{i}") for i, picture in enumerate(section.pictures)]
    body += f'<div class="figures">{"".join(drawn)}</div>' if drawn else ""
    if section.folded and body and not section.verbatim:
        return f"<details><summary>{heading}{lead}</summary>{body}</details>"
    return f"{heading}{lead}{body}"


def _facts(table: Table) -> str:
    fewest = min(len(row.scores.seeds) for row in table.rows)
    most = max(len(row.scores.seeds) for row in table.rows)
    facts = {
        "decoders": str(len(table.rows)),
        "seeds": str(most) if fewest == most else f"{fewest} to {most}",
        "test rows": f"{table.num_test_rows:,}",
        "majority class alone": f"{percent(table.majority_accuracy)}%",
        "epoch chosen by": ", ".join(sorted({brief(row.select, 40) for row in table.rows})),
        "cache": short_digest(table.cache["fingerprint"]),
    }
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in facts.items()
    )
    return f'<dl class="facts">{items}</dl>'


def _grid(by_kind: dict[str, list[str]], *kinds: str) -> str:
    found = [figure for kind in kinds for figure in by_kind.get(kind, ())]
    return f'<div class="figures">{"".join(found)}</div>' if found else ""


MOST_NAMES = 100
"""Classes that are listed."""


def provenance(table: Table) -> str:
    """A table of what the numbers of a table come from."""
    cache = table.cache
    facts = {
        "data set": brief(cache["dataset"]),
        "encoder": brief(cache["encoder"]),
        "classes": _listed(cache["class_names"]),
        "cache fingerprint": cache["fingerprint"],
        "made with": f"{versions(table)}; report by gaam {gaam_cache.__version__}",
        **_recipes(table),
        "runs": ", ".join(brief(run.path.name) for run in table.all_runs()),
    }
    rows = "".join(
        f'<tr><th scope="row">{breakable(name)}</th><td class="word long">{escape(value)}</td></tr>'
        for name, value in facts.items()
    )
    return (
        '<div class="scroll" role="region" tabindex="0" aria-label="Provenance"><table>'
        '<caption class="hidden">Where these numbers come from</caption>'
        '<thead><tr><th scope="col" class="word">what</th><th scope="col" class="word">value</th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _recipes(table: Table) -> dict[str, str]:
    """What all rows share, and for each row what it has otherwise."""
    found = [row.recipe for row in table.rows] + [final.recipe for final in table.finals]
    recipes = [{k: v for k, v in recipe.items() if v is not None} for recipe in found]
    shared = {
        key: value
        for key, value in recipes[0].items()
        if all(key in recipe and recipe[key] == value for recipe in recipes)
    }
    spelt = {"recipe": _spell(shared)}
    labels = [*table.labels(), *(f"the final model {final.label}" for final in table.finals)]
    for label, recipe in zip(labels, recipes, strict=True):
        if own := {key: value for key, value in recipe.items() if key not in shared}:
            spelt[f"recipe of {label}"] = _spell(own)
    return spelt


def _spell(recipe: dict[str, object]) -> str:
    return ", ".join(brief(f"{key}={value}") for key, value in recipe.items())


def _listed(names: Sequence[str]) -> str:
    """Names, or the first of very many."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(brief(name, 60) for name in names[:MOST_NAMES]) + more
