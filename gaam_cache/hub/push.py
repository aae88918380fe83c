"""Export: a complete cache becomes a folder with a card, which the hub takes."""

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
from gaam_cache.common.markdown import (
    MOST_CLASSES,
    NOUNS,
    front_matter,
    items,
    licences,
    plain,
)
from gaam_cache.common.messages import brief, shortened, tell, visible
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.common.terminal import ReportProgress, no_progress
from gaam_cache.extraction.verify import verify
from gaam_cache.store.files import replace_folder, write_synced
from gaam_cache.store.plan import PLAN_FILE, SHARD_FOLDER, Plan, read_plan
from gaam_cache.store.reader import open_cache
from gaam_cache.store.shard import read_receipt

CARD_FILE = "README.md"
FORMAT_FILE = "FORMAT.md"
# only a person knows these entries of a card
SLOTS = {
    "license": "of the states: what data and encoder allow",
    "language": "of the texts or sounds, such as en",
}
CARD = """
# States of {name}

States of a frozen encoder on {what}: of every layer one pooled vector for each row, \
in plain HDF5,
as FORMAT.md says.

{about}

{count:,} classes; a label is the number of one, from 0 (all are in `cache.json`):

{classes}

## Use

```sh
hf download USER/NAME --repo-type dataset --local-dir cache
gaam verify cache
gaam train --cache cache --attn gaam --attn none
```

```python
gaam_cache.open_cache("cache")["{split}"].embeddings[:8]  # rows, layers, hidden size
datasets.load_dataset("USER/NAME", split="{split}")  # bfloat16 as its bits
```

## Limits

{limits}

{licences}
"""
COMMON_FILES = (".gitattributes", CARD_FILE, FORMAT_FILE)
EXPORTED_FILES = {
    "model": (*COMMON_FILES, "config.json", "model.safetensors"),
    "dataset": (*COMMON_FILES, "cache.json", "shards/*"),
}
"""Kind of a repository -> its files; the hub adds ``.gitattributes``."""


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
            f"  files        {self.files:,}, {self.bytes / 1e6:,.1f} MB",
        ]
        return visible("\n".join(lines), keep="\n")


def is_export(folder: Path) -> bool:
    """Whether a folder is an exported cache and holds nothing else."""
    expected_names = {PLAN_FILE, SHARD_FOLDER, CARD_FILE, FORMAT_FILE}
    names = {path.name for path in folder.iterdir()}
    if names != expected_names:
        return False
    plan = read_plan(folder)
    return plan == plan.portable()


def export_cache(
    path: str | Path,
    out: str | Path,
    *,
    overwrite: bool = False,
    progress: ReportProgress | None = None,
) -> CacheExport:
    """Make a folder of a cache, without paths or names of this machine.

    Shards and receipts are those of the cache, by hard links if the file system has
    them. The plan has the same fingerprint: the folder is a cache like any other.

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
    plan = cache.plan.portable()
    with replace_folder(root, out, is_export, overwrite=overwrite) as folder:
        _link_shards(root, cache.plan, folder)
        write_synced(folder / PLAN_FILE, plan.to_json().encode())
        _check_export(root, folder, progress or no_progress)
        format_page = Path(__file__).parents[1] / FORMAT_FILE
        write_synced(folder / FORMAT_FILE, format_page.read_bytes())
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


def _link_shards(root: Path, plan: Plan, folder: Path) -> None:
    """Link every shard and receipt of a cache into a folder, or copy them."""
    (folder / SHARD_FOLDER).mkdir()
    for shard in plan.shards():
        receipt = read_receipt(root, plan, shard)
        for name in (f"{shard.name}.json", receipt.file):
            # the file itself, not a link to it; the check of the export reads it
            file = os.path.realpath(root / SHARD_FOLDER / name)
            target = folder / SHARD_FOLDER / name
            try:
                os.link(file, target)
            except OSError:
                # another file system, or one without hard links
                shutil.copyfile(file, target)


def _check_export(root: Path, folder: Path, progress: ReportProgress) -> None:
    """Read every byte of an export.

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
    """The card of a cache, in Markdown; its plan must hold no path."""
    class_names = plan.class_names[:MOST_CLASSES]
    class_lines = [
        f"{number}. {plain(brief(name))}" for number, name in enumerate(class_names)
    ]
    body = CARD.format(
        name=plain(brief(plan.dataset_label)),
        what=NOUNS.get(plan.encoder["kind"], "rows"),
        about="\n".join(items(_facts(plan))),
        count=len(plan.class_names),
        classes="\n".join(class_lines),
        split=next(iter(plan.rows)),
        limits="\n".join(items(_limits(plan))),
        licences="\n".join(licences(("the data", "the encoder"))),
    )
    data_files = [
        {"split": split, "path": f"shards/{split}-*.h5"} for split in plan.rows
    ]
    head = {
        "pretty_name": f"States of {brief(plan.dataset_label)}",
        "tags": ["gaam", "embeddings", "hidden-states"],
        "configs": [{"config_name": "default", "data_files": data_files}],
    }
    return "\n".join(front_matter(head, SLOTS)) + "\n" + body


