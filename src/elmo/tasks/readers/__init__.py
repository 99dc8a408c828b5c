"""Readers of task data, one module a format, each returning a list of examples.

- `formats`: the reader of each task: detects the format, applies `--max-words`.
- `examples`: what readers return, one dataclass a task.
- `files`: what readers share: numbered lines, errors that name the line, counted warnings, tokens.
- `tables`: csv, tsv, JSON lines and lines with labels: texts, and pairs of texts for entailment.
- `trees`: texts with labels as SST trees.
- `columns`: words with tags: CoNLL columns, CoNLL-U.
- `frames`: semantic roles: PropBank's JSON lines; bracket columns of CoNLL-2005 and 2012.
- `squad`: questions about paragraphs.
- `coreference`: documents with clusters: CoNLL-2012, LitBank.
- `splits`: data sets cut into train, dev and test.
"""
