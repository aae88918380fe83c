"""What an extraction has done so far, and its summary for people.

``ExtractionStats`` counts while shards are made; ``ExtractSummary`` describes the end.

N rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple, Self

import numpy as np

from gaam_cache.common.messages import counted, join_first, size_in_words, visible
from gaam_cache.common.paths import shown_path
from gaam_cache.encoders.base import Inputs
from gaam_cache.extraction.job import Job
from gaam_cache.sources.base import TOLERATED_SHARE
from gaam_cache.store.files import short_digest
from gaam_cache.store.plan import Plan
from gaam_cache.store.records import Batching

MERGED_BY_MAX = ("deviation", "seconds")
"""Fields whose largest value describes several workers together."""
MERGED_BY_MIN = ("batching", "smaller_batches")
"""Fields whose smallest value describes several workers together. The names of the
batchings are in alphabetical order from the strictest to the cheapest."""
PLAN_FIELDS = ("fingerprint", "num_layers", "hidden_size", "rows", "storage_dtype")
ENCODER_FIELDS = ("dtype", "max_length", "noun", "unit", "acts_causal")
MAX_UNKNOWN_SHARE = 0.05
"""Share of unknown tokens above which rows lose what tells them apart."""
MAX_TWIN_SHARE = 0.5
"""Share of twins among the distinct rows above which gaam looks for a reason."""
MAX_SHOWN_LAYERS = 3  # layers that a warning names
CAUSAL_FIRST_TOKEN = (
    "this encoder reads from left to right, and the first token sees no other"
)
OTHER_ENCODER = "choose an encoder that knows their script and language"
BATCHING_DESCRIPTIONS = {
    "padded": "padded; a {noun}'s states are the same alone and in a batch",
    "equal lengths": "of equal length only: padding moves this encoder's states",
    "alone": "of one {noun}: neighbours move this encoder's states",
}


class Reason(NamedTuple):
    """A likely reason why rows have equal states, and what the user can do."""

    cause: str
    remedy: str


@dataclass(kw_only=True, slots=True)
class ExtractionStats:
    """Counts of what was done, and of rows that may not be what they seem.

    The names of the fields are keys of the JSON summary.
    """

    shards_made: int = 0  # shards that this run itself published
    rows_made: int = 0  # rows that were encoded, or whose states were copied
    tokens: int = 0  # tokens of these rows, without padding
    padded_tokens: int = 0  # the same with padding
    truncated: int = 0  # rows that were cut at the maximum length
    own_tokens: int = 0
    """Tokens that come from the texts of the rows, without the special tokens that the
    tokenizer adds; 0 for an encoder that does not count them."""
    unknown_tokens: int = 0  # own tokens that the tokenizer does not know
    unread: int = 0  # rows without any token that the tokenizer knows
    doubled: dict[str, int] = field(default_factory=dict)
    """Special token -> rows that hold it twice."""
    distinct: int = 0  # rows whose content no earlier row of their shard has
    twins: dict[str, int] = field(default_factory=dict)
    """Pooling -> distinct rows that have the state of another row, up to rounding."""
    flat: dict[str, int] = field(default_factory=dict)
    """Pooling and layer -> number of shards whose rows all have one state there."""
    coarse: dict[str, str] = field(default_factory=dict)
    """Pooling and layer -> what the layer loses by rounding, in one of the shards."""
    proven: int = 0  # rows that were encoded again, alone, before they were published
    deviation: float = 0.0
    """Largest ``|state - state alone| / |state alone|`` in any layer of proven rows."""
    bytes: int = 0  # size of the shard files
    seconds: float = 0.0
    """Wall time without loading the encoder; with several workers it includes their
    start."""
    write_seconds: float = 0.0
    """Time to check, hash and write shards, mostly while the encoder is at work."""
    batching: Batching | None = None  # which rows may share a batch, as measured
    smaller_batches: int | None = None
    """Most tokens of a batch at the end, if the memory was too small for the first
    limit; else None."""

    def add(self, other: ExtractionStats) -> None:
        """Merge the counts of another worker into these; ``other`` is not changed."""
        for stats_field in fields(ExtractionStats):
            name = stats_field.name
            merged = _merge(name, getattr(self, name), getattr(other, name))
            setattr(self, name, merged)

    def count_inputs(self, inputs: Inputs) -> None:
        """Add some rows to the counts.

        Counted are rows that were cut, tokens of the text itself, those of them that
        the tokenizer does not know, rows without a known token, and rows that have a
        special token twice.

        Args:
            inputs: the rows as the encoder's tokenizer prepared them.
        """
        self.truncated += sum(inputs.truncated)

        # only encoders with a tokenizer count tokens; the arrays of others are empty
        own_tokens_N = np.asarray(inputs.num_own_tokens)
        unknown_tokens_N = np.asarray(inputs.num_unknown_tokens)
        self.own_tokens += int(own_tokens_N.sum())
        self.unknown_tokens += int(unknown_tokens_N.sum())

        # a row without a token, or with unknown tokens only, says nothing to the model
        has_no_known_token_N = unknown_tokens_N == own_tokens_N
        self.unread += int(has_no_known_token_N.sum())

        for token, num_rows in inputs.rows_by_doubled_token.items():
            rows_so_far = self.doubled.get(token, 0)
            self.doubled[token] = rows_so_far + num_rows

    @property
    def unknown_share(self) -> float:
        """Share of the texts' tokens that are unknown to the tokenizer."""
        return self.unknown_tokens / max(1, self.own_tokens)

    @property
    def padding_share(self) -> float:
        """Share of the encoded positions that were padding; 0 before any row."""
        if not self.padded_tokens:
            return 0.0
        return 1 - self.tokens / self.padded_tokens

    def likely_reason(self, pooling: str, max_length: int, *, causal: bool) -> Reason:
        """Why rows of different content may have the same state, and what to do.

        The counts decide. Several reasons become one, with their texts joined.

        Args:
            pooling: of the states.
            max_length: tokens at which rows are cut.
            causal: whether the encoder reads from left to right.
        """
        reasons = []

        # what tells rows apart may be in words that the tokenizer does not know
        if self.unknown_share > MAX_UNKNOWN_SHARE:
            share = self.unknown_share
            cause = f"{share:.0%} of their tokens are unknown to the tokenizer"
            reasons.append(Reason(cause, OTHER_ENCODER))
        elif 2 * self.unread > self.rows_made:
            share = self.unread / self.rows_made
            cause = f"the tokenizer makes no token of {share:.0%} of them"
            reasons.append(Reason(cause, OTHER_ENCODER))

        # rows that begin with the same words may differ only where they are cut off
        if 2 * self.truncated > self.rows_made:
            share = self.truncated / self.rows_made
            cause = (
                f"{share:.0%} of the rows are cut at {max_length:,}, "
                "where they may not differ yet"
            )
            remedy = "leave out what all begin with, or let more of them be read"
            reasons.append(Reason(cause, remedy))
        # the first token is the same in most rows, and it sees no other token
        if pooling == "first" and causal:
            reasons.append(Reason(CAUSAL_FIRST_TOKEN, "--pool mean or last"))
        if not reasons:
            remedy = (
                "look at the rows and at what one becomes (gaam extract --dry-run), or "
                "choose another encoder"
            )
            cause = "neither unknown tokens nor cut rows explain it"
            reasons.append(Reason(cause, remedy))
        return Reason(
            cause="; ".join(reason.cause for reason in reasons),
            remedy=", or ".join(reason.remedy for reason in reasons),
        )

    def doubts(
        self, *, noun: str, max_length: int, causal: bool, storage_dtype: str
    ) -> list[str]:
        """Warning lines about suspicious rows.

        Rows are suspicious if many of their tokens are unknown, if special tokens stand
        twice, if a different row has the same states (a twin), or if all rows of a
        shard have the same state in a layer, exactly or after rounding.

        Args:
            noun: the word for a row in messages, such as "text".
            max_length: tokens at which rows are cut.
            causal: whether the encoder reads from left to right.
            storage_dtype: type to which states are rounded.
        """
        return [
            *self._doubts_of_tokens(noun),
            *self._doubts_of_twins(noun, max_length, causal=causal),
            *self._doubts_of_layers(noun, storage_dtype),
        ]

    def _doubts_of_tokens(self, noun: str) -> list[str]:
        """Lines about unknown tokens, and about special tokens that a row has twice.

        ``noun`` is the word for a row in messages, such as "text".
        """
        lines = []
        # a few rows of either kind are no reason for a warning
        num_tolerated = TOLERATED_SHARE * self.rows_made
        # ``unread`` counts the rows without any token that the tokenizer knows
        if self.unread > num_tolerated or self.unknown_share > MAX_UNKNOWN_SHARE:
            lines.append(
                f"{self.unknown_share:.1%} of all tokens are unknown to the encoder's "
                f"tokenizer, and {self.unread:,} of {self.rows_made:,} rows hold no "
                f"other: their meaning is lost; {OTHER_ENCODER}"
            )
        # ``doubled`` has, for each special token, how many rows hold it twice
        num_doubled = max(self.doubled.values(), default=0)
        if num_doubled > num_tolerated:
            tokens = ", ".join(visible(token) for token in self.doubled)
            lines.append(
                f"special tokens stand twice at the start or end of {num_doubled:,} "
                f"of {self.rows_made:,} rows, which moves their states: {tokens}; the "
                "tokenizer adds them to every text: leave them out of the "
                f"{noun}s and of --prompt"
            )
        return lines

    def _doubts_of_twins(
        self, noun: str, max_length: int, *, causal: bool
    ) -> list[str]:
        """Lines about twins: rows that differ, but have the same state in a pooling.

        See ``doubts`` for the arguments.

        Returns:
            A line for every pooling with many twins.
        """
        lines = []
        for pooling, num_twins in self.twins.items():
            twins = f"{num_twins:,} of {self.distinct:,} {noun}s that differ have"
            # the first token of a causal encoder sees nothing of its row, so that even
            # a single twin shows that the pooling is wrong
            if pooling == "first" and causal:
                lines.append(
                    f"{CAUSAL_FIRST_TOKEN}: {twins} the state of another (first); "
                    "--pool mean or last read all of them"
                )
            elif num_twins > MAX_TWIN_SHARE * self.distinct:
                reason = self.likely_reason(pooling, max_length, causal=causal)
                lines.append(
                    f"{twins} the state of another ({pooling}): {reason.cause}; "
                    f"{reason.remedy}"
                )
        return lines

    def _doubts_of_layers(self, noun: str, storage_dtype: str) -> list[str]:
        """Lines about layers that are the same in all rows, and about lost digits.

        ``flat`` has the layers in which all rows of a shard have one state. ``coarse``
        has, for layers that lose digits by rounding, what they lose.

        Args:
            noun: the word for a row in messages, such as "text".
            storage_dtype: type to which states are rounded.
        """
        lines = []
        if self.flat:
            layers = join_first(list(self.flat), MAX_SHOWN_LAYERS, "; ")
            lines.append(
                f"in some layers all {noun}s have the same state, from which nothing "
                f"can be read: {layers}; leave such layers out (--layers), or take "
                "another --pool"
            )
        if self.coarse:
            losses = [f"{layer}: {loss}" for layer, loss in self.coarse.items()]
            shown_losses = join_first(losses, MAX_SHOWN_LAYERS, "; ")
            lines.append(
                f"{storage_dtype} rounds away part of what tells {noun}s apart "
                f"({shown_losses}); --storage-dtype float32 and a new --out keep it"
            )
        return lines


