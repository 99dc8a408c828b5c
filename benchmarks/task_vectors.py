"""Write the static vectors of all words of the task data to a file of its own.

    python -m benchmarks.task_vectors DATA vectors.txt.gz [--tasks sst wnut17 ...]

The report with `--vectors vectors.txt.gz` then has the same figures on a machine that has no
package of vectors and no room for one.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from pathlib import Path

from benchmarks.task_report.runs import find_parts
from benchmarks.task_report.settings import DATASETS, DatasetName, ReportSettings
from elmo.settings import DEFAULT_VECTORS
from elmo.tasks.heads import find_task
from elmo.tasks.settings import TaskSettings
from elmo.text.static_vectors import open_vectors


def main() -> int:
    """Collect words, look them up, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of the task data")
    parser.add_argument("out", type=Path, help="file to write: GloVe text, gzipped")
    parser.add_argument("--tasks", nargs="+", default=list(DATASETS), choices=list(DATASETS))
    parser.add_argument("--vectors", default=DEFAULT_VECTORS, help="where vectors come from")
    choices = parser.parse_args()
    words: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for name in choices.tasks:
            words |= words_of(name, ReportSettings(data=choices.data, out=Path(folder)))
            print(f"{name}: {len(words):,} words so far", flush=True)
    read = open_vectors(choices.vectors).read(sorted(words | {word.lower() for word in words}))
    with gzip.open(choices.out, "wt", encoding="utf-8") as file:
        for word, row in read.found.items():
            values = " ".join(repr(float(str(value))) for value in read.vectors[row])
            file.write(f"{word} {values}\n")
    print(f"{choices.out}: {len(read.found):,} words")
    return 0


def words_of(name: DatasetName, settings: ReportSettings) -> set[str]:
    """Return the words of a data set as its task reads them."""
    dataset = DATASETS[name]
    kind = find_task(dataset.task)
    options = TaskSettings(**dataset.choices)
    train, dev, test = (kind.read([p], options) for p in find_parts(name, dataset, settings))
    task = kind.from_examples(train)
    return {w for e in (*train, *dev, *test) for s in task.sentences(e) for w in s}


if __name__ == "__main__":
    sys.exit(main())
