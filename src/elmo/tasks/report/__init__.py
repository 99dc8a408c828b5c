"""The grid of runs over all tasks, and its report."""
