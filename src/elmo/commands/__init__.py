"""The commands of `elmo`, one file for each group of them."""
