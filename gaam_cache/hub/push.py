"""Export: copy a complete cache into a folder with a card, and send it to the hub.

A card is the README.md that describes the cache to people on the hub.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gaam_cache.common.download import KINDS, hub_errors
from gaam_cache.common.errors import CacheError, ConfigError, HubError
from gaam_cache.common.markdown import MOST_CLASSES, NOUNS, escape_markdown
from gaam_cache.common.messages import (
    brief,
    counted,
    shortened,
    size_in_words,
    tell,
    visible,
)
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.common.terminal import ReportProgress, no_progress
from gaam_cache.extraction.verify import verify
from gaam_cache.hub.card import CARD_FILE, Card
from gaam_cache.store.files import replace_folder, write_synced
from gaam_cache.store.plan import PLAN_FILE, SHARD_FOLDER, Plan, read_plan
from gaam_cache.store.reader import open_cache
from gaam_cache.store.shard import read_receipt

FORMAT_FILE = "FORMAT.md"
# gaam cannot know these entries of a card: a person fills them in
ENTRIES_TO_FILL_IN = {
    "license": "of the states: what data and encoder allow",
    "language": "of the texts or sounds, such as en",
}
SUMMARY = """\
States of a frozen encoder on {rows}: of every layer one pooled vector for each row, \
in plain HDF5,
as FORMAT.md says."""
USAGE = """\
```sh
hf download USER/NAME --repo-type dataset --local-dir cache
gaam verify cache
gaam train --cache cache --attn gaam --attn none
```

