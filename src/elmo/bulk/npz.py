"""Vectors as a NumPy archive: an array "i" for each sentence."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np

from elmo.bulk.spool import SpoolWriter


class NpzWriter(SpoolWriter):
    """Writes `.npz`, with `info.json` and `sentences.jsonl` beside the arrays."""

    endings = ("npz",)

    def assemble(self, path: Path) -> None:
        """Write the whole file; see `SpoolWriter.assemble`."""
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            # ZipInfo without a date: equal vectors make equal bytes, whenever they are written.
            archive.writestr(zipfile.ZipInfo("info.json"), json.dumps(self.facts()))
            with (
                archive.open(zipfile.ZipInfo("sentences.jsonl"), "w", force_zip64=True) as member,
                self._sentences.open("rb") as lines,
            ):
                shutil.copyfileobj(lines, member)
            for number, (_, vectors) in enumerate(self.rows()):
                entry = zipfile.ZipInfo(f"{number}.npy")
                with archive.open(entry, "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, vectors, allow_pickle=False)
