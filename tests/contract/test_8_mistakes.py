"""Promise 8: a mistake gets one message and its exit code; names are harmless."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml
from markdown_it import MarkdownIt

import gaam_cache
import gaam_decoder
from tests.contract.conftest import extract, read_files, read_rows, run, train
from tests.hostile_strings import HOSTILE, flooded, harmful
from tests.tiny import build_encoder, write_csv

SHORT = {
    "E": "extract --encoder encoder --out new --dataset",
    "T": "train --runs new --cache",
    "I": "import --out new",
}
MISTAKES = """
extrct                                           | 2 | extract
E texts --poool mean                             | 2 | --poool; --pool'
E texts --pool meen                              | 2 | meen; mean
E texts --text-column txt                        | 2 | txt; label, text; did you mean 'text'
E texts --label-column lable                     | 2 | lable; did you mean 'label'
E unnamed.csv --test-fraction 0.5                | 2 | kind; --label-column
E ./nowhere                                      | 2 | nowhere
E nowhere/                                       | 2 | nowhere
E empty.csv --test-fraction 0.5                  | 3 | empty.csv
E header.csv --test-fraction 0.5                 | 3 | header.csv
E three.csv                                      | 2 | three.csv; --test-fraction
E pictures                                       | 3 | 1.png; 0 bytes
E cache                                          | 2 | train
E texts --max-length many                        | 2 | --max-length
E texts --dtype float23                          | 2 | float23; float32
E texts --test-fraction 1.5                      | 2 | 1.5
E texts --subset sst2                            | 2 | --subset; texts
E hidden                                    | 3 | 'test' has no labels; unlabelled=test
E minus                                          | 3 | -1; odd-classes=-1
E shards                                         | 3 | train-00001-of-00002; missing
E texts --split train --split valid              | 2 | valid; test.csv
E texts --split train --split Train              | 2 | train; Train
E texts --device gpu                             | 2 | gpu; cuda
T cache --config key.toml                        | 2 | key.toml; epoch; epochs
E texts --preset smal                            | 2 | smal; demo
E texts --config section.toml                    | 2 | trian; train
E texts --config nowhere.toml                    | 2 | nowhere.toml
extract --encoder ./nowhere --dataset texts      | 2 | nowhere
extract --encoder encoder --dataset texts --out three.csv | 2 | three.csv; --out
extract --encoder other --dataset texts --out cache | 2 | config.json; --out
T cache --attn gam                               | 2 | gam; did you mean 'gaam'
T cache --attn gamm                              | 2 | gamm; did you mean 'gaam'
T cache gaam                                     | 2 | gaam
T cache --attn Cubic                             | 2 | Cubic; --attn FILE.py:CLASS
describe --attn Cubic                            | 2 | Cubic; --attn FILE.py:CLASS
T cache --attn broken.py:Gate                    | 2 | broken.py; SyntaxError
T cache --attn own.py                            | 2 | own.py:Unaltered
T cache --attn own.py:Unaltered:width=2                | 2 | --attn own.py:Unaltered:width=2
T cache --attn gaam:head=3                       | 2 | head; heads
T cache --attn gaam:heads=5                      | 2 | heads=5; 6 layers
T cache --attn gaam:heads=2,heads=3              | 2 | heads; twice
T cache --head linaer                            | 2 | linaer; did you mean 'linear'
T cache --lr 0                                   | 2 | --lr; 0
T cache --lr -0.1                                | 2 | --lr; -0.1
T cache --epochs 1.5                             | 2 | --epochs
T cache --seeds 3-1                              | 2 | 3-1; rises
T cache --tune-seeds 0-2 --lr 1                  | 2 | --tune-seeds; --lr
T cache --layers 9                               | 2 | 9; 1 to 6
T cache --loss crossentropy                      | 2 | crossentropy; cross-entropy
T cache --pool max                               | 2 | max; mean
T cache --folds 2 --groups speaker               | 2 | speaker; --keep-column
T cache --select best                            | 2 | best; val
T cache --train-rows 999                         | 2 | 999; 60
T cache --config type.toml                       | 2 | epochs; many
extract texts                                    | 2 | did you mean '--dataset texts'
train cache                                      | 2 | did you mean '--cache cache'
report runs --cache cache                        | 2 | --cache; report --help
T nowhere                                        | 2 | nowhere; 'cache'; gaam extract
T cach                                           | 2 | no such folder; did you mean 'cache'
T texts                                          | 2 | texts; cache.json
T cache/cache.json                               | 2 | cache.json; a file
T away                                           | 3 | away; /mnt/not-mounted
T ~nosuchuser/cache                              | 2 | nosuchuser
extract --encoder encoder --dataset texts --out away | 2 | /mnt/not-mounted; --out
inspect away                                     | 2 | away; /mnt/not-mounted
report away                                      | 2 | away; /mnt/not-mounted
T unfinished                                     | 3 | test; gaam extract
T unlabelled                                     | 2 | label; --set train-split=test --folds 5
train --cache cache --runs three.csv             | 2 | three.csv; --runs
train --cache cache --runs cache                 | 2 | 'cache' is a cache; cache.json in it; another folder with --runs
train --cache cache --runs others --dry-run      | 2 | 'others' is a cache; --runs
report empty                                     | 2 | empty; name 'run', 'runs'; gaam train
report rums                                      | 2 | no such folder; did you mean 'runs'
report runs --section pairs --section scores     | 2 | --section; 2 times
report runs --format pdf                         | 2 | pdf; markdown
report runs --baseline perceiver                 | 2 | perceiver; gaam train
report runs --attn perceiver                     | 2 | perceiver
report runs --top                                | 2 | --top
report runs --score accuraci                     | 2 | did you mean 'accuracy'
report runs --margin -1                          | 2 | --margin; -1
report runs --out empty                          | 2 | empty; --out
report runs --out report.pdf                     | 2 | report.pdf; .tex; --format
predict run                                      | 2 | texts; --file
predict run goal --attn own.py:Unaltered               | 2 | 'Unaltered'; 'mha'; out
predict run goal --file texts/test.csv           | 2 | goal; --file
predict run --file texts/test.csv --text-column words | 2 | words; label, text
predict run --file texts/test.csv --out new.pdf  | 2 | .pdf; .csv
predict run --file empty.csv --out new.csv       | 3 | empty.csv
predict run --top 9 goal                         | 2 | --top; 9
predict run --file texts/test.csv --set encodin=x | 2 | encodin; encoding
predict run --cache others --split test          | 3 | config.json
predict run --cache cache --split valid          | 2 | valid; train, test
I                                                | 2 | FILE
I nan/train.npz                                  | 1 | train.npz; nan
I inf/train.npz                                  | 1 | train.npz; inf
I short/train.npz                                | 3 | 2; 6
I flat/train.npz                                 | 3 | train.npz
I good/train.npz wide/test.npz                   | 3 | 4; 3
inspect nowhere                                  | 2 | nowhere
inspect cach                                     | 2 | did you mean 'cache'
export run runs                                  | 2 | runs; another folder
export run new --seed 77                         | 2 | 77; 0, 1
ablate run --num-layers 99                       | 2 | 99; 1 to 3
plant new --gate laplase                         | 2 | laplase; laplace
study ag-news                                    | 2 | did you mean 'ag-news-minilm'
"""


def write_arrays(file: str, states: np.ndarray, rows: int = 6) -> None:
    Path(file).parent.mkdir()
    np.savez(file, embeddings=states, labels=np.arange(rows) % 2)


@pytest.fixture(scope="module")
def place(
    encoder: Path,
    texts: Path,
    cache: Path,
    runs: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Path]:
    """A folder with what an ordinary week has, where the commands run."""
    folder = tmp_path_factory.mktemp("mistakes")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.copytree(encoder, "encoder")
        shutil.copytree(texts, "texts")
        shutil.copytree(cache, "cache")
        shutil.copytree(runs, "runs")
        shutil.copytree(next(runs.glob("mha*")), "run")
        make_caches(cache)
        make_states()
        make_media()
        make_tables()
        make_code_and_settings()
        yield folder


def make_caches(cache: Path) -> None:
    """An unfinished one, a link to none, one of another encoder, one without labels."""
    shutil.copytree(cache, "unfinished")
    Path("unfinished/shards/test-00000.json").unlink()
    Path("away").symlink_to("/mnt/not-mounted")
    build_encoder(Path("other"), "llama")
    extract(Path("other"), Path("texts"), Path("others"))
    states = random_states()
    labels = np.arange(6) % 2
    splits = {"train": (states, None), "test": (states, labels)}
    gaam_cache.write("unlabelled", splits)


def random_states() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(6, 2, 4))


def make_states() -> None:
    """Files of arrays that cannot be imported, or not together."""
    states = random_states()
    for name, value in {"nan": np.nan, "inf": np.inf, "good": 1.0}.items():
        changed_states = np.where(np.arange(4) == 2, value, states)
        write_arrays(f"{name}/train.npz", changed_states)
    write_arrays("short/train.npz", states, 2)
    write_arrays("flat/train.npz", states[:, 0, 0])
    write_arrays("wide/test.npz", states[:, :, :3])


def make_media() -> None:
    """Folders of empty pictures, and an empty folder."""
    for name in ("pictures/train/a", "pictures/test/a", "empty"):
        Path(name).mkdir(parents=True)
    for name in ("pictures/train/a/1.png", "pictures/test/a/2.png"):
        Path(name).touch()


def make_tables() -> None:
    """Tables without rows, splits, labels or the usual columns."""
    goal_and_cup = [("a", "goal"), ("b", "cup")]
    Path("empty.csv").touch()
    write_csv(Path("header.csv"), [])
    write_csv(Path("three.csv"), [*goal_and_cup, ("a", "bank")])
    write_csv(Path("hidden/train.csv"), goal_and_cup)
    write_csv(Path("hidden/test.csv"), [("-1", "goals"), ("-1", "cups")])
    numbered_rows = [("0", "goal"), ("1", "cup"), ("-1", "bank")]
    write_csv(Path("minus/train.csv"), numbered_rows)
    write_csv(Path("shards/train-00000-of-00002.csv"), goal_and_cup)
    write_csv(Path("unnamed.csv"), [("a", "goal")] * 9, header="kind,text")


def make_code_and_settings() -> None:
    """A mechanism, one that is no Python, and settings that no command has."""
    Path("own.py").write_text(
        "from gaam_decoder.attention import Attention\n\n\n"
        "class Unaltered(Attention):\n    def forward(self, x_BLD):\n        return x_BLD\n"
    )
    Path("broken.py").write_text("def gate(:")
    Path("key.toml").write_text("[train]\nepoch = 3\n")
    Path("section.toml").write_text("[trian]\nepochs = 3\n")
    Path("type.toml").write_text("[train]\nepochs = 'many'\n")


@pytest.mark.parametrize("mistake", MISTAKES.strip().splitlines())
def test_a_mistake_is_one_message(mistake: str, place: Path) -> None:
    command, code, word_list = (part.strip() for part in mistake.split(" | "))
    first, _, rest = command.partition(" ")
    files_before = read_files(place)
    outcome = run(*shlex.split(f"{SHORT.get(first, first)} {rest}"))
    assert (outcome.code, outcome.out) == (int(code), ""), outcome.err
    assert outcome.err.count("error:") == 1
    assert "Traceback" not in outcome.err
    assert "tuning:" not in outcome.err, "work that an error prevents is not announced"
    missing_words = [word for word in word_list.split("; ") if word not in outcome.err]
    assert missing_words == [], outcome.err
    assert read_files(place) == files_before, "nothing is written"


ODD = re.compile("[\0\ud800-\udfff]|.{4000}|^\\s*$")
ACCEPTED_NAMES = [name for name in HOSTILE.values() if not ODD.search(name)]
"""Names that a cache accepts; UTF-8 or HDF5 have no text for the others."""
NAMES_OF_A_CACHE = 11
"""All name its classes. A page draws pictures for every cache: fewer are faster."""
ENCODER = 8
DATASET = 2
"""Places of the names of encoder and data set too: scripts, formulas, LaTeX."""


def check_harmless(text: str) -> str:
    """Check that a terminal obeys nothing of a text, and return it."""
    assert not harmful(text), harmful(text)
    assert not flooded(text)
    assert "Traceback" not in text
    return text


class Reports:
    """Reports of decoders on caches whose encoders, data sets and classes have names.

    One run of every cache is exported, and reported alone: two more formats.
    """

    def __init__(self, names: list[str], folder: Path) -> None:
        self.folder = folder
        self.text_by_format: dict[str, str] = {"card": "", "screens": ""}
        assert len(names) % NAMES_OF_A_CACHE == 0
        for number, first in enumerate(range(0, len(names), NAMES_OF_A_CACHE)):
            self._train(number, names[first : first + NAMES_OF_A_CACHE])
        for command, name in (("inspect", "0"), ("inspect", "runs"), ("runs", "runs")):
            check_harmless(run(command, folder / name).out)
        for report_format in REPORT_FORMATS:
            outcome = run("report", folder / "runs", "--format", report_format)
            assert outcome.code == 0, outcome.err
            self.text_by_format[report_format] = outcome.out

    def _train(self, number: int, names: list[str]) -> None:
        """Train and export on a cache of an encoder, a data set and eleven classes."""
        labels = np.arange(44) % NAMES_OF_A_CACHE
        states, test_states = np.random.default_rng(0).normal(size=(2, 44, 2, 8))
        cache = self.folder / f"{number}"
        gaam_cache.write(
            cache,
            {"train": (states + number, labels), "test": (test_states, labels)},
            encoder_name=names[ENCODER],
            dataset_name=names[DATASET],
            class_names=[f"{name}n" for name in names],
        )
        attn = ("none", "layer-mean")
        result = train(cache, self.folder / "runs", attn=attn, epochs=1)[0]
        card = self.folder / f"card{number}"
        gaam_decoder.export_run(result.path, card)
        self.text_by_format["card"] += (card / "README.md").read_text("utf-8")
        self.text_by_format["screens"] += run("report", result.path).out


def terminal_shape(text: str) -> Any:
    widest = max(map(len, text.split("\n")))
    return len(re.findall("^ *\u2500+ *$", text, re.MULTILINE)), widest > 100


def markdown_shape(text: str) -> list[str]:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    types: list[str] = []
    for token in parser.parse(text):
        types += [inner.type for inner in (token, *(token.children or ()))]
    return [name for name in types if name != "text"]


def card_shape(text: str) -> Any:
    fronts = re.findall(r"^---\n(.*?)\n---\n", text, re.DOTALL | re.MULTILINE)
    return [list(yaml.safe_load(front)) for front in fronts], markdown_shape(text)


def latex_shape(text: str) -> Any:
    """Commands and what parts cells; commands that print a sign stand for the sign."""
    body = text.split("\\makeatother\n", 1)[-1]
    plain = re.sub(r"\\text[a-z]+\{\}|\\[&%$#_{}]|\{\[\}|\{\*\}|([-,])\{\}", "", body)
    assert plain.count("{") == plain.count("}")
    command_counts = Counter(re.findall(r"\\([a-zA-Z@]+|.)", plain))
    return command_counts, plain.count("&"), plain.count("\n")


def csv_shape(text: str) -> list[int]:
    lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    formula = re.compile("(^|;)\\s*[-=+@\t\r\uff1d\uff0b\uff0d\uff20]")
    number = re.compile(r"-?[0-9.]+(e-?[0-9]+)?")
    for line in lines:
        for cell in line:
            assert number.fullmatch(cell) or not formula.search(cell), cell
    return [len(line) for line in lines]


def json_shape(text: str) -> int:
    return len(json.loads(text))


def html_shape(text: str) -> list[Any]:
    return Tags(text).seen


class Tags(HTMLParser):
    """Tags and names of attributes, without those of pictures: names lay them out."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[Any] = []
        self.drawing = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.drawing |= tag == "svg"
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in ("href", "src") or re.match("#|data:,$", str(value)), (
                value
            )
        if tag != "wbr" and not (self.drawing and tag in PICTURE):
            self.seen.append((tag, [name for name, _ in attrs]))

    def handle_endtag(self, tag: str) -> None:
        self.drawing &= tag != "svg"

    def handle_comment(self, data: str) -> None:
        self.seen.append(data)