```python
gaam_cache.open_cache("cache")["{split}"].embeddings[:8]  # rows, layers, hidden size
datasets.load_dataset("USER/NAME", split="{split}")  # bfloat16 as its bits
```"""
HUB_FILE = ".gitattributes"  # the hub adds it to every repository
COMMON_FILES = (HUB_FILE, CARD_FILE, FORMAT_FILE)
EXPORTED_FILES = {
    "model": (*COMMON_FILES, "config.json", "model.safetensors"),
    "dataset": (*COMMON_FILES, "cache.json", "shards/*"),
}
"""Kind of a repository -> the names of its files, as patterns."""


@dataclass(frozen=True, slots=True)
class CacheExport:
    """The result of an export of a cache."""

    path: str
    fingerprint: str
    rows: dict[str, int]
    columns: tuple[str, ...]  # kept columns, which leave this machine with the states
    files: int
    bytes: int

    to_dict = asdict

    def in_words(self) -> str:
        rows = ", ".join(f"{name} {count:,}" for name, count in self.rows.items())
        lines = [
            f"exported to '{shown_path(self.path)}', every byte checked",
            f"  rows         {rows}",
            f"  columns      {', '.join(self.columns) or 'none kept'}",
            f"  files        {self.files:,}, {size_in_words(self.bytes)}",
        ]
        return visible("\n".join(lines), keep="\n")


def is_export(folder: Path) -> bool:
    """Whether a folder is an exported cache and holds nothing else.

    Only such a folder may be replaced by another export.
    """
    expected_names = {PLAN_FILE, SHARD_FOLDER, CARD_FILE, FORMAT_FILE}
    names = {path.name for path in folder.iterdir()}
    if names != expected_names:
        return False
    # the plan of a cache that is no export has paths of the machine that made it
    plan = read_plan(folder)
    return plan == plan.portable()


def export_cache(
    path: str | Path,
    out: str | Path,
    *,
    overwrite: bool = False,
    progress: ReportProgress | None = None,
) -> CacheExport:
    """Copy a cache into a folder that can be published, with a card that describes it.

    The copy has no paths or names of this machine. Shards and receipts are hard links
    to those of the cache if the file system has such links. The plan has the same
    fingerprint: the folder is a cache like any other.

    >>> made = gaam_cache.export_cache("cache", "for-the-hub")

    Args:
        path: a complete cache.
        out: a folder that is empty or does not exist.
        overwrite: replace an earlier export.
        progress: called with (done, total, current work).

    Raises:
        GaamError: the cache is incomplete or damaged, or ``out`` is in use. Nothing is
            exported then.
    """
    root = absolute_path(path)
    out = absolute_path(out)
    cache = open_cache(root)
    # without paths and names of this machine
    plan = cache.plan.portable()
    with replace_folder(root, out, is_export, overwrite=overwrite) as folder:
        _link_shards(root, cache.plan, folder)
        write_synced(folder / PLAN_FILE, plan.to_json().encode())
        _check_export(root, folder, progress or no_progress)
        write_synced(folder / FORMAT_FILE, _format_page().read_bytes())
        write_synced(folder / CARD_FILE, card(plan).encode())
        sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    return CacheExport(
        path=str(out),
        fingerprint=plan.fingerprint,
        rows=plan.rows,
        columns=tuple(plan.columns),
        files=len(sizes),
        bytes=sum(sizes),
    )


def _format_page() -> Path:
    """The page that specifies the format of a cache.

    A wheel has it inside the package, a checkout among the pages of the documentation.
    """
    package = Path(__file__).resolve().parents[1]
    installed = package / FORMAT_FILE
    if installed.is_file():
        return installed
    return package.parent / "docs" / "reference" / "cache-format.md"


def _link_shards(root: Path, plan: Plan, folder: Path) -> None:
    """Link every shard and receipt of a cache into a folder, or copy them.

    A hard link takes no space: both names stand for one file.
    """
    (folder / SHARD_FOLDER).mkdir()
    for shard in plan.shards():
        receipt = read_receipt(root, plan, shard)
        for name in (f"{shard.name}.json", receipt.file):
            # a shard may be a symbolic link: the export holds the file behind it
            file = os.path.realpath(root / SHARD_FOLDER / name)
            target = folder / SHARD_FOLDER / name
            try:
                os.link(file, target)
            except OSError:
                # the folder is on another file system, or has no hard links
                shutil.copyfile(file, target)


def _check_export(root: Path, folder: Path, progress: ReportProgress) -> None:
    """Read every byte of the export in ``folder`` and compare it with its receipts.

    Args:
        root: the cache that is being exported, for the message.
        folder: the export.
        progress: called with (done, total, current work).

    Raises:
        CacheError: a file is damaged.
    """
    verification = verify(folder, progress=progress)
    if verification.good:
        return
    reasons = [f"{entry['name']}: {entry['reason']}" for entry in verification.bad[:3]]
    raise CacheError(
        f"the cache '{visible(str(root))}' is damaged; nothing was exported",
        found="; ".join(reasons),
        hint="'gaam verify' says how to repair it",
    )


def card(plan: Plan) -> str:
    """The card of a cache, in Markdown.

    The card is published, so ``plan`` must be a portable plan, without local paths.
    """
    data_files = [
        {"split": split, "path": f"shards/{split}-*.h5"} for split in plan.rows
    ]
    target_names = plan.target_names[:MOST_CLASSES]
    cache_card = Card(
        kind="dataset",
        metadata={
            "pretty_name": f"States of {brief(plan.dataset_label)}",
            "tags": ["gaam", "embeddings", "hidden-states"],
            "configs": [{"config_name": "default", "data_files": data_files}],
        },
        entries_to_fill_in=ENTRIES_TO_FILL_IN,
        title=f"States of {escape_markdown(brief(plan.dataset_label))}",
        summary=SUMMARY.format(rows=NOUNS.get(plan.kind, "rows")),
        facts=_fact_lines(plan),
        classes_title=_targets_title(plan),
        classes=[
            f"{number}. {escape_markdown(brief(name))}"
            for number, name in enumerate(target_names)
        ],
        usage=USAGE.format(split=next(iter(plan.rows))),
        limits=_limitation_lines(plan),
        subjects_to_license=("the data", "the encoder"),
    )
    return cache_card.to_markdown()


def _targets_title(plan: Plan) -> str:
    """The line of a card above the names of the classes, numbers or labels."""
    meanings = {
        "classes": "classes; a label is the number of one, from 0",
        "numbers": "columns of numbers (regression); a label is a row of them",
        "label-sets": "labels; a row has a 0 or 1 for each (multi-label)",
    }
    target = plan.target
    meaning = meanings.get(target.kind, f"targets of the task {target.task}")
    return f"{len(target.names):,} {meaning} (all are in `cache.json`):"


def _fact_lines(plan: Plan) -> list[str]:
    """The lines of a card that describe the data set, the encoder and the states.

    One further line for each split gives its rows and its size.
    """
    identity = plan.identity
    if plan.imported:
        method = "computed elsewhere and imported"
    else:
        method = (
            f"computed in {identity['dtype']}, at most {identity['max_length']:,} long"
        )
    data_revision = brief(str(plan.dataset.revision))
    encoder_revision = plan.encoder.revision
    layers = counted(plan.num_layers, "layer")
    facts = [
        f"data set: {brief(plan.dataset_label)}, revision {data_revision}",
        f"encoder: {brief(plan.encoder_label)}, revision {encoder_revision}, {method}",
        f"each row {layers} x {plan.hidden_size}, {plan.storage_dtype}",
        f"pooled by {', '.join(plan.pooling)}; fingerprint {plan.fingerprint}",
        f"prompt around every text: {brief(str(identity.get('prompt')), 500)}",
        f"kept columns, as in the data: {', '.join(plan.columns) or 'none'}",
    ]
    for split, count in plan.rows.items():
        fact = (
            f"{split}: {counted(count, 'row')}, {size_in_words(count * plan.row_bytes)}"
        )
        if split in plan.unlabelled:
            fact += ", without labels"
        facts.append(fact)
    return facts


def _limitation_lines(plan: Plan) -> list[str]:
    """The lines of a card that state the limitations of the states.

    The first line is about terms and privacy. For every pair of splits that share
    rows, one further line counts these rows.
    """
    lines = [
        "terms and privacy of the data hold for its states: they may tell what a row "
        "was"
    ]
    for split, num_rows_by_other_split in plan.dataset.shared_texts.items():
        for other_split, num_rows in num_rows_by_other_split.items():
            lines.append(
                f"{num_rows:,} rows of {split} have a row of {other_split} that is the "
                "same"
            )
    return lines


@dataclass(frozen=True, slots=True)
class Destination:
    """A repository of the hub that this user may write to, as far as the hub tells."""

    repo_id: str  # USER/NAME
    kind: str  # 'model' or 'dataset'
    private: bool
    user: str  # who is logged in
    replaced_commit: str | None
    """The latest commit, which an export replaces; None if there is no content yet."""
    url: str  # its page

    def send(self, folder: Path, *, yes: bool) -> str:
        """Send a folder to the repository in one commit.

        Args:
            folder: the export.
            yes: send without a question; otherwise ask the user on stderr first.

        Returns:
            The page of the repository.

        Raises:
            HubError: the folder has a symbolic link, the user answers no, or the hub
                refuses.
        """
        from huggingface_hub import HfApi

        # the hub would receive the target of a link, which may lie anywhere
        links = [path for path in folder.rglob("*") if path.is_symlink()]
        if links:
            raise HubError(
                "nothing was sent",
                expected="files",
                found=f"a link, '{links[0].relative_to(folder)}'",
                where=str(folder),
            )
        tell(self._announcement(folder), to=sys.stderr)
        if not yes:
            print("send it? [y/N] ", end="", file=sys.stderr, flush=True)
            answer = sys.stdin.readline().strip().casefold()
            if answer not in ("y", "yes"):
                raise HubError("nothing was sent", found="no", where=str(folder))
        api = HfApi()
        with hub_errors(self.repo_id, kind=self.kind):
            api.create_repo(
                self.repo_id, repo_type=self.kind, private=self.private, exist_ok=True
            )
            # old files are deleted in the same commit; the hub refuses this commit if
            # somebody else has committed since check_destination
            api.upload_folder(
                repo_id=self.repo_id,
                repo_type=self.kind,
                folder_path=folder,
                commit_message="Export of gaam",
                delete_patterns="*" if self.replaced_commit else None,
                parent_commit=self.replaced_commit,
            )
        return self.url

    def _announcement(self, folder: Path) -> str:
        """Lines that say what is sent, to which repository, and who can read it."""
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        # a repository without content has no commit that could be replaced
        repository_state = "is replaced" if self.replaced_commit else "new or empty"
        readers = "private" if self.private else "PUBLIC: anyone can read it"
        return (
            f"to send: {len(sizes):,} files, {sum(sizes):,} bytes from '{folder}'\n"
            f"to {self.url} ({repository_state}), {readers}, as {self.user}"
        )


def check_destination(
    repo_id: str,
    *,
    kind: str,
    private: bool = False,
    overwrite: bool = False,
    yes: bool = True,
) -> Destination:
    """Ask the hub whether this user can send an export to a repository.

    Args:
        repo_id: USER/NAME.
        kind: 'model' or 'dataset'.
        private: make a new repository private.
        overwrite: replace an earlier export in the repository.
        yes: the user will not be asked before the export is sent, so no terminal is
            needed.

    Returns:
        The repository, which need not exist yet.

    Raises:
        ConfigError: ``repo_id`` is not USER/NAME; the repository may not be replaced;
            or it is public although ``private`` is asked for.
        HubError: the hub is out of reach, or refuses this user.
    """
    from huggingface_hub import HfApi

    _check_can_push(repo_id, yes)
    api = HfApi()
    repository: Any = None
    with hub_errors(repo_id, kind=kind):
        if api.repo_exists(repo_id, repo_type=kind):
            repository = api.repo_info(repo_id, repo_type=kind)
        user = str(api.whoami()["name"])

    path = f"datasets/{repo_id}" if kind == "dataset" else repo_id
    url = f"{api.endpoint}/{path}"
    # None: a repository that is new or empty holds nothing to replace
    replaced_commit: str | None = None
    if repository is not None:
        subject = f"the {KINDS[kind]} '{repo_id}'"
        if private and not repository.private:
            raise ConfigError(f"{subject} exists and is public", found="--private")
        private = bool(repository.private)
        file_names = [sibling.rfilename for sibling in repository.siblings or ()]
        _check_may_replace(subject, file_names, kind, overwrite=overwrite)
        if not _is_empty_repository(file_names):
            replaced_commit = repository.sha
    return Destination(
        repo_id=repo_id,
        kind=kind,
        private=private,
        user=user,
        replaced_commit=replaced_commit,
        url=url,
    )


def _check_can_push(repo_id: str, yes: bool) -> None:
    """Refuse a push that cannot work, before the hub is asked.

    Args:
        repo_id: must be USER/NAME.
        yes: the user need not confirm the push, so no terminal is needed.

    Raises:
        ConfigError: the name is wrong, or nobody can confirm the push.
        HubError: this machine has no token for the hub.
    """
    from huggingface_hub import get_token

    if repo_id.count("/") != 1:
        raise ConfigError(
            "--push needs USER/NAME", expected="one '/'", found=shortened(repo_id)
        )
    can_ask = sys.stdin is not None and sys.stdin.isatty()
    if not yes and not can_ask:
        raise ConfigError(
            "--push asks, and nobody is there", expected="a terminal, or --yes"
        )
    if get_token() is None:
        raise HubError("no token for the hub", hint="'hf auth login', or set HF_TOKEN")


def _check_may_replace(
    repository: str, file_names: Sequence[str], kind: str, *, overwrite: bool
) -> None:
    """Refuse a repository whose files must not be replaced.

    Args:
        repository: what messages call it.
        file_names: the files that it has now.
        kind: 'model' or 'dataset'.
        overwrite: files of an earlier export may be replaced.

    Raises:
        ConfigError: it has a file that no export writes; or it has an earlier export
            and ``overwrite`` is false.
    """
    present_names = [name for name in file_names if name != HUB_FILE]
    foreign_names = [
        name for name in present_names if not _is_exported_file(name, kind)
    ]
    if not foreign_names and (overwrite or _is_empty_repository(file_names)):
        return
    example = present_names[0]
    hint = "--overwrite replaces what is there"
    # not even overwrite removes a file that no export has written
    if foreign_names:
        example = foreign_names[0]
        hint = "choose another name"
    raise ConfigError(
        f"{repository} exists; nothing was sent",
        found=f"{visible(example)}; files in all: {len(present_names):,}",
        hint=hint,
    )


def _is_empty_repository(file_names: Sequence[str]) -> bool:
    """Whether a repository has no file but the one that the hub makes."""
    return all(name == HUB_FILE for name in file_names)


def _is_exported_file(name: str, kind: str) -> bool:
    """Whether exports of this kind, 'model' or 'dataset', write a file of this name."""
    return any(fnmatchcase(name, pattern) for pattern in EXPORTED_FILES[kind])
