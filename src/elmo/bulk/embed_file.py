"""Embed a whole text file into a file of vectors, in constant memory and resumable."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from elmo import __version__
from elmo.bulk.formats import check_output, format_of, is_complete, open_writer
from elmo.bulk.writer import VectorInfo, VectorWriter
from elmo.embed.selection import select_layers
from elmo.embedder import ELMo
from elmo.errors import OutputError
from elmo.model.state import State
from elmo.settings import EmbedSettings
from elmo.text.files import (
    TextFile,
    get_tokenizer,
    read_sentences,
    refuse_to_replace,
    require_text,
)
from elmo.text.sentences import Words


@dataclass(frozen=True, kw_only=True)
class EmbedReport:
    """Figures of a run of `embed_file`."""

    n_sentences: int
    """Sentences in the output."""
    n_resumed: int
    """How many of them were there before."""
    n_words: int
    """Words embedded now."""
    n_cut_words: int
    """How many of these were longer than the model reads and lost their end."""
    seconds: float

    @property
    def words_per_second(self) -> float:
        """Speed of this run."""
        return self.n_words / max(self.seconds, 1e-9)


def embed_file(
    model: ELMo,
    source: Path | str,
    output: Path | str,
    settings: EmbedSettings | None = None,
    show_progress: bool = False,
) -> EmbedReport | None:
    """Embed the sentences of a text file into a file of vectors.

    Args:
        model: The model.
        source: A text file; `-` for standard input.
        output: The file to write.
        settings: How; the defaults if None.
        show_progress: Whether to show a progress bar on standard error.

    Returns:
        Figures of the run; None if `resume` was given and the output was complete already.
    """
    settings = settings or EmbedSettings()
    check_paths(source, output, settings)
    if settings.resume and is_complete(output):
        return None
    started, cut_before = time.monotonic(), model.n_cut_words
    with TextFile(source, settings.encoding) as file:
        sentences = read_sentences(file, get_tokenizer(settings.tokenizer))
        windows = model.stream_windows(
            sentences,
            layers=settings.layers,
            state=settings.state,
            batch_size=settings.batch_size,
            batch_tokens=settings.batch_tokens,
            dtype=settings.dtype,
        )
        with open_writer(
            output,
            format_of(output, settings.format),
            vector_info(model, settings),
            resume=settings.resume,
            overwrite=settings.overwrite,
            forget_sentences=settings.forget_sentences,
        ) as writer:
            n_resumed = writer.n_written
            _skip_written(sentences, writer)
            _restore_state(model, writer, settings)
            n_words = 0
            with _progress_bar(file, show_progress) as bar:
                for window, vectors in windows:
                    _keep_state(model, writer, settings, len(window))
                    writer.append(window, vectors)
                    n_words += sum(map(len, window))
                    _advance(bar, file, n_words, time.monotonic() - started)
            writer.finish()
    return EmbedReport(
        n_sentences=writer.n_written,
        n_resumed=n_resumed,
        n_words=n_words,
        n_cut_words=model.n_cut_words - cut_before,
        seconds=time.monotonic() - started,
    )


def check_paths(source: Path | str, output: Path | str, settings: EmbedSettings) -> None:
    """Refuse an input that cannot be read or an output that may not be written; change nothing."""
    require_text(source, settings.encoding)
    get_tokenizer(settings.tokenizer)
    for path in (source, settings.token_file, settings.token_vocabulary):
        if path is not None:
            refuse_to_replace(path, output)
    format = format_of(output, settings.format)
    check_output(output, format, settings.resume, settings.overwrite)


def vector_info(model: ELMo, settings: EmbedSettings) -> VectorInfo:
    """Return the facts of the file that a run will write."""
    select_layers(settings.layers, model.config)  # fails here rather than after the output is begun
    return VectorInfo(
        model_sha256=model.fingerprint,
        layers=str(settings.layers),
        state=settings.state,
        dtype=settings.dtype,
        dim=model.dim,
        n_layers=model.n_layers if settings.layers == "all" else 0,
        tokenizer=settings.tokenizer,
        precision=model.precision,
        batch_size=model.carry_rows(settings.batch_size) if settings.state == "carry" else 0,
        elmo_version=__version__,
    )


def _keep_state(
    model: ELMo, writer: VectorWriter, settings: EmbedSettings, n_sentences: int
) -> None:
    """Keep the state carried after so many sentences, which are written next."""
    if settings.state == "carry" and model.carried_state is not None:
        state = {name: part.cpu().numpy() for name, part in model.carried_state._asdict().items()}
        writer.keep_state(state, writer.n_written + n_sentences)


def _skip_written(sentences: Iterator[Words], writer: VectorWriter) -> None:
    """Skip the sentences that are in already, and check that they are the same."""
    for number, before in enumerate(writer.written_sentences()):
        now = next(sentences, None)
        if now != before:
            received = "the end of the text" if now is None else repr(" ".join(islice(now, 8)))
            raise OutputError(
                f"{writer.path} was begun with another text: sentence {number} was "
                f"{' '.join(before[:8])!r}, now it is {received}; give the same input, or "
                "--overwrite to start anew"
            )


def _restore_state(model: ELMo, writer: VectorWriter, settings: EmbedSettings) -> None:
    """Reset the carried state, or restore that of the run that is resumed."""
    model.reset()
    if settings.state == "carry" and writer.n_written:
        kept = writer.kept_state()
        parts = (torch.from_numpy(kept[name]).to(model.device) for name in State._fields)
        model.carried_state = State(*parts)


def _progress_bar(file: TextFile, show: bool) -> Any:
    total = file.total_bytes
    known = "{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
    return tqdm(
        total=total,
        disable=not show,
        bar_format=known if total else "{elapsed}{postfix}",
        postfix="starting",
    )


def _advance(bar: Any, file: TextFile, n_words: int, seconds: float) -> None:
    speed = n_words / max(seconds, 1e-9)
    bar.set_postfix_str(f"{n_words:,} words, {speed:,.0f} words/s", refresh=False)
    bar.n = file.bytes_read
    bar.refresh()
