"""From lists of words to vectors.

- `pipeline`: batches, initial states, selection of layers, one result a sentence.

`burn_in.txt` holds the sentences with which the state of the policy "warm" is burned in.
"""
