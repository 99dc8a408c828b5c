"""Embed a whole text file into a file of vectors, in constant memory and resumable."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import get_args

import torch
from tqdm import tqdm

from elmo import __version__
from elmo.bulk.writer import (
    VectorInfo,
    VectorWriter,
    check_paths,
    format_of,
    is_complete,
    open_writer,
    require_made_of,
)
from elmo.embed.pipeline import carry_rows
from elmo.embedder import ELMo, watched
from elmo.errors import ConfigError, OutputError
from elmo.model.bilm import State
from elmo.settings import EmbedSettings, TokenizerName
from elmo.text.files import TextFile, get_tokenizer, read_sentences
from elmo.text.sentences import Words

_BAR = "{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"
_BAR_WITHOUT_END = "{elapsed}{postfix}"


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
    started, cut_before, n_words = time.monotonic(), model.n_cut_words, 0
    info = vector_info(model, settings)
    check_paths(source, output, settings)
    tokenizer = get_tokenizer(info.tokenizer)
    format = format_of(output, settings.format)
    with TextFile(source, settings.encoding) as file:
        lines = watched(file, partial(model.warn_of_texts, tokenizer=info.tokenizer))
        sentences = read_sentences(lines, tokenizer)
        if settings.resume and is_complete(output):
            require_made_of(Path(output), format, info, sentences)
            return None
        windows = model.stream_windows(
            sentences,
            layers=settings.layers,
            state=settings.state,
            batch_size=settings.batch_size,
            batch_tokens=settings.batch_tokens,
            dtype=settings.dtype,
        )
        with (
            open_writer(
                output,
                format,
                info,
                resume=settings.resume,
                overwrite=settings.overwrite,
                forget_sentences=settings.forget_sentences,
            ) as writer,
            tqdm(
                total=file.total_bytes,
                disable=not show_progress,
                bar_format=_BAR if file.total_bytes else _BAR_WITHOUT_END,
                postfix="starting",
            ) as bar,
        ):
            carries, n_resumed = settings.state == "carry", writer.n_written
            if n_resumed:
                _skip_written(sentences, writer)
            if carries:
                _restore_state(model, writer)
            for window, vectors in windows:
                if carries:
                    _keep_state(model, writer, len(window))
                writer.append(window, vectors)
                n_words += sum(map(len, window))
                speed = n_words / max(time.monotonic() - started, 1e-9)
                bar.n = file.bytes_read
                bar.set_postfix_str(f"{n_words:,} words, {speed:,.0f} words/s")
            writer.finish()
    return EmbedReport(
        n_sentences=writer.n_written,
        n_resumed=n_resumed,
        n_words=n_words,
        n_cut_words=model.n_cut_words - cut_before,
        seconds=time.monotonic() - started,
    )


def vector_info(model: ELMo, settings: EmbedSettings) -> VectorInfo:
    """Return the facts of the file that a run will write."""
    tokenizer = model.config.tokenizer if settings.tokenizer == "model" else settings.tokenizer
    if tokenizer is None:
        raise ConfigError(
            "--tokenizer is 'model', but the model does not say how its text was split: give "
            f"--tokenizer {'|'.join(get_args(TokenizerName))}"
        )
    return VectorInfo(
        model_sha256=model.fingerprint,
        layers=str(settings.layers),
        state=settings.state,
        dtype=settings.dtype,
        dim=model.dim,
        n_layers=model.n_layers if settings.layers == "all" else 0,
        tokenizer=tokenizer,
        precision=model.precision,
        batch_size=carry_rows(settings.batch_size) if settings.state == "carry" else 0,
        elmo_version=__version__,
    )


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


def _restore_state(model: ELMo, writer: VectorWriter) -> None:
    """Reset the carried state, or restore that of the run that is resumed."""
    model.reset()
    if writer.n_written:
        kept = writer.kept_state()
        parts = (torch.from_numpy(kept[name]).to(model.device) for name in State._fields)
        model.carried_state = State(*parts)


def _keep_state(model: ELMo, writer: VectorWriter, n_sentences: int) -> None:
    """Keep the state carried after so many sentences, which are written next."""
    if model.carried_state is not None:
        state = {name: part.cpu().numpy() for name, part in model.carried_state._asdict().items()}
        writer.keep_state(state, writer.n_written + n_sentences)
