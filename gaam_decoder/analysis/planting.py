"""The positive control: a cache whose labels depend on the states through a known gate.

A teacher reads the states as a mechanism of ``attention/`` does, with known parameters.
A random linear head and a softmax turn that into a probability of every class, and the
labels are draws of these probabilities. A decoder of the same mechanism with a linear
head can express the teacher exactly.

N rows, L layers, D hidden size, C classes, F = L * D features behind the gate. A class
of a linear map has E = F + 1 parameters: the weights of the features, then the bias.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import counted, visible
from gaam_cache.common.paths import shown_path
from gaam_cache.common.terminal import ReportProgress
from gaam_cache.importing.states import ImportSummary, PlantedLabels, write
from gaam_cache.store.files import check_writable, short_digest
from gaam_cache.store.plan import GAUSSIAN
from gaam_cache.store.reader import EmbeddingCache, open_cache
from gaam_decoder.analysis.learned import GATES
from gaam_decoder.attention.base import Attention
from gaam_decoder.config import PlantConfig
from gaam_decoder.specs import Spec, build
from gaam_decoder.tasks import CLASSIFICATION

Floats = NDArray[np.float64]
States = NDArray[Any]  # (N, L, D), as the cache will store it
ROWS = 6000
"""Default number of Gaussian states. From 4,000 training rows, a linear head (512
numbers) comes within 2 points of its teacher."""
LAYERS = 16  # enough for 1, 2, 4 and 8 heads
WIDTH = 8
BLOCK_ROWS = 512
"""Rows to compute with at once. Each block of Gaussian states has a seed of its own."""
MEAN = 3.0
"""Distance of the mean of every feature of Gaussian states from 0, in standard
deviations. A gate multiplies this mean, which no linear decoder can follow."""
# what random numbers are for: each purpose has its own stream of a seed
STATES = 1
ROW_CHOICE = 2
HEAD = 3
LABELS = 4
ROUNDING = 1e-12
"""A feature with less spread than this, relative to its mean, is constant: float64
rounds at 1e-16."""
SMALLEST_SPREAD = 1e-300  # of logits; keeps a division by 0 away
MOST_NUMBERS_FITTED = 2**27  # numbers that a fit reads at most: 1 GB
ROWS_PER_FEATURE = 2
"""With fewer rows a linear map memorises them, and says nothing of other rows."""
PENALTY = 1e-6
"""Beside the mean loss. The optimum becomes unique, and no accuracy changes visibly."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlantSummary:
    """The planted cache. Accuracies are fractions of the test rows."""

    path: str
    fingerprint: str
    gate: str
    mechanism: str
    """It can express the gate exactly, with one head and a linear head."""
    strength: float
    num_layers: int
    hidden_size: int
    storage_dtype: str
    rows: dict[str, int]
    teacher_accuracy: float
    """Expected accuracy of the teacher, the most that any decoder can expect."""
    teacher_accuracy_drawn: float
    """Accuracy of the teacher on the labels of the cache, which are random draws."""
    linear_accuracy: float | None
    """Expected accuracy of the best linear decoder; None: not known."""

    to_dict = asdict

    def in_words(self) -> str:
        """Lines for people."""
        gate = GATES[self.gate]
        rows = ", ".join(f"{name} {count:,}" for name, count in self.rows.items())
        linear = "not known"
        if self.linear_accuracy is not None:
            gap = 100 * (self.teacher_accuracy - self.linear_accuracy)
            linear = f"{100 * self.linear_accuracy:.1f}%, {gap:z.1f} points less"
        lines = [
            f"the cache in '{visible(shown_path(self.path))}' is complete",
            f"  gate         {self.gate}: {gate.formula}; "
            f"--attn {gate.attn} can express it",
            f"  states       {counted(self.num_layers, 'layer')} x {self.hidden_size}, "
            f"stored as {self.storage_dtype}",
            f"  rows         {rows}",
            f"  accuracy     teacher {100 * self.teacher_accuracy:.1f}% expected, "
            f"{100 * self.teacher_accuracy_drawn:.1f}% on the labels that were drawn;",
            f"               the best linear decoder of the states: {linear}",
            f"  fingerprint  {short_digest(self.fingerprint)}",
        ]
        return "\n".join(lines)