PICTURE = {"g", "path", "text", "tspan", "use", "defs", "clippath", "rect"}
SHAPES: dict[str, Callable[[str], Any]] = {
    "terminal": terminal_shape,
    "markdown": markdown_shape,
    "latex": latex_shape,
    "csv": csv_shape,
    "json": json_shape,
    "html": html_shape,
    "card": card_shape,
    "screens": terminal_shape,
}
REPORT_FORMATS = [name for name in SHAPES if name not in ("card", "screens")]


@pytest.fixture(scope="module")
def hostile_reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    reports = Reports(ACCEPTED_NAMES, tmp_path_factory.mktemp("hostile"))
    return reports.text_by_format


@pytest.fixture(scope="module")
def plain_reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    names = [f"plain{number}" for number in range(len(ACCEPTED_NAMES))]
    return Reports(names, tmp_path_factory.mktemp("plain")).text_by_format


@pytest.mark.parametrize("name", SHAPES)
def test_names_are_harmless_in_every_report(
    name: str, hostile_reports: dict[str, str], plain_reports: dict[str, str]
) -> None:
    """Reports of hostile names have the shape of those of as many plain ones."""
    assert len(plain_reports[name]) > 1000
    shape = SHAPES[name]
    hostile_report = check_harmless(hostile_reports[name])
    assert shape(hostile_report) == shape(plain_reports[name])


