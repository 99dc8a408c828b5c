"""The report over all tasks: a grid of runs with and without ELMo, its tables and its plots.

    python -m benchmarks.task_report --data DATA --out REPORT --seeds 3

from the root of the repository; it needs the package with the extras glove, plots and tasks.

| module | what |
|---|---|
| `settings` | the flags, the data sets, the studies, the list of runs |
| `runs` | the runs: each recorded when it is done and never repeated |
| `tables` | figures side by side, as Markdown |
| `plots` | figures as pictures (matplotlib) |
| `page` | results.md and results.json |
"""
