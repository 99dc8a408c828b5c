"""The model card that goes with saved weights: a README.md as the Hugging Face Hub expects it."""

from __future__ import annotations

from elmo.config import ElmoConfig

_CARD = """\
---
library_name: elmo-torch
pipeline_tag: feature-extraction
tags:
- elmo
- contextual-word-embeddings
---

# ELMo, {parameters} parameters

A bidirectional language model that gives a vector to every word in its context
(Peters et al. 2018, *Deep contextualized word representations*).

```python
from elmo import ELMo

elmo = ELMo.from_pretrained("path/to/this/folder")
vectors = elmo.encode_tokens([["The", "river", "bank", "."]])[0]  # ({layers}, 4, {output_dim})
```

| | |
|---|---|
| input | {input} |
| recurrent layers | {n_layers} per direction, {dim} {cell} cells, projected to {projection_dim} |
| output | {layers} layers of {output_dim} values for every word |
| fingerprint | `{fingerprint}` |

The fingerprint is a SHA-256 of sizes and weights; it is the same in every file format.

## To be filled in by whoever trained it

Training data and its licence, number of tokens, held-out perplexity, known limits.
"""


def model_card(config: ElmoConfig, n_parameters: int, fingerprint: str) -> str:
    """Describe a model in the form of a Hub model card."""
    if config.reads_characters:
        kind = "code points of an alphabet" if config.has_alphabet else "UTF-8 bytes"
        reads = (
            f"characters ({kind}, {config.max_characters} a word), "
            f"{config.n_filters} filters, {config.n_highway} highway layers"
        )
    else:
        reads = f"words of a vocabulary of {config.n_words:,}"
    return _CARD.format(
        parameters=f"{n_parameters / 1e6:.1f} M",
        input=reads,
        n_layers=config.n_layers,
        layers=config.n_layers + 1,
        dim=config.dim,
        cell=config.cell.upper(),
        projection_dim=config.projection_dim,
        output_dim=config.output_dim,
        fingerprint=fingerprint,
    )
