"""What each layer knows: three probing tasks, and their data.

- `tasks`: parts of speech, word sense disambiguation and word in context, asked of every layer.
- `tagging`: parts of speech: a treebank, and a linear probe.
- `sense_data`: SemCor, the unified WSD evaluation, and pairs of words in context.
- `wordnet`: first senses from WordNet 3.0.
- `report`: the results as text and as a figure, beside published ones.
"""
