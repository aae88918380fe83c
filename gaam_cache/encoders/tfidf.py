"""A bag of words: tf-idf vectors of texts, as a baseline without any model.

Shape suffixes: B texts of a batch, D features.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.devices import resolve_device
from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.common.messages import shortened
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.base import (
    SETTINGS_OF_PICTURES,
    SETTINGS_OF_SOUNDS,
    SETTINGS_OF_TEXTS,
    Encoder,
    Inputs,
)
from gaam_cache.store.files import digest_of

if TYPE_CHECKING:
    from torch import Tensor

    from gaam_cache.sources.base import Rows

DEFAULTS = {"features": 4096, "ngrams": 1}
"""Options and their defaults.

``features``: D, the number of features; they are the words in the most texts.
``ngrams``: number of words of the longest sequence that counts as a feature.
"""
MAX_VALUES = {"features": 2**20, "ngrams": 5}
FIXED = {"sublinear": True, "hashed": False}
"""Settings that nobody can choose; every plan since 0.1.0 records them."""
DEFAULT_MAX_WORDS = 1_000_000
"""Number of words of a text that count without ``--max-length``."""
IDEOGRAPHS = ((0x3040, 0x30FF), (0x3400, 0x9FFF), (0x20000, 0x3FFFF))
"""Scripts without spaces between words: every character counts as a word."""


class TfidfEncoder(Encoder):
    """tf-idf vectors of the words of a text, as a cache of one layer.

    Formula: ``x_w = (1 + ln n_w) (ln((1 + N) / (1 + N_w)) + 1)``, divided by the norm
    of x. n_w counts the word w in the text; N_w of the N training texts contain it.

    The vocabulary and N_w come from the training split only (or the first split). Words
    are runs of letters, marks and digits of any script, after NFKC and case folding,
    and single characters of scripts without spaces. A text without a known word has the
    state zero.

    Source: the weights of scikit-learn's TfidfVectorizer with sublinear_tf.
    """

    kind_when_named: ClassVar[str | None] = "text"
    # it has one layer, no weights and no tokenizer
    unused_settings: ClassVar[tuple[str, ...]] = (
        *SETTINGS_OF_TEXTS,
        *SETTINGS_OF_SOUNDS,
        *SETTINGS_OF_PICTURES,
        "layers",
        "layer_zero",
        "pool",
        "untrained_encoder",
        "encoder_seed",
        "dtype",
        "revision",
    )

    def __init__(self, config: ExtractConfig) -> None:
        """Read the options of ``--encoder``, such as ``tfidf:features=1000``."""
        self._options = _read_options(config.encoder)
        self.name = _canonical_name(self._options)
        self.revision = None
        self.num_layers = 1
        self.hidden_size = self._options["features"]
        self.max_length = config.max_length or DEFAULT_MAX_WORDS
        self.dtype = "float32"
        self.batching = "padded"
        self.device = resolve_device("cpu")
        # ``fit`` sets the rest. A gram is a word, or several neighbouring words.
        self._index_by_gram: dict[str, int] = {}
        self._idf_D: NDArray[np.float64] = np.ones(self.hidden_size)
        self._identity_of_fit: dict[str, Any] = {}

    @classmethod
    def open(cls, config: ExtractConfig) -> TfidfEncoder:
        """Read the options; there are no files."""
        return cls(config)

    def fit(self, rows: Mapping[str, Rows]) -> None:
        """Learn the vocabulary and the weights from one split.

        This is the training split, or the first split if none is called "train". The
        grams in the most texts become the features. This sets ``hidden_size``, which is
        smaller than requested if there are fewer grams.

        Args:
            rows: texts of every split.
        """
        split = "train" if "train" in rows else next(iter(rows))
        num_texts = len(rows[split])
        # Gram -> number of texts with it. A set counts every gram of a text once.
        num_texts_by_gram: Counter[str] = Counter()
        for text in rows[split].inputs:
            words = _split_words(text)[: self.max_length]
            num_texts_by_gram.update(set(self._grams(words)))
        if not num_texts_by_gram:
            raise DataError("no text holds a word", where=rows[split].origin)

        # The order of the texts must play no part: the alphabet breaks ties.
        ranked = sorted(num_texts_by_gram.items(), key=lambda pair: (-pair[1], pair[0]))
        vocabulary = sorted(ranked[: self._options["features"]])
        self.hidden_size = len(vocabulary)
        self._index_by_gram = {
            gram: index for index, (gram, _) in enumerate(vocabulary)
        }
        self._idf_D = np.array(
            [math.log((1 + num_texts) / (1 + count)) + 1 for _, count in vocabulary]
        )

        # The digest covers all that was learned: N, and every word with its N_w.
        lines = [str(num_texts), *(f"{gram} {count}" for gram, count in vocabulary)]
        self._identity_of_fit = {
            "fitted_on": split,
            "vocabulary": digest_of("\n".join(lines).encode()),
        }

    def identity(self) -> dict[str, Any]:
        """Options, and a digest of the fitted vocabulary and weights."""
        return {
            # FIXED: settings that nobody can choose, which every plan records
            "bag_of_words": self._options | FIXED,
            **self._identity_of_fit,
            "unicode": unicodedata.unidata_version,
            "dtype": self.dtype,
            "max_length": self.max_length,
            "pooling": ["mean"],
            "layers": "tf-idf of words",
        }

    def prepare(self, rows: Sequence[str]) -> Inputs:
        """Split every text into words, cut at the maximum length.

        A text without words counts as one unknown word, so that its length is not 0.
        Words outside the vocabulary are dropped on purpose: in a text with a known
        word, they do not count as unknown.
        """
        items = []
        lengths = []
        num_unknown = []
        truncated = []
        for text in rows:
            all_words = _split_words(text)
            words = all_words[: self.max_length]
            length = max(1, len(words))
            has_known_word = any(word in self._index_by_gram for word in words)
            items.append(words)
            lengths.append(length)
            num_unknown.append(0 if has_known_word else length)
            truncated.append(len(all_words) > self.max_length)
        return Inputs(
            items=items,
            lengths=lengths,
            truncated=truncated,
            num_own_tokens=lengths,
            num_unknown_tokens=num_unknown,
        )

    def load(self) -> None:
        """Nothing to do: there are no weights."""

    def encode(self, items: Sequence[list[str]]) -> dict[str, Tensor]:
        """tf-idf vectors of texts: (B, 1, D) float32, as the pooling "mean".

        An encoder returns its states by pooling. A bag of words has no positions to
        pool, and "mean" is its only one.

        Args:
            items: the words of every text.
        """
        import torch

        # Words outside the vocabulary are skipped, and do not count in the norm either.
        x_BD = np.zeros((len(items), self.hidden_size))
        for row, words in enumerate(items):
            for gram, count in Counter(self._grams(words)).items():
                if gram in self._index_by_gram:
                    x_BD[row, self._index_by_gram[gram]] = 1 + math.log(count)
        x_BD *= self._idf_D

        # A text without a known word keeps the state zero.
        norm_B1 = np.linalg.norm(x_BD, axis=1, keepdims=True)
        x_BD /= np.where(norm_B1 > 0, norm_B1, 1)
        return {"mean": torch.from_numpy(x_BD.astype(np.float32)).unsqueeze(1)}

    def _grams(self, words: Sequence[str]) -> Iterator[str]:
        """Yield words, and sequences of neighbouring words joined by a space.

        The option ``ngrams`` is the number of words of the longest sequence.
        """
        for size in range(1, self._options["ngrams"] + 1):
            for start in range(len(words) - size + 1):
                yield " ".join(words[start : start + size])


def _read_options(encoder: str) -> dict[str, int]:
    """Read the options behind the colon of ``tfidf:key=value,...``.

    Returns:
        The value of every option; the default of one that is not given.

    Raises:
        ConfigError: there is no such option, or its value is not in the allowed range.
    """
    options = dict(DEFAULTS)
    # A repeated option overrides the earlier one.
    for part in encoder.partition(":")[2].split(","):
        if not part:
            continue
        key, _, value = part.partition("=")
        key = key.strip()
        value = value.strip()
        # An unknown option has the largest value 0, which no value satisfies.
        if not (value.isdecimal() and 1 <= int(value) <= MAX_VALUES.get(key, 0)):
            ranges = [f"{name}=1 to {most:,}" for name, most in MAX_VALUES.items()]
            raise ConfigError(
                f"no such option of the encoder tfidf: '{shortened(part)}'",
                expected=", ".join(ranges),
                found=f"--encoder {shortened(encoder)}",
            )
        options[key] = int(value)
    return options


def _canonical_name(options: dict[str, int]) -> str:
    """The encoder's name with only the options that differ from the defaults.

    Without such an option it is "tfidf", without a colon.
    """
    changed = [
        f"{key}={value}" for key, value in options.items() if value != DEFAULTS[key]
    ]
    return f"tfidf:{','.join(changed)}".removesuffix(":")


class _SeparatedWords(dict[int, str]):
    """A table for ``str.translate`` that leaves only words, separated by spaces.

    Characters of words stay, ideographs get spaces around them, and all other
    characters become spaces. An entry is computed when its character first occurs.
    """

    def __missing__(self, code: int) -> str:
        """Compute and keep what replaces the character with the code point ``code``."""
        char = chr(code)
        # Letters, marks and numbers of any script.
        is_word_char = unicodedata.category(char)[0] in "LMN" or char == "_"
        replacement = char if is_word_char else " "
        if any(first <= code <= last for first, last in IDEOGRAPHS):
            replacement = f" {replacement} "
        self[code] = replacement
        return replacement


_SEPARATED_WORDS = _SeparatedWords()


def _split_words(text: str) -> list[str]:
    """Split a text into its words, in lower case."""
    # Full-width letters and ligatures become plain ones, and cases become equal.
    plain = unicodedata.normalize("NFKC", text).casefold()
    return plain.translate(_SEPARATED_WORDS).split()