def _facts(plan: Plan) -> list[str]:
    """Lines of a card about the data, the encoder and the states."""
    identity = plan.identity
    if plan.imported:
        method = "computed elsewhere and imported"
    else:
        method = (
            f"computed in {identity['dtype']}, at most {identity['max_length']:,} long"
        )
    data_revision = brief(str(plan.dataset.get("revision")))
    encoder_revision = plan.encoder["revision"]
    facts = [
        f"data set: {brief(plan.dataset_label)}, revision {data_revision}",
        f"encoder: {brief(plan.encoder_label)}, revision {encoder_revision}, {method}",
        f"each row {plan.num_layers} layers x {plan.hidden_size}, {plan.storage_dtype}",
        f"pooled by {', '.join(plan.pooling)}; fingerprint {plan.fingerprint}",
        f"prompt around every text: {brief(str(identity.get('prompt')), 500)}",
        f"kept columns, as in the data: {', '.join(plan.columns) or 'none'}",
    ]
    for split, count in plan.rows.items():
        fact = f"{split}: {count:,} rows, {count * plan.row_bytes / 1e6:,.1f} MB"
        if split in plan.unlabelled:
            fact += ", without labels"
        facts.append(fact)
    return facts


def _limits(plan: Plan) -> list[str]:
    """Lines of a card about privacy and about rows that several splits share."""
    limits = [
        "terms and privacy of the data hold for its states: they may tell what a row "
        "was"
    ]
    for split, counts in plan.shared_texts.items():
        for other_split, count in counts.items():
            limits.append(
                f"{count:,} rows of {split} have a row of {other_split} that is the "
                "same"
            )
    return limits


@dataclass(frozen=True, slots=True)
class Destination:
    """A repository that this user may write to, as far as the hub tells in advance."""

    repo_id: str
    kind: str
    private: bool
    user: str
    commit: str | None  # the content that will be replaced; None if there is none
    url: str

    def send(self, folder: Path, *, yes: bool) -> str:
        """Send a folder in one commit, after a question on stderr unless ``yes``.

        Returns:
            The page of the repository.

        Raises:
            HubError: a link in the folder, the answer no, or a refusal of the hub.
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
            # the hub refuses if somebody has committed since check_destination
            api.upload_folder(
                repo_id=self.repo_id,
                repo_type=self.kind,
                folder_path=folder,
                commit_message="Export of gaam",
                delete_patterns="*" if self.commit else None,
                parent_commit=self.commit,
            )
        return self.url

    def _announcement(self, folder: Path) -> str:
        """What is sent, where it goes and who can read it there."""
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        state = "is replaced" if self.commit else "new or empty"
        readers = "private" if self.private else "PUBLIC: anyone can read it"
        return (
            f"to send: {len(sizes):,} files, {sum(sizes):,} bytes from '{folder}'\n"
            f"to {self.url} ({state}), {readers}, as {self.user}"
        )


def check_destination(
    repo_id: str,
    *,
    kind: str,
    private: bool = False,
    overwrite: bool = False,
    yes: bool = True,
) -> Destination:
    """Ask the hub who this user is and what a repository holds.

    Args:
        repo_id: USER/NAME.
        kind: 'model' or 'dataset'.
        private: a new repository is private.
        overwrite: an earlier export may be replaced.
        yes: no question will be asked before something is sent.

    Raises:
        ConfigError: another name, or a repository that may not be replaced.
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
    if repository is None:
        return Destination(repo_id, kind, private, user, None, url)
    if private and not repository.private:
        raise ConfigError(
            f"the {KINDS[kind]} '{repo_id}' exists and is public", found="--private"
        )
    names = [sibling.rfilename for sibling in repository.siblings or ()]
    _check_files(f"the {KINDS[kind]} '{repo_id}'", names, kind, overwrite=overwrite)
    # the hub makes this file in an empty repository
    is_empty = all(name == ".gitattributes" for name in names)
    commit = None if is_empty else repository.sha
    return Destination(repo_id, kind, bool(repository.private), user, commit, url)


def _check_can_push(repo_id: str, yes: bool) -> None:
    """Refuse, before the hub is asked, what it could not accept."""
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


def _check_files(
    repository: str, names: Sequence[str], kind: str, *, overwrite: bool
) -> None:
    """Refuse a repository with foreign files, or one that may not be replaced."""
    foreign_names = [name for name in names if not _is_exported_file(name, kind)]
    is_empty = all(name == ".gitattributes" for name in names)
    if foreign_names:
        example = foreign_names[0]
        hint = "choose another name"
    elif not is_empty and not overwrite:
        example = names[0]
        hint = "--overwrite replaces what is there"
    else:
        return
    raise ConfigError(
        f"{repository} exists; nothing was sent",
        found=f"{len(names):,} files, such as {visible(example)}",
        hint=hint,
    )


def _is_exported_file(name: str, kind: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in EXPORTED_FILES[kind])