def _merge(name: str, first: Any, second: Any) -> Any:
    """Merge the values that two workers have for one field of their counts.

    Dictionaries are merged key by key. Fields in ``MERGED_BY_MIN`` keep the smallest
    value, those in ``MERGED_BY_MAX`` the largest; all others are added up.

    Args:
        name: the name of the field.
        first: value of one worker.
        second: value of the other.
    """
    # dictionaries of numbers or of texts
    if isinstance(first, dict):
        merged = first | second
        for key in first.keys() & second.keys():
            # a text describes an example, and one example is enough
            if not isinstance(first[key], str):
                merged[key] = first[key] + second[key]
        return merged
    if name in MERGED_BY_MIN:
        # a worker that measured nothing has None
        measured = [value for value in (first, second) if value is not None]
        return min(measured, default=None)
    if name in MERGED_BY_MAX:
        return max(first, second)
    return first + second


@dataclass(kw_only=True, slots=True)
class ExtractSummary(ExtractionStats):
    """What an extraction did."""

    path: str
    fingerprint: str
    encoder: str
    dtype: str  # type of the encoder's arithmetic, also if 'auto' was configured
    storage_dtype: str
    num_layers: int
    hidden_size: int
    rows: dict[str, int]  # by split
    shards: int
    max_length: int
    noun: str  # what people call a row
    unit: str  # what is counted as tokens
    acts_causal: bool | None
    """Whether no state depends on later tokens of its row, as measured; None if it was
    not measured."""
    workers: int = 1
    missing: int = 0  # shards that other workers are making
    made_by: str | None = None  # which workers make the missing shards
    states_from: str | None = None  # the cache whose states were copied, if they were
    skipped: dict[str, int]
    """Split -> empty rows that skip-empty left out, if there are any."""
    without_label: dict[str, int]
    """Split -> rows that skip-unlabelled left out, if there are any."""

    @classmethod
    def of_job(
        cls,
        job: Job,
        plan: Plan,
        stats: ExtractionStats,
        *,
        missing: int,
        made_by: str | None,
    ) -> Self:
        """Summarise a job that is done, or whose missing shards other workers make.

        Args:
            job: the extraction.
            plan: of its cache.
            stats: what this process did.
            missing: number of shards that other workers are making.
            made_by: which workers these are; None where no shard is missing.
        """
        # a run that made no shard has measured no batching: the plan records it
        counts = asdict(stats)
        if counts["batching"] is None:
            counts["batching"] = plan.batching
        skipped = {
            split: rows.num_skipped
            for split, rows in job.rows.items()
            if rows.num_skipped
        }
        without_label = {
            split: rows.num_without_label
            for split, rows in job.rows.items()
            if rows.num_without_label
        }
        states_from = job.config.states_from
        return cls(
            path=str(job.config.out),
            states_from=None if states_from is None else str(states_from),
            encoder=job.encoder.label,
            shards=plan.num_shards,
            **{name: getattr(plan, name) for name in PLAN_FIELDS},
            **{name: getattr(job.encoder, name) for name in ENCODER_FIELDS},
            missing=missing,
            made_by=made_by,
            skipped=skipped,
            without_label=without_label,
            **counts,
        )

    def to_dict(self) -> dict[str, object]:
        """JSON values: all fields, and the share of padding."""
        return asdict(self) | {"padding_share": self.padding_share}

    def in_words(self) -> str:
        """The summary in lines for people: a headline, then a line for each entry."""
        entries = {
            "encoder": self._encoder_in_words(),
            "rows": _counts_in_words(self.rows),
        }
        if self.skipped:
            entries["left out"] = _counts_in_words(self.skipped)
        if self.without_label:
            counts = _counts_in_words(self.without_label)
            entries["no label"] = f"{counts} left out"
        entries["fingerprint"] = short_digest(self.fingerprint)
        if self.shards_made:
            entries |= self._run_in_words()
        else:
            entries["this run"] = "nothing to do"
        lines = [f"  {name:<12} {text}" for name, text in entries.items()]
        return "\n".join([self._state_in_words(), *lines])

    def _state_in_words(self) -> str:
        """Whether the cache is complete; if not, who makes the missing shards."""
        cache = f"the cache in '{visible(shown_path(self.path))}'"
        if not self.missing:
            return f"{cache} is complete"
        return (
            f"{cache} lacks {self.missing:,} of {self.shards:,} shards, which others "
            f"are making: {self.made_by}; the last to finish says that it is complete"
        )

    def _encoder_in_words(self) -> str:
        """Name, shape and arithmetic of the encoder, and where it cuts texts."""
        words = (
            f"{visible(self.encoder)}, {counted(self.num_layers, 'layer')} x "
            f"{self.hidden_size}, computed in {self.dtype}"
        )
        if self.unit == "tokens":
            words += f", cuts at {self.max_length:,} tokens"
        return words

    def _run_in_words(self) -> dict[str, str]:
        """What this run did: label of a line -> its text."""
        if self.states_from is not None:
            words = (
                f"{self._work_in_words()}, states copied from "
                f"'{visible(shown_path(self.states_from))}' in "
                f"{self.seconds:.1f} s, {size_in_words(self.bytes)}; nothing was "
                "encoded"
            )
            return {"this run": words}
        # ``of_job`` has set the batching: for a summary it is never None
        batches = BATCHING_DESCRIPTIONS[self.batching or "padded"]
        entries = {
            "this run": self._speed_in_words(),
            "batches": batches.format(noun=self.noun),
        }
        if self.smaller_batches is not None:
            limit = f"{self.smaller_batches:,} {self.unit}"
            entries["memory"] = f"too little for batches above {limit}"
        entries["proof"] = (
            f"{counted(self.proven, 'row')} encoded again alone, "
            f"off by at most {self.deviation:.1e} of a layer's norm"
        )
        if self.truncated:
            limit = f"{self.max_length} {self.unit}"
            entries["truncated"] = f"{counted(self.truncated, 'row')} at {limit}"
        if self.unknown_tokens:
            share = f"{self.unknown_share:.2%}"
            entries["unknown"] = f"{self.unknown_tokens:,} tokens ({share})"
        # Twins are rows that differ, but have the same state. The pooling with most of
        # them stands for all.
        num_twins = max(self.twins.values(), default=0)
        if num_twins:
            entries["alike"] = (
                f"{num_twins:,} of {self.distinct:,} that differ share a state"
            )
        return entries

    def _work_in_words(self) -> str:
        """The shards and rows that this run made."""
        shards = f"{self.shards_made} of {counted(self.shards, 'shard')}"
        return f"{shards}, {counted(self.rows_made, 'row')}"

    def _speed_in_words(self) -> str:
        """How much this run made, in which time."""
        rows_per_second = self.rows_made / self.seconds
        tokens_per_second = self.tokens / self.seconds
        words = (
            f"{self._work_in_words()}, "
            f"{self.tokens:,} {self.unit} in {self.seconds:.1f} s "
            f"({rows_per_second:,.0f} {self.noun}s/s, "
            f"{tokens_per_second:,.0f} {self.unit}/s, "
            f"{self.padding_share:.1%} padding), "
            f"{size_in_words(self.bytes)}"
        )
        if self.workers > 1:
            words += f", by {self.workers} workers"
        return words


def _counts_in_words(counts: dict[str, int]) -> str:
    """The number of every split, on one line."""
    return ", ".join(f"{visible(name)} {count:,}" for name, count in counts.items())