class _Split(NamedTuple):
    """States of one split, the teacher's probabilities, and labels drawn from them."""

    states: States
    probability_NC: Floats
    label_N: NDArray[np.int64]


def plant(
    config: PlantConfig, *, progress: ReportProgress | None = None
) -> PlantSummary:
    """Make a cache whose labels depend on the states through a known gate.

    An incomplete cache of the same configuration is completed. The configuration
    decides everything, and every number is computed from the states as the cache stores
    them. The chosen rows of a given cache are read into memory.

    >>> config = gaam_decoder.PlantConfig(out="planted", rows=90)
    >>> gaam_decoder.plant(config).mechanism
    'laplace'

    Args:
        config: gate, strength, seed and shape of the cache.
        progress: called with (rows done, rows in all, current step).

    Raises:
        ConfigError: more rows than the given cache has, or the folder holds something
            else.
        NotFoundError: the given cache is not there.
        CacheError: the given cache is incomplete or damaged.
        NumericsError: a state of the given cache does not fit into the storage type.
    """
    check_writable(config.out, option="--out")
    source = None
    if config.from_cache is not None:
        source = open_cache(config.from_cache)
    train_states, test_states = _states(config, source)
    if train_states.shape[1] < 3 and config.gate != "none":
        raise ConfigError(
            f"the gate '{config.gate}' standardises over layers, "
            "and of two every value is 1 or -1",
            expected="states of 3 layers or more, or --gate none",
        )

    teacher = make_teacher(
        config.gate,
        train_states,
        classes=config.classes,
        strength=config.strength,
        seed=config.seed,
    )
    train = _draw_split(teacher, train_states, config.seed, split_number=0)
    test = _draw_split(teacher, test_states, config.seed, split_number=1)
    accuracies = _accuracies(train, test)
    written = _write_cache(config, source, train, test, accuracies, progress)
    return PlantSummary(
        path=written.path,
        fingerprint=written.fingerprint,
        gate=config.gate,
        mechanism=GATES[config.gate].mechanism,
        strength=config.strength,
        num_layers=written.num_layers,
        hidden_size=written.hidden_size,
        storage_dtype=written.storage_dtype,
        rows=dict(written.rows),
        teacher_accuracy=accuracies.teacher,
        teacher_accuracy_drawn=accuracies.teacher_drawn,
        linear_accuracy=accuracies.linear,
    )


def _draw_split(
    teacher: "Teacher", states: States, seed: int, *, split_number: int
) -> _Split:
    """Draw the label of every row of a split by the teacher's probabilities."""
    probability_NC = teacher.probabilities(states)
    label_N = draw_labels(probability_NC, seed, split_number)
    return _Split(states, probability_NC, label_N)


class _Accuracies(NamedTuple):
    """Accuracies on the test rows, as fractions.

    The teacher predicts the most probable class of each row, but the labels are random
    draws. Its accuracy on these labels is near its expected accuracy.
    """

    teacher: float  # expected, over all labels that might be drawn
    teacher_drawn: float  # on the labels that were drawn
    linear: float | None  # expected of the best linear decoder; None: not known

    def as_text(self) -> dict[str, str]:
        """The known accuracies, as the cache records them."""
        named = {
            "teacher_accuracy": self.teacher,
            "teacher_accuracy_drawn": self.teacher_drawn,
            "linear_accuracy": self.linear,
        }
        return {
            name: f"{value:.4f}" for name, value in named.items() if value is not None
        }


