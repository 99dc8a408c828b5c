"""How predictions are evaluated: the standard measures of each task's field.

| module | what |
|---|---|
| `scores` | accuracy; precision, recall and F1 of labels, spans and semantic roles |
| `answers` | exact match and F1 of SQuAD |
| `clusters` | MUC, B3 and CEAFe of coreference |
"""
