"""Analysis of a model: similar words, senses in context, and how contextual vectors are.

- `api`: the functions behind the commands, for Python and notebooks.
- `settings`: their settings.
- `corpus`: a corpus, embedded window by window.
- `sampling`: samples of a stream in bounded memory.
- `geometry`: measures of sets of vectors.
- `intervals`: confidence intervals.
- `span_vectors`: vectors of spans of words.
- `reports`: text, HTML, JSON and pictures of reports.
- `words`: similar words, neighbors in context, correlation with human judgments.
- `contextual`: how contextual vectors are.
- `probing`: what each layer knows.
- `occurrences`: the occurrences of a word in clusters.
"""