def _accuracies(train: _Split, test: _Split) -> _Accuracies:
    """Accuracies of the teacher and of the best linear decoder on the test rows.

    The labels are drawn from the teacher's probabilities. So the expected accuracy of
    the teacher is the mean over rows of the largest probability.
    """
    predicted_N = CLASSIFICATION.predictions(test.probability_NC)
    is_right_N = CLASSIFICATION.hits(predicted_N, test.label_N)
    return _Accuracies(
        teacher=float(test.probability_NC.max(1).mean()),
        teacher_drawn=float(CLASSIFICATION.accuracy(is_right_N)),
        linear=linear_accuracy(
            train.states, train.probability_NC, test.states, test.probability_NC
        ),
    )


def _write_cache(
    config: PlantConfig,
    source: EmbeddingCache | None,
    train: _Split,
    test: _Split,
    accuracies: _Accuracies,
    progress: ReportProgress | None,
) -> ImportSummary:
    """Write the cache, with a record of what decides its labels."""
    storage_dtype: str = config.storage_dtype or "float32"
    encoder_name = "Gaussian states"
    # random states have no pooling and come from no cache
    pooling = GAUSSIAN
    states_origin = GAUSSIAN
    if source is not None:
        storage_dtype = config.storage_dtype or source.plan.storage_dtype
        encoder_name = f"states of {source.plan.encoder_label}"
        # the states of ``Split.embeddings`` are those of the first pooling
        pooling = source.plan.pooling[0]
        states_origin = source.fingerprint
    return write(
        config.out,
        {
            "train": (train.states, train.label_N),
            "test": (test.states, test.label_N),
        },
        class_names=[str(number) for number in range(config.classes)],
        storage_dtype=storage_dtype,
        axes="nld",
        encoder_name=encoder_name,
        dataset_name=(
            f"planted {config.gate} strength {config.strength:g} seed {config.seed}"
        ),
        pool=pooling,
        planted=PlantedLabels(
            rule=_labels_rule(config, states_origin), teacher=accuracies.as_text()
        ),
        progress=progress,
    )


def _labels_rule(config: PlantConfig, states_origin: str) -> dict[str, object]:
    """Everything that decides the labels, as JSON values.

    The fingerprint of the cache covers it: it has no floating-point numbers, which JSON
    might spell in several ways.

    Args:
        config: of the planted cache.
        states_origin: fingerprint of the given cache, or the word for Gaussian states.
    """
    gate = GATES[config.gate]
    return {
        "gate": config.gate,
        "mechanism": gate.mechanism,
        "parameters": {
            name: _shortest_decimal(value) for name, value in gate.parameters.items()
        },
        "strength": _shortest_decimal(config.strength),
        "seed": config.seed,
        "states": states_origin,
    }