def test_a_report_in_json_has_the_true_names(hostile_reports: dict[str, str]) -> None:
    report = json.loads(hostile_reports["json"])
    content = json.dumps(report, ensure_ascii=False)
    # names of encoders and of data sets; the others are of classes alone
    names = ACCEPTED_NAMES[ENCODER::NAMES_OF_A_CACHE]
    names += ACCEPTED_NAMES[DATASET::NAMES_OF_A_CACHE]
    missing_names = [
        name for name in names if json.dumps(name, ensure_ascii=False) not in content
    ]
    assert missing_names == []


class HostileRun(NamedTuple):
    """A run on rows with hostile names, in folders with hostile names."""

    rows: list[dict[str, str]]
    data: Path
    cache: Path
    runs: Path

    @property
    def run_path(self) -> Path:
        return next(self.runs.glob("gaam*"))

    @property
    def class_names(self) -> list[str]:
        inspection = run("inspect", self.cache, "--json")
        return list(json.loads(inspection.out)["class_names"])


@pytest.fixture(scope="module")
def hostile_run(encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> HostileRun:
    # a field that begins with a byte-order mark is refused
    names = [name for name in ACCEPTED_NAMES if not name.startswith("\ufeff")]
    rows = [{"label": f"{name}n", "text": "goal", "note": name} for name in names]
    root = tmp_path_factory.mktemp("predict")
    data, cache, runs = (
        root / f"\x1b[31m\u202e[red]\n{name}" for name in ("data", "c", "r")
    )
    data.mkdir()
    lines = [json.dumps(row) for row in rows]
    (data / "train.jsonl").write_text("\n".join(lines * 2))
    (data / "test.jsonl").write_text("\n".join(lines))
    extraction = run(
        *("extract", "--encoder", encoder, "--dataset", data),
        *("--keep-column", "note", "--out", cache),
    )
    assert extraction.code == 0, extraction.err
    training = run(
        *("train", "--cache", cache, "--runs", runs, "--lr", 1),
        *("--seeds", 2, "--epochs", 1, "--no-probe"),
    )
    assert training.code == 0, training.err
    return HostileRun(rows, data, cache, runs)


def test_programs_read_the_true_names_of_classes(hostile_run: HostileRun) -> None:
    labels = sorted(row["label"] for row in hostile_run.rows)
    assert hostile_run.class_names == labels


@pytest.mark.parametrize("command", ["predict", "inspect", "report"])
def test_names_are_harmless_on_a_screen(command: str, hostile_run: HostileRun) -> None:
    """Names of classes, values of columns, and paths."""
    arguments: dict[str, tuple[object, ...]] = {
        "predict": (hostile_run.run_path, *(f"a {name}" for name in ACCEPTED_NAMES)),
        "inspect": (hostile_run.cache,),
        "report": (hostile_run.runs, "--all"),
    }
    outcome = run(command, *arguments[command])
    assert outcome.code == 0
    check_harmless(outcome.out + outcome.err)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_file_of_predictions_has_the_true_names(
    suffix: str, hostile_run: HostileRun, tmp_path: Path
) -> None:
    out = tmp_path / f"out.{suffix}"
    file = hostile_run.data / "test.jsonl"
    outcome = run("predict", hostile_run.run_path, "--file", file, "--out", out)
    assert outcome.code == 0, outcome.err
    predicted_rows = read_rows(out)
    for column in ("label", "note"):
        names = [row[column] for row in predicted_rows]
        assert names == [row[column] for row in hostile_run.rows]
    predicted = {row["predicted"] for row in predicted_rows}
    assert predicted <= set(hostile_run.class_names)
