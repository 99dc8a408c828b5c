"""Raw text to a prepared corpus: what `elmo prepare` does."""
