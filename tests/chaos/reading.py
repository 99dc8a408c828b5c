"""A process that reads damaged files, one after another, and reports what came of each.

    python reading.py SAMPLES SCRATCH SEED FIRST END

Cases below 0 are bombs. A line of JSON for each case, before (`started`) and after it. Nothing here
knows how files are read: it calls what users call.
"""

import json
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ELMO_OFFLINE": "1"}
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from bombs import BOMBS
from mutations import mutate

from elmo import ELMo, ElmoError, LanguageModelScorer, TokenFile
from elmo.hub.archives import extract_model
from elmo.hub.download import FetchOptions, RemoteFile, fetch
from elmo.runtime.array_files import map_arrays, stored_facts
from elmo.runtime.metrics_file import read_metrics
from elmo.text.files import TextFile
from elmo.text.static_vectors import read_static_vectors
from elmo.weights.card import ModelCard

LONGEST = 10
"""Seconds until reading counts as hung."""
LARGEST = 2**30
"""Bytes above what a process needs anyway."""
SENTENCES = [["the", "cat", "sat", "abc", "語"], []]


def tell(report):
    sys.stdout.write(json.dumps(report) + "\n")
    sys.stdout.flush()


class HungError(BaseException):
    """A case that took too long."""


def read_model(folder, path):
    elmo = ELMo.from_pretrained(folder, device="cpu")
    found = [vectors.tobytes() for vectors in elmo.encode_tokens(SENTENCES)]
    if (folder / "softmax.safetensors").exists() or (folder / "options.json").exists():
        LanguageModelScorer.from_pretrained(folder, device="cpu")
    return found


def read_archive(folder, path):
    if path.is_dir():
        return
    target = path.parent / "unpacked"
    extract_model(path, target)
    read_model(target, path)


def read_card(folder, path):
    card = ModelCard.read(path)
    "\n".join(card.lines()).encode()
    card.changed_files(folder)


def read_token_file(folder, path):
    file = TokenFile(path)
    file.vectors(np.arange(min(9, len(file.vocabulary))))
    file.row("cat")


def read_text(folder, path):
    if path.suffix == ".jsonl":
        read_metrics(path)
    elif path.is_file():  # pipes and devices are as good as files there
        with TextFile(path) as lines:
            for _ in lines:
                pass


def read_arrays(folder, path):
    for array in map_arrays(path)[0].values():
        array.sum()
    stored_facts(path)


def read_record(folder, path):
    remote = RemoteFile(address="http://127.0.0.1:9/a")
    fetch(remote, folder / "a.txt", FetchOptions(offline=True, show_progress=False))


READERS = {
    "archives": read_archive,
    "token-files": read_token_file,
    "vectors": lambda folder, path: read_static_vectors(path, ["cat", "the", "word30"]),
    "texts": read_text,
    "arrays": read_arrays,
    "cards": read_card,
    "records": read_record,
}


def status(field):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def run_case(samples, scratch, rng):
    """Damage a file of a sample, and read it."""
    kind = rng.choice(sorted(path.name for path in samples.iterdir()))
    folder = fresh_copy(samples / kind, scratch)
    names = sorted(path.name for path in folder.iterdir() if path.name != "README.md")
    path = folder / rng.choice(names)
    change = mutate(rng, path)
    judge({"kind": kind, "file": path.name, "change": change}, kind, folder, path, samples)


def run_bomb(samples, scratch, number):
    """Make a bomb of a sample, and read it; -1 is the last one."""
    sample, make = BOMBS[number]
    kind, path = make(fresh_copy(samples / sample, scratch))
    folder = path if path.is_dir() else path.parent
    report = {"kind": "bombs", "file": path.name, "change": make.__name__}
    judge(report, kind, folder, path, samples)


def fresh_copy(sample, scratch):
    folder = scratch / "case"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(sample, folder)
    return folder


def judge(report, kind, folder, path, samples):
    """Read a file, and report what came of it."""
    tell(report | {"started": True})
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before, start = status("VmRSS"), time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            found = READERS.get(kind, read_model)(folder, path)
        signal.setitimer(signal.ITIMER_REAL, 0)
        report["outcome"] = "read"
        if kind not in READERS and not noted:
            report["differs"] = found != whole(samples, kind)
    except ElmoError as error:
        report["outcome"] = "refused"
        report["message"] = str(error)[:300]
    except HungError:
        report["outcome"] = "hung"
    except BaseException as error:
        report["outcome"] = "traceback"
        report["message"] = f"{type(error).__name__}: {str(error)[:200]}"
        places = [
            frame for frame in traceback.extract_tb(error.__traceback__) if "elmo" in frame[0]
        ]
        report["place"] = f"{places[-1].filename}:{places[-1].lineno}" if places else "?"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    report["seconds"] = round(time.monotonic() - start, 3)
    report["memory"] = max(0, status("VmHWM") - before)
    tell(report)


WHOLE = {}


def whole(samples, kind):
    """Return the vectors of a sample that is not damaged."""
    if kind not in WHOLE:
        WHOLE[kind] = read_model(samples / kind, None)
    return WHOLE[kind]


def hang(*_):
    raise HungError


def main(samples, scratch, seed, first, end):
    samples, scratch = Path(samples), Path(scratch)
    signal.signal(signal.SIGALRM, hang)
    for kind in ("elmo", "hdf5", "manylangs"):
        read_model(samples / kind, None)  # everything imported and built
    limit = status("VmSize") + 3 * LARGEST
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tell({"ready": True})
    for number in range(int(first), int(end)):
        if number < 0:
            run_bomb(samples, scratch, number)
        else:
            run_case(samples, scratch, random.Random(f"{seed}:{number}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
