"""Readers of task data, one module a format, each returning a list of examples.

| module | what |
|---|---|
| `formats` | the reader of each task: detects the format, applies `--max-words` |
| `examples` | what readers return, one dataclass a task |
| `files` | what readers share: numbered lines, errors with their line, counted warnings |
| `tables`, `trees` | texts with labels: csv, tsv, JSON lines, lines with labels; SST trees |
| `columns` | words with tags: CoNLL columns, CoNLL-U |
| `frames`, `props` | semantic roles: PropBank's JSON lines; bracket columns of CoNLL-2005/2012 |
| `entailment` | pairs of texts: SNLI's JSON lines, tsv |
| `squad` | questions about paragraphs |
| `coreference` | documents with clusters: CoNLL-2012, LitBank |
| `splits` | data sets cut into train, dev and test |
"""
