"""Model cards beside saved weights, for readers, the Hugging Face Hub and `elmo info`.

Every saved model gets a README.md with its sizes. A trained one may have a `card.json`, too: data,
time, results and the commands that measure them. That is a `ModelCard`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from elmo.config import ElmoConfig
from elmo.errors import ConfigError
from elmo.model.perplexity import Perplexity
from elmo.runtime.files import sha256_of
from elmo.runtime.input_files import is_bare_name, read_json

CARD_JSON = "card.json"
README = "README.md"


@dataclass(frozen=True, kw_only=True)
class Source:
    """A text that a model was trained on."""

    name: str
    license: str
    address: str = ""
    """Where it can be downloaded."""
    words: int = 0


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A result, with the command that measures it."""

    name: str
    value: str
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What there is to know of a trained model."""

    name: str
    language: str
    """Code of the language, such as `en`."""
    description: str
    license: str
    """Of the weights."""
    sources: tuple[Source, ...] = ()
    tokenizer: str = ""
    """How its texts were split: the value of `elmo prepare --tokenizer`."""
    vocabulary_size: int = 0
    """Words that the output layer knows."""
    unknown_rate: float | None = None
    """Share of held-out words that it does not know."""
    parameters: int = 0
    """Without the output layer."""
    tokens: int = 0
    """Words that were read in training, repetitions counted."""
    minutes: float | None = None
    device: str = ""
    cost: str = ""
    perplexity: Perplexity | None = None
    """On held-out documents, the full softmax."""
    figures: tuple[Figure, ...] = ()
    commands: tuple[str, ...] = ()
    """From the texts to this folder."""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """SHA-256 of each file beside the card."""

    @classmethod
    def from_dict(cls, content: Any, origin: str = CARD_JSON) -> Self:
        """Build a card from the content of a JSON file, which is checked.

        Args:
            content: What was read.
            origin: Where it was read, for messages.
        """
        fields = _checked(cls, content, origin)
        for name, kind in (("sources", Source), ("figures", Figure)):
            entries = fields.get(name, ())
            if not isinstance(entries, list | tuple):
                raise ConfigError(f"{origin}: {name} is {entries!r}, expected a list")
            fields[name] = tuple(
                kind(**_checked(kind, entry, f"{origin}, {name}")) for entry in entries
            )
        if fields.get("perplexity") is not None:
            fields["perplexity"] = _perplexity(fields["perplexity"], f"{origin}, perplexity")
        commands = fields.get("commands", ())
        fields["commands"] = tuple(commands) if isinstance(commands, list | tuple) else (commands,)
        files = fields.setdefault("files", {})
        if not isinstance(files, dict) or not all(
            isinstance(digest, str) and is_bare_name(name) for name, digest in files.items()
        ):
            raise ConfigError(
                f"{origin}: files is {files!r}, expected names of files beside the card, each with "
                "its SHA-256"
            )
        if not all(isinstance(text, str) for text in fields["commands"]):
            raise ConfigError(f"{origin}: commands is {fields['commands']!r}, expected texts")
        return cls(**fields)

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Read a `card.json`."""
        return cls.from_dict(read_json(Path(path)), str(path))

    def to_json(self) -> str:
        """Return the content of a `card.json`."""
        fields = dataclasses.asdict(self)
        if self.perplexity is not None:
            fields["perplexity"] = {side: getattr(self.perplexity, side) for side in _SIDES}
        return json.dumps(fields, indent=2, ensure_ascii=False) + "\n"

    def sealed(self, folder: Path) -> Self:
        """Return the same card with the SHA-256 of the files of a folder, except cards."""
        paths = sorted(path for path in folder.iterdir() if path.is_file())
        files = {
            path.name: sha256_of(path)
            for path in paths
            if path.name not in (CARD_JSON, README, "SHA256SUMS") and not path.name.startswith(".")
        }
        return dataclasses.replace(self, files=files)

    def changed_files(self, folder: Path) -> list[str]:
        """List the files of a folder that are not what the card says, or not there."""
        return [
            name
            for name, recorded in self.files.items()
            if not (folder / name).is_file() or sha256_of(folder / name) != recorded
        ]

    # --- as text --------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """Yield the card as lines for a terminal."""
        yield f"{self.name}: {self.description}"
        yield ""
        facts = self.facts()
        width = max(map(len, facts))
        yield from (f"{name:<{width}}  {value}" for name, value in facts.items())
        figures = [
            line
            for figure in self.figures
            for line in (f"{figure.name}: {figure.value}", f"    $ {figure.command}")
            if line.strip() != "$"
        ]
        for title, entries in (
            ("trained on", [_about(source) for source in self.sources]),
            ("figures", figures),
            ("how it was made", [f"$ {command}" for command in self.commands]),
        ):
            if entries:
                yield from ("", f"{title}:", *(f"  {entry}" for entry in entries))

    def markdown(self, config: ElmoConfig, fingerprint: str) -> str:
        """Return the README.md of a model's folder, as the Hugging Face Hub expects it."""
        sections = [
            _HEADER.format(language=f"language: {self.language}\n"),
            f"# {self.name}\n\n{self.description}\n",
            _example(self.name, config),
            _table(("", ""), [*self.facts().items(), *_sizes(config, fingerprint)]),
        ]
        if self.sources:
            about = "".join(f"- {_about(source)}\n" for source in self.sources)
            sections.append(f"## Trained on\n\n{about}")
        if self.figures:
            figures = [(f.name, f.value, f"`{f.command}`" * bool(f.command)) for f in self.figures]
            sections.append("## Figures\n\n" + _table(("what", "value", "command"), figures))
        if self.commands:
            commands = "".join(f"{command}\n" for command in self.commands)
            sections.append(f"## How it was made\n\n```\n{commands}```\n")
        files = [(f"`{name}`", f"`{digest}`") for name, digest in self.files.items()]
        sections.append("## Files\n\n" + _table(("file", "SHA-256"), files))
        return "\n".join(sections)

    def facts(self) -> dict[str, str]:
        """Return what is known, by its name for readers."""
        found = self.perplexity
        facts = {
            "language": self.language,
            "license of the weights": self.license,
            "parameters": f"{self.parameters:,}" if self.parameters else "",
            "tokenizer": self.tokenizer,
            "vocabulary": f"{self.vocabulary_size:,} words" if self.vocabulary_size else "",
            "unknown words": "" if self.unknown_rate is None else f"{self.unknown_rate:.2%}",
            "words read in training": f"{self.tokens:,}" if self.tokens else "",
            "time": "" if self.minutes is None else f"{self.minutes:,.1f} minutes",
            "device": self.device,
            "cost": self.cost,
            "held-out perplexity": ""
            if found is None
            else f"{found.mean:.2f} (forward {found.forward:.2f}, backward {found.backward:.2f})",
        }
        return {name: value for name, value in facts.items() if value}


