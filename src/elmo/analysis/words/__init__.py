"""Words by their vectors: similar words, nearest occurrences, correlation with human judgments.

- `word_index`: one vector for each of many words, saved, mapped into memory and searched.
- `word_means`: mean vectors over a corpus, or context-free ones.
- `faiss_search`: approximate search among millions of vectors.
- `similar`: lists of similar words.
- `neighbors`: the occurrences in a corpus nearest to a word in its context.
- `correlation`: similarities beside human judgments.
"""
