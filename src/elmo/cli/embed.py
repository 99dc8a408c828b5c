"""The commands that compute vectors: elmo embed and elmo cache."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from elmo.cli.main import DONE, STOPPED, Flags, app, note_on_cut_words, require_model, say
from elmo.errors import OutputExistsError
from elmo.runtime.tables import counted
from elmo.settings import EmbedSettings, ModelChoice

_MODEL = ModelChoice()
_EMBED = EmbedSettings()


@app.command
def embed(
    source: Annotated[str, Parameter(name="INPUT", allow_leading_hyphen=True)],  # "-" is stdin
    output: Annotated[Path, Parameter(name="OUTPUT")],
    /,
    *,
    choice: Annotated[ModelChoice, Flags] = _MODEL,
    settings: Annotated[EmbedSettings, Flags] = _EMBED,
    quiet: bool = False,
) -> int:
    """Embed the sentences of a text file into a file of vectors.

    Parameters
    ----------
    source
        Text, one sentence a line (or raw text, see --tokenizer); may be .gz, .xz, .bz2 or .zst;
        - for standard input. A blank line is an empty sentence.
    output
        File to write.
    choice
        Which model.
    settings
        How.
    quiet
        No progress, no report.
    """
    from elmo.bulk.writer import check_paths, is_unfinished

    # Mistakes are found before PyTorch is imported and the model loaded, which take a while.
    check_paths(source, output, settings)
    require_model(choice)
    from elmo.bulk.embed_file import embed_file
    from elmo.embedder import load_model

    model = load_model(choice, settings)
    try:
        report = embed_file(model, source, output, settings, show_progress=not quiet)
    except KeyboardInterrupt:
        kept = f"what is in {output} is safe: run the same with --resume to go on"
        say(f"interrupted; {kept if is_unfinished(output) else 'nothing was written'}")
        return STOPPED
    if quiet:
        return DONE
    if report is None:
        say(f"{output} is complete: nothing to do")
        return DONE
    resumed = f" ({report.n_resumed:,} were there before)" if report.n_resumed else ""
    say(
        f"{output}: {counted(report.n_sentences, 'sentence')}{resumed}, "
        f"{counted(report.n_words, 'word')} in "
        f"{report.seconds:.1f} s, {report.words_per_second:,.0f} words/s"
    )
    if not report.n_sentences:
        say(f"note: {'standard input' if source == '-' else source} is empty")
    if report.n_cut_words:
        say(note_on_cut_words(report.n_cut_words))
    return DONE


@app.command
def cache(
    vocabulary: Annotated[Path, Parameter(name="VOCABULARY")],
    output: Annotated[Path, Parameter(name="OUTPUT")],
    /,
    *,
    choice: Annotated[ModelChoice, Flags] = _MODEL,
    overwrite: bool = False,
    quiet: bool = False,
) -> int:
    """Compute the context-free vectors of a list of words once, for elmo embed --token-file.

    The file is bilm-tf's token-embedding HDF5: a dataset 'embedding', row r for line r.

    Parameters
    ----------
    vocabulary
        Words, one a line.
    output
        HDF5 file to write.
    choice
        Which model.
    overwrite
        Replace a file that exists.
    quiet
        No progress, no report.
    """
    from tqdm import tqdm

    from elmo.text.files import refuse_to_replace, require_readable

    refuse_to_replace(vocabulary, output)
    if output.exists() and not overwrite:  # before anything is read that can be read only once
        raise OutputExistsError(f"{output} exists; give --overwrite to replace it")
    require_readable(vocabulary, "vocabulary file")
    require_model(choice)
    from elmo.embedder import load_model
    from elmo.text.vocabulary import Vocabulary
    from elmo.weights.token_file import write_token_file

    words = Vocabulary.read(vocabulary).words
    model = load_model(choice)
    starts = tqdm(range(0, len(words), 1024), disable=quiet, unit="k words")
    blocks = (model.word_vectors(words[start : start + 1024]) for start in starts)
    write_token_file(output, words, blocks, model.fingerprint, overwrite=overwrite)
    if not quiet:
        say(f"{output}: {counted(len(words), 'word')} of {model.config.projection_dim} values")
    return DONE
