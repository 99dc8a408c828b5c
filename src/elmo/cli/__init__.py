"""The command line.

- `main`: the application, running a command, and what all commands share.
- `embed`: elmo embed, elmo cache.
- `models`: elmo models, elmo info, elmo convert.
- `language`: elmo perplexity, elmo score, elmo substitutes.
- `prepare`: elmo prepare.
- `train`: elmo train, elmo finetune.
- `task`: elmo task ...
- `analyze`: elmo similar, elmo neighbors, elmo analyze ...
- `verify`: elmo verify.
- `bench`: elmo bench.
"""
