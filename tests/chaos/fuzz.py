"""Read thousands of damaged files in processes of their own; print one table of what came of it.

    python tests/chaos/fuzz.py                       # 20,000 damaged files
    python tests/chaos/fuzz.py --cases 500 --seed 7
    python tests/chaos/fuzz.py --source ../old/src   # how an older checkout reads them

Only an `ElmoError` may come of a damaged file, or what can be read; within ten seconds, and one
gigabyte above what the process needs anyway.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from bombs import BOMBS

HERE = Path(__file__).parent
LARGEST = 2**30
_SILENCE = 60
"""Seconds without a word from a process, whose own alarm should have rung after ten; to make a
bomb takes its time."""
_START = 120
"""Seconds for PyTorch to be imported and models to be built."""
COLUMNS = ("files", "refused", "read", "differ", "tracebacks", "signals", "hangs", "memory")


class Reader:
    """A process that reads cases, and its words.

    Args:
        samples: Whole files.
        scratch: A folder for damaged ones.
        seed: Of all cases.
        cases: The first of its cases, and the end of them.
        source: The src folder of the checkout that reads.
    """

    def __init__(self, samples, scratch, seed, cases, source):
        environment = dict(os.environ)
        if source:
            environment["PYTHONPATH"] = str(Path(source).resolve())
        command = [sys.executable, str(HERE / "reading.py"), samples, scratch, str(seed)]
        self.process = subprocess.Popen(
            [*command, *map(str, cases)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._lines = queue.Queue()
        self.errors = []
        for collect in (self._collect_lines, self._collect_errors):
            threading.Thread(target=collect, daemon=True).start()

    def _collect_lines(self):
        for line in self.process.stdout:
            self._lines.put(json.loads(line))
        self._lines.put(None)

    def _collect_errors(self):
        self.errors.extend(self.process.stderr)

    def next(self, seconds):
        """Return its next word; None at its end. Raises `queue.Empty` if it is silent for long."""
        return self._lines.get(timeout=seconds)


def reports(samples, scratch, seed, first, end, source):
    """Yield what came of each case; a process that ends or hangs is replaced by another one."""
    while first < end:
        reader = Reader(samples, scratch, seed, (first, end), source)
        current, is_ready = None, False
        try:
            while (word := reader.next(_SILENCE if is_ready else _START)) is not None:
                is_ready |= "ready" in word
                if "started" in word:
                    current = word
                elif "outcome" in word:
                    yield word
                    current = None
                    first += 1
        except queue.Empty:
            reader.process.kill()
            reader.process.wait()
            yield (current or {"kind": "?"}) | {"outcome": "hung", "message": "no sign of life"}
            first += 1
            continue
        code = reader.process.wait()
        tail = "".join(reader.errors)[-2000:]
        if not is_ready:
            raise RuntimeError(f"the samples cannot be read: {tail}")
        if current is not None:
            outcome = "signal" if code < 0 else "traceback"
            yield current | {"outcome": outcome, "message": f"{code} {tail[-300:]}"}
            first += 1


def write_samples(folder):
    """Write the samples, with this checkout."""
    code = (
        "import sys; from pathlib import Path; from samples import write_samples\n"
        "write_samples(Path(sys.argv[1]))"
    )
    paths = os.pathsep.join(str(path) for path in (HERE, HERE.parent, HERE.parent / "weights"))
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="", PYTHONPATH=paths)
    subprocess.run([sys.executable, "-c", code, folder], check=True, cwd=HERE, env=environment)


def run(cases, seed, source=None, jobs=1, log=None, bombs=BOMBS):
    """Run all cases, after as many bombs as are given, the last of the list.

    Returns:
        A row of counts for each kind, and the reports of what may not be.
    """
    rows, bad, lock = {}, [], threading.Lock()
    with tempfile.TemporaryDirectory(prefix="elmo-chaos-") as temporary:
        samples = str(Path(temporary) / "samples")
        write_samples(samples)

        def work(job):
            scratch = Path(temporary) / f"scratch-{job}"
            scratch.mkdir()
            first, end = (cases * number // jobs for number in (job, job + 1))
            first -= 0 if job else len(bombs)
            for report in reports(samples, str(scratch), seed, first, end, source):
                with lock:
                    count(rows, bad, report)
                    if log is not None:
                        log.write(json.dumps(report) + "\n")

        with ThreadPoolExecutor(jobs) as pool:
            for _ in pool.map(work, range(jobs)):
                pass
    return rows, bad


def count(rows, bad, report):
    row = rows.setdefault(report["kind"], Counter())
    names = {"traceback": "tracebacks", "signal": "signals", "hung": "hangs"}
    outcome = names.get(report["outcome"], report["outcome"])
    row["files"] += 1
    row[outcome] += 1
    row["differ"] += bool(report.get("differs"))
    is_large = report.get("memory", 0) > LARGEST
    row["memory"] += is_large
    if outcome in names.values() or is_large:
        bad.append(report)


def table(rows):
    """Return the table as text; `differ`: read without a word, with other vectors."""
    total = sum(rows.values(), Counter())
    lines = [f"{'kind':<15}" + "".join(f"{name:>12}" for name in COLUMNS)]
    for kind, row in [*sorted(rows.items()), ("all", total)]:
        lines.append(f"{kind:<15}" + "".join(f"{row[name]:>12,}" for name in COLUMNS))
    return "\n".join(lines)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--source", help="the src folder of another checkout")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--log", type=Path, help="a file for the report of every case")
    given = parser.parse_args(arguments)
    start = time.monotonic()
    with given.log.open("w") if given.log else nullcontext() as log:
        rows, bad = run(given.cases, given.seed, given.source, given.jobs, log)
    lines = [table(rows)]
    places = Counter(
        (report["kind"], report.get("place", report["outcome"]), report.get("message", "")[:90])
        for report in bad
    )
    for parts, times in places.most_common(40):
        lines.append(f"{times:>6}  {'  '.join(parts)}")
    lines.append(f"{time.monotonic() - start:,.0f} s, seed {given.seed}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
