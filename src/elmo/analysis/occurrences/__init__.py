"""The occurrences of one word: sampled, clustered, laid out in a plane, shown.

- `senses`: the sample of a corpus, and its clusters.
- `grouping`: k-means by cosine, and projections, both of scikit-learn.
- `report`: text, an HTML page without network, and a figure.
"""
