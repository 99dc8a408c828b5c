"""SHA-256 of the files of a model: recorded when it is saved, compared by `elmo verify`.

A folder of ours has a `SHA256SUMS`, as `sha256sum` writes and checks it. Cards are not in it:
people edit those. Loading a model compares descriptions and lists small enough to cost nothing;
`verify_model` hashes everything and reads every tensor.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from elmo.errors import ElmoError, ElmoWarning, InputError
from elmo.runtime.files import sha256_of, write_text
from elmo.runtime.input_files import is_bare_name, read_text, require_file, split_lines
from elmo.weights.card import CARD_JSON, README, ModelCard
from elmo.weights.formats import find_model, load_checkpoint

SUMS_FILE = "SHA256SUMS"
RECORDED_ENDINGS = (".json", ".safetensors", ".txt")

_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_FINGERPRINT = re.compile(r"\| fingerprint \| `([0-9a-f]{64})`")
_SMALL = 2**16
"""Bytes of a file that is hashed whenever a model is loaded: a tenth of a millisecond."""
_MOST_SUMS_BYTES = 2**16
_MOST_README_BYTES = 2**20


# --- recording ------------------------------------------------------------------------------------


def forget_sums(folder: Path) -> None:
    """Delete the record of a folder whose files are about to change."""
    (folder / SUMS_FILE).unlink(missing_ok=True)


def record_sums(folder: Path) -> None:
    """Write the SHA-256 of each file of a model that has just been saved."""
    names = sorted(
        path.name
        for path in folder.iterdir()
        if path.is_file() and path.suffix in RECORDED_ENDINGS and path.name != CARD_JSON
    )
    lines = (f"{sha256_of(folder / name)}  {name}\n" for name in names)
    write_text(folder / SUMS_FILE, "".join(lines))


def read_sums(folder: Path) -> dict[str, str]:
    """Return the recorded SHA-256 of files by their names; empty if nothing is recorded."""
    path = folder / SUMS_FILE
    if not path.exists():
        return {}
    sums: dict[str, str] = {}
    for number, line in enumerate(split_lines(path, read_text(path, _MOST_SUMS_BYTES)), start=1):
        match = _LINE.fullmatch(line)
        if match is None or not is_bare_name(match[2]):
            raise InputError(
                f"{path}, line {number}: {line[:80]!r} is no SHA-256 and name of a file; the file "
                "is damaged. Without it the model loads, but is not checked"
            )
        sums[match[2]] = match[1]
    return sums


def warn_of_changes(folder: Path) -> None:
    """Warn of descriptions and lists that are not those that were saved, if they are small."""
    changed = [
        name
        for name, recorded in read_sums(folder).items()
        if not name.endswith(".safetensors")
        and (path := folder / name).is_file()
        and path.stat().st_size <= _SMALL
        and sha256_of(path) != recorded
    ]
    if changed:
        warnings.warn(
            f"{folder}: {', '.join(changed)} changed since the model was saved: vectors may be "
            f"others. elmo verify {folder} checks all files; if you changed them yourself, delete "
            f"{SUMS_FILE} there",
            ElmoWarning,
            stacklevel=4,
        )


# --- verifying ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What is known of a part of a model."""

    name: str
    state: str
    """In words: `whole`, or what is wrong."""
    is_damaged: bool = False


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What `verify_model` found."""

    path: Path
    findings: tuple[Finding, ...]
    fingerprint: str | None = None
    """Of the sizes and tensors; None if they cannot be read."""

    @property
    def damaged(self) -> list[str]:
        """Names of parts that are damaged or missing."""
        return [finding.name for finding in self.findings if finding.is_damaged]

    @property
    def is_recorded(self) -> bool:
        """Whether there are checksums of all files."""
        return all(finding.state != _NOT_RECORDED for finding in self.findings)


_NOT_RECORDED = "no checksum is recorded"


def verify_model(path: Path) -> Verification:
    """Compare the files of a model with their recorded SHA-256, and read every tensor.

    Args:
        path: A folder or a weights file.
    """
    _, files = find_model(path)
    folder = files.weights.parent
    findings = list(_compared(folder))
    listed = {finding.name for finding in findings}
    parts = (files.options, files.weights, files.vocabulary, files.characters)
    findings += [
        Finding(name=part.name, state=_NOT_RECORDED)
        for part in parts
        if part is not None and part.name not in listed
    ]
    try:
        fingerprint = load_checkpoint(path).fingerprint()
    except ElmoError as error:
        findings.append(Finding(name="tensors", state=str(error), is_damaged=True))
        return Verification(path=path, findings=tuple(findings))
    stated = _stated_fingerprint(folder)
    state = "shapes are as configured, values are finite"
    if stated == fingerprint:
        state += f"; the fingerprint is that of {README}"
    elif stated is not None:
        state += f"; but the fingerprint is {fingerprint}, and {README} states {stated}"
    is_damaged = stated not in (None, fingerprint)
    findings.append(Finding(name="tensors", state=state, is_damaged=is_damaged))
    return Verification(path=path, findings=tuple(findings), fingerprint=fingerprint)


def _compared(folder: Path) -> Iterator[Finding]:
    """Compare files with the record of the folder and with that in the card."""
    seen: set[tuple[str, str]] = set()
    for origin, sums in ((SUMS_FILE, read_sums), (CARD_JSON, _sums_of_card)):
        try:
            recorded = sums(folder)
        except ElmoError as error:
            yield Finding(name=origin, state=str(error), is_damaged=True)
            continue
        for name, expected in recorded.items():
            if (name, expected) not in seen:
                yield _compare(folder / name, expected, origin)
        seen |= set(recorded.items())


def _sums_of_card(folder: Path) -> Mapping[str, str]:
    """Return what the card has recorded."""
    path = folder / CARD_JSON
    return ModelCard.read(path).files if path.exists() else {}


def _compare(path: Path, expected: str, origin: str) -> Finding:
    try:
        require_file(path)
        found = sha256_of(path)
    except (ElmoError, OSError) as error:
        return Finding(name=path.name, state=f"{error} ({origin} lists it)", is_damaged=True)
    if found == expected:
        return Finding(name=path.name, state=f"whole, as {origin} says")
    state = f"damaged or changed: its SHA-256 is {found}, {origin} has {expected}"
    return Finding(name=path.name, state=state, is_damaged=True)


def _stated_fingerprint(folder: Path) -> str | None:
    """Return the fingerprint in the README.md of a model, if there is one."""
    path = folder / README
    if not path.is_file():
        return None
    match = _FINGERPRINT.search(read_text(path, _MOST_README_BYTES))
    return None if match is None else match[1]