def _shortest_decimal(value: float) -> str:
    """The shortest text from which Python reads the same number."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)


def _states(config: PlantConfig, cache: EmbeddingCache | None) -> tuple[States, States]:
    """States of the training rows and of the test rows, drawn or taken from a cache."""
    if cache is None:
        return _drawn_states(config)
    return _states_of_cache(config, cache)


def _drawn_states(config: PlantConfig) -> tuple[States, States]:
    """Gaussian states of the training rows and of the test rows."""
    num_rows = config.rows or ROWS
    _check_num_rows(num_rows, config.classes, most_rows=None)
    shape = (num_rows, config.layers or LAYERS, config.width or WIDTH)
    x_NLD = gaussian_states(shape, config.seed)
    x_NLD = x_NLD.astype(config.storage_dtype or "float32")
    num_train = _num_train(num_rows)
    return x_NLD[:num_train], x_NLD[num_train:]


def _states_of_cache(
    config: PlantConfig, cache: EmbeddingCache
) -> tuple[States, States]:
    """States of randomly chosen rows of a cache: training rows and test rows."""
    rows_of_cache = sum(len(split) for split in cache.values())
    num_rows = config.rows or rows_of_cache
    _check_num_rows(num_rows, config.classes, most_rows=rows_of_cache)
    generator = np.random.default_rng([config.seed, ROW_CHOICE])
    order_N = generator.permutation(rows_of_cache)
    num_train = _num_train(num_rows)
    train_rows = order_N[:num_train]
    test_rows = order_N[num_train:num_rows]
    return (
        _take_rows(cache, train_rows, config.storage_dtype),
        _take_rows(cache, test_rows, config.storage_dtype),
    )


def _num_train(num_rows: int) -> int:
    """The number of training rows: all but a third, which is for the test."""
    return num_rows - num_rows // 3


def _check_num_rows(num_rows: int, num_classes: int, most_rows: int | None) -> None:
    """Check that there are enough rows for the classes, and that the cache has them.

    Args:
        num_rows: training and test rows together.
        num_classes: C.
        most_rows: rows of the given cache; None for Gaussian states.
    """
    fewest_rows = 3 * num_classes
    if num_rows < fewest_rows:
        raise ConfigError(
            "more classes than rows",
            expected=f"--rows of at least {fewest_rows:,}, of which a third is 'test'",
            found=f"{num_rows:,}",
        )
    if most_rows is not None and num_rows > most_rows:
        raise ConfigError(
            "the cache has fewer rows than --rows",
            expected=f"--rows of at most {most_rows:,}",
            found=f"--rows {num_rows:,}",
        )


def _take_rows(
    cache: EmbeddingCache, row_N: NDArray[np.int64], dtype: str | None
) -> States:
    """States of some rows of a cache, in the order of the cache.

    Args:
        cache: where the rows are.
        row_N: numbers of the rows, which count through all splits; in any order.
        dtype: the type of the result; None: that of the cache.
    """
    parts: list[States] = []
    first_row = 0
    for split in cache.values():
        end_row = first_row + len(split)
        is_in_split_N = (row_N >= first_row) & (row_N < end_row)
        rows_of_split = np.sort(row_N[is_in_split_N] - first_row)
        x_NLD = split.embeddings[rows_of_split]
        # a state that overflows is refused where it is stored
        with np.errstate(over="ignore"):
            parts.append(x_NLD.astype(dtype or x_NLD.dtype))
        first_row = end_row
    return np.concatenate(parts)


def gaussian_states(shape: tuple[int, int, int], seed: int) -> NDArray[np.float32]:
    """``x = mean + z``: z is standard normal, the mean of every feature is 3 or -3.

    The first rows do not depend on the number of rows.

    Shape:
        (N, L, D).
    """
    coin_D = np.random.default_rng([seed, STATES]).integers(0, 2, shape[2])
    mean_D = np.where(coin_D == 1, MEAN, -MEAN)
    x_NLD = np.empty(shape, np.float32)
    for block, start in enumerate(range(0, len(x_NLD), BLOCK_ROWS)):
        # a view: what is written here is in ``x_NLD``
        block_NLD = x_NLD[start : start + BLOCK_ROWS]
        generator = np.random.default_rng([seed, STATES, block])
        block_NLD[:] = generator.standard_normal(block_NLD.shape, dtype=np.float32)
    return x_NLD + mean_D.astype(np.float32)


def blocks(states: States) -> Iterator[Floats]:
    """All rows in float64, block by block."""
    for start in range(0, len(states), BLOCK_ROWS):
        yield states[start : start + BLOCK_ROWS].astype(np.float64)


def planted_mechanism(gate_name: str, num_layers: int, hidden_size: int) -> Attention:
    """The mechanism of a gate with one head and the gate's parameters, in float64.

    Args:
        gate_name: a key of ``GATES``, the gates that can be planted.
        num_layers: L.
        hidden_size: D.
    """
    gate = GATES[gate_name]
    options = (("heads", 1),) if gate.parameters else ()
    spec = Spec(gate.mechanism, options)
    module: Attention = build(spec, "mechanism", num_layers, hidden_size).double()
    with torch.no_grad():
        for name, value in gate.parameters.items():
            module.get_parameter(name).fill_(value)
    return module


@dataclass(frozen=True, slots=True)
class Teacher:
    """``p(c | x) = softmax(strength * (W vec(attention(x)) - mean) / spread)_c``.

    W is drawn once: normal numbers, divided by the standard deviation of their feature
    over the training rows. Over these rows, too, ``mean`` is the mean of every class's
    logit, and ``spread`` the standard deviation of all logits. Where no gate is
    planted, all layers share one W: the mean over the layers decides.
    """

    attention: Attention
    weight_CF: Floats
    bias_C: Floats

    def logits(self, x_NLD: Floats) -> Floats:
        """(N, L, D) -> (N, C)."""
        return _gated_features(self.attention, x_NLD) @ self.weight_CF.T + self.bias_C

    def probabilities(self, states: States) -> Floats:
        """Probability of every class for every row, (N, C)."""
        logits_NC = np.concatenate([self.logits(x_NLD) for x_NLD in blocks(states)])
        probability_NC: Floats = softmax(logits_NC, 1)
        return probability_NC


def _gated_features(attention: Attention, x_NLD: Floats) -> Floats:
    """The input of the linear head, (N, F)."""
    with torch.inference_mode():
        y_NLD: Floats = attention(torch.from_numpy(x_NLD)).numpy()
    return y_NLD.reshape(len(y_NLD), -1)


def make_teacher(
    gate_name: str, train: States, *, classes: int, strength: float, seed: int
) -> Teacher:
    """Draw a teacher.

    Args:
        gate_name: a key of ``GATES``.
        train: states of the training rows, (N, L, D).
        classes: C.
        strength: standard deviation of the teacher's logits over the training rows.
        seed: decides the linear head.

    Raises:
        ConfigError: the training rows are all the same behind the gate.
    """
    _num_rows, num_layers, hidden_size = train.shape
    attention = planted_mechanism(gate_name, num_layers, hidden_size)
    # without a gate the mean over the layers decides: a weight for each feature of the
    # mean, which all layers share
    layers_share_weights = not GATES[gate_name].parameters
    mean_F, spread_F = _moments(attention, train, layers_share_weights)
    # a constant feature tells no rows apart: its weight is 0
    differs_F = spread_F > ROUNDING * np.abs(mean_F)
    if not differs_F.any():
        raise ConfigError(
            "no teacher can tell the rows apart",
            found=(
                f"{len(train):,} rows that are all the same behind the gate "
                f"'{gate_name}'"
            ),
        )

    generator = np.random.default_rng([seed, HEAD])
    normal_CF = generator.standard_normal((classes, len(mean_F)))
    weight_CF = np.divide(
        normal_CF, spread_F, out=np.zeros_like(normal_CF), where=differs_F
    )
    # (C, D) to (C, L D): a mean over layers is their sum with weights divided by L
    if layers_share_weights:
        weight_CF = np.tile(weight_CF / num_layers, num_layers)
        mean_F = np.tile(mean_F, num_layers)

    # the bias makes the mean logit 0; then all logits are scaled to the strength
    centred = Teacher(attention, weight_CF, bias_C=-(weight_CF @ mean_F))
    square_sum = sum(
        float(np.square(centred.logits(x_NLD)).sum()) for x_NLD in blocks(train)
    )
    spread = (square_sum / (len(train) * classes)) ** 0.5
    factor = strength / max(spread, SMALLEST_SPREAD)
    return Teacher(attention, factor * weight_CF, factor * centred.bias_C)


def _moments(
    attention: Attention, train: States, layers_share_weights: bool
) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the teacher's features over training rows, (F,).

    Args:
        attention: the mechanism of the teacher, with the parameters of the gate.
        train: states of the training rows, (N, L, D).
        layers_share_weights: whether the features are means over the layers, (D,).
    """

    def features(x_NLD: Floats) -> Floats:
        if layers_share_weights:
            mean_ND: Floats = x_NLD.mean(1)
            return mean_ND
        return _gated_features(attention, x_NLD)

    # sum differences from the first row: the sums of large features would lose digits
    first_F = features(next(blocks(train)))[0]
    sum_F = np.zeros_like(first_F)
    square_sum_F = np.zeros_like(first_F)
    for x_NLD in blocks(train):
        difference_NF = features(x_NLD) - first_F
        sum_F += difference_NF.sum(0)
        square_sum_F += np.square(difference_NF).sum(0)
    mean_F = sum_F / len(train)
    variance_F = np.maximum(square_sum_F / len(train) - mean_F**2, 0)
    return first_F + mean_F, np.sqrt(variance_F)


