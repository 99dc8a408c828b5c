"""How contextual vectors are, layer by layer, after Ethayarajh (2019).

- `measure`: one pass over a corpus, samples of it, and their measures.
- `report`: the results as text and as a figure, beside published ones.
"""
