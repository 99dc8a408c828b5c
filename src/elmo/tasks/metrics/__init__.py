"""How predictions are evaluated: the standard measures of each task's field.

- `scores`: accuracy; precision, recall and F1 of labels, spans and roles; exact match of answers.
- `clusters`: MUC, B3 and CEAFe of coreference.
"""
