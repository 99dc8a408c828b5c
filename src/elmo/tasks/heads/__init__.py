"""The six tasks and their networks: the task `x` is the class `X` of the module `x`.

| module | what |
|---|---|
| `base` | the contract of a task and its head |
| `classify`, `nli` | one label for a text, for a pair of texts |
| `tag`, `srl` | one tag for each word, for each word and predicate |
| `qa`, `coref` | spans of a paragraph, clusters of spans |
| `labels`, `crf`, `encoders`, `attention` | parts that several tasks share |
| `passages` | `qa`: questions and answers as words |
| `span_candidates`, `span_scores` | `coref`: spans and their scores |
"""