def _about(source: Source) -> str:
    words = f", {source.words:,} words" if source.words else ""
    address = f" ({source.address})" if source.address else ""
    return f"{source.name}{address}{words}, {source.license}"


_SIDES = ("forward", "backward", "mean")


def _perplexity(content: Any, origin: str) -> Perplexity:
    """Read the perplexity of a card; its mean follows from the two directions."""
    if not isinstance(content, dict) or not {*_SIDES[:2]} <= {*content} <= {*_SIDES}:
        raise ConfigError(f"{origin}: is {content!r}, expected the fields {', '.join(_SIDES)}")
    for side in _SIDES[:2]:
        if not isinstance(content[side], int | float) or not content[side] > 0:
            raise ConfigError(f"{origin}: {side} is {content[side]!r}, expected a positive number")
    return Perplexity(forward=content["forward"], backward=content["backward"])


# --- the card of a model of which only sizes and weights are known --------------------------------


def model_card(config: ElmoConfig, n_parameters: int, fingerprint: str) -> str:
    """Return the README.md of a model without a card, as the Hugging Face Hub expects it."""
    sections = [
        _HEADER.format(language=""),
        f"# ELMo, {n_parameters / 1e6:.1f} M parameters\n",
        _ABOUT,
        _example("path/to/this/folder", config),
        _table(("", ""), _sizes(config, fingerprint)),
        _REST,
    ]
    return "\n".join(sections)


_HEADER = """\
---
library_name: elmo-torch
{language}pipeline_tag: feature-extraction
tags:
- elmo
- contextual-word-embeddings
---
"""

_ABOUT = """\
A bidirectional language model that gives a vector to every word in its context
(Peters et al. 2018, *Deep contextualized word representations*).
"""

_REST = """\
The fingerprint is a SHA-256 of sizes and weights; it is the same in every file format.

## To be filled in by whoever trained it

Training data and its license, number of tokens, held-out perplexity, known limits.
"""


def _example(name: str, config: ElmoConfig) -> str:
    shape = f"({config.n_layers + 1}, 4, {config.output_dim})"
    return f"""\
```python
from elmo import ELMo

elmo = ELMo.from_pretrained("{name}")
vectors = elmo.encode_tokens([["The", "river", "bank", "."]])[0]  # {shape}
```
"""


def _sizes(config: ElmoConfig, fingerprint: str) -> list[tuple[str, str]]:
    if config.reads_characters:
        kind = "code points of an alphabet" if config.has_alphabet else "UTF-8 bytes"
        reads = (
            f"characters ({kind}, {config.max_characters} a word), "
            f"{config.n_filters} filters, {config.n_highway} highway layers"
        )
    else:
        reads = f"words of a vocabulary of {config.n_words:,}"
    layers = (
        f"{config.n_layers} per direction, {config.dim} {config.cell.upper()} cells, projected to "
        f"{config.projection_dim}"
    )
    return [
        ("input", reads),
        ("recurrent layers", layers),
        ("output", f"{config.n_layers + 1} layers of {config.output_dim} values for every word"),
        ("fingerprint", f"`{fingerprint}`"),
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["|" + "|".join(f" {name} " if name else " " for name in head) + "|"]
    lines += ["|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join(lines) + "\n"


def _checked(kind: type[Any], content: Any, origin: str) -> dict[str, Any]:
    """Raise an error unless a JSON object has the fields of a record, and no others."""
    if not isinstance(content, dict):
        raise ConfigError(f"{origin} holds a {type(content).__name__}, expected a JSON object")
    fields = dataclasses.fields(kind)
    known = {field.name for field in fields}
    unknown = sorted(set(content) - known)
    if unknown:
        raise ConfigError(
            f"{origin}: unknown field {unknown[0]!r}; known are {', '.join(sorted(known))}"
        )
    absent = (dataclasses.MISSING, dataclasses.MISSING)
    needed = {f.name for f in fields if (f.default, f.default_factory) == absent}
    missing = sorted(needed - set(content))
    if missing:
        raise ConfigError(f"{origin}: the field {missing[0]!r} is missing")
    for field in fields:
        kinds = _KINDS.get(str(field.type))
        value = content.get(field.name, field.default)
        if kinds and (isinstance(value, bool) or not isinstance(value, kinds)):
            raise ConfigError(f"{origin}: {field.name} is {value!r}, expected {field.type}")
    return dict(content)


_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float | None": (int, float, type(None)),
}
"""Types of JSON values, by the types of fields."""