def draw_labels(
    probability_NC: Floats, seed: int, split_number: int
) -> NDArray[np.int64]:
    """Draw one class for every row by its probabilities, (N,).

    Every split has random numbers of its own.
    """
    generator = np.random.default_rng([seed, LABELS, split_number])
    u_N1 = generator.random((len(probability_NC), 1))
    # the class is the number of cumulative probabilities up to a uniform number
    num_passed_N = (u_N1 >= np.cumsum(probability_NC, 1)).sum(1)
    # rounding may leave the last cumulative probability below 1
    last_class = probability_NC.shape[1] - 1
    label_N: NDArray[np.int64] = np.minimum(num_passed_N, last_class)
    return label_N


def linear_accuracy(
    train: States, p_train_NC: Floats, test: States, p_test_NC: Floats
) -> float | None:
    """Accuracy to expect on the test rows from the best linear decoder of the states.

    It is fitted by L-BFGS to the teacher's own probabilities of the training rows. None
    if the rows are too few for that, or too many for the memory.
    """
    num_rows = len(train)
    num_features = train.shape[1] * train.shape[2]
    has_too_few_rows = num_rows < ROWS_PER_FEATURE * num_features
    is_too_large = num_rows * num_features > MOST_NUMBERS_FITTED
    if has_too_few_rows or is_too_large:
        return None

    z_NF = _flat_rows(train)
    mean_F = z_NF.mean(0)
    spread_F = z_NF.std(0)
    scale_F = np.divide(1.0, spread_F, out=np.zeros_like(spread_F), where=spread_F > 0)
    z_NF -= mean_F
    z_NF *= scale_F
    weight_CF, bias_C = _fit_linear(z_NF, p_train_NC)

    z_NF = (_flat_rows(test) - mean_F) * scale_F
    logits_NC = z_NF @ weight_CF.T + bias_C
    predicted_N1 = CLASSIFICATION.predictions(logits_NC)[:, None]
    return float(np.take_along_axis(p_test_NC, predicted_N1, 1).mean())


