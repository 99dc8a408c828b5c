"""The task models: heads that read word features."""
