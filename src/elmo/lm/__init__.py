"""The biLM as a language model: output layers, losses, probabilities of words.

- `output_base`: the contract of output layers, and exact probabilities.
- `softmax`: full and sampled softmax, and how layers are made and loaded.
- `adaptive_softmax`: softmax in a tree of clusters.
- `softmax_losses`: the losses of training as functions.
- `shifted`: outputs of the model aligned with the words they predict.
- `reading`: text files, looked at and split as the model's text was.
- `scoring`: surprisal, perplexity and substitutes.
"""