def _flat_rows(states: States) -> Floats:
    """Every row as one vector of all layers, (N, F)."""
    return np.concatenate([x_NLD.reshape(len(x_NLD), -1) for x_NLD in blocks(states)])


def _fit_linear(z_NF: Floats, p_NC: Floats) -> tuple[Floats, Floats]:
    """Fit a linear map to probabilities by their cross-entropy, with a small penalty.

    Returns:
        The weights, (C, F), and the biases, (C,).
    """
    num_rows, num_features = z_NF.shape
    num_classes = p_NC.shape[1]

    def loss_and_gradient(parameters: Floats) -> tuple[float, Floats]:
        """Cross-entropy plus penalty of weights and biases, and its gradient."""
        weight_CE = parameters.reshape(num_classes, num_features + 1)
        logits_NC = z_NF @ weight_CE[:, :-1].T + weight_CE[:, -1]
        log_p_NC = log_softmax(logits_NC, 1)
        cross_entropy = -(p_NC * log_p_NC).sum() / num_rows
        loss = cross_entropy + PENALTY / 2 * float(parameters @ parameters)

        logit_gradient_NC = (np.exp(log_p_NC) - p_NC) / num_rows
        weight_gradient_CF = logit_gradient_NC.T @ z_NF
        bias_gradient_C = logit_gradient_NC.sum(0)
        gradient_CE = np.column_stack([weight_gradient_CF, bias_gradient_C])
        gradient_CE += PENALTY * weight_CE
        return loss, gradient_CE.ravel()

    fit = minimize(
        loss_and_gradient,
        np.zeros(num_classes * (num_features + 1)),
        method="L-BFGS-B",
        jac=True,
        options={"maxiter": 500},
    )
    weight_CE = fit.x.reshape(num_classes, num_features + 1)
    return weight_CE[:, :-1], weight_CE[:, -1]
