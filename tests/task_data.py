"""Made-up data that small models learn perfectly, and settings that let them, quickly."""

import json

import torch

from elmo import ELMo
from elmo.tasks.settings import TaskSettings

COLORS = ["red", "green", "blue", "black"]
THINGS = ["car", "house", "door", "cup", "tree", "hat"]


def write_task_data(path, bilm):
    """Write a biLM, static vectors, and data that can be learned perfectly."""
    ELMo(bilm).save_pretrained(path / "bilm")
    words = [*COLORS, *THINGS, "a", "the", "is", "it", "paints"]
    rows = torch.randn(len(words), 8, generator=torch.Generator().manual_seed(0)).tolist()
    lines = [f"{w} {' '.join(f'{v:.4f}' for v in r)}\n" for w, r in zip(words, rows, strict=True)]
    (path / "vectors.txt").write_text("".join(lines))
    pairs = [(color, thing) for color in COLORS for thing in THINGS] * 3
    (path / "texts.csv").write_text(
        "text,label\n" + "".join(f"the {t} is {c},{c}\n" for c, t in pairs)
    )
    tagged = "\n".join(
        f"the O\n{c} B-X\n{t} I-X\nis O\nblue B-Y\n" for c, t in pairs if c != "blue"
    )
    (path / "tags.conll").write_text(tagged)
    pos = "\n".join(f"the DET\n{t} NOUN\nis VERB\n{c} ADJ\n" for c, t in pairs)
    (path / "pos.conll").write_text(pos)
    frames = [
        {
            "words": [t, "paints", "the", c, u],
            "frames": [
                {
                    "pred": 1,
                    "sense": "paint.01",
                    "tags": ["B-ARG0", "B-V", "B-ARG1", "I-ARG1", "I-ARG1"],
                }
            ],
        }
        for c, t in pairs
        for u in THINGS[:2]
    ]
    (path / "frames.jsonl").write_text("".join(json.dumps(f) + "\n" for f in frames))


def settings(folder, data, out, **more):
    small = {
        "hidden_size": 16,
        "epochs": 8,
        "batch_size": 8,
        "learning_rate": 0.01,
        "min_steps": 0,
        "layers": 1,
    }
    small |= {"dropout": 0.0, "elmo_dropout": 0.0}
    return TaskSettings(
        data=folder / data,
        dev=folder / data,
        out=out,
        model=str(folder / "bilm"),
        vectors=str(folder / "vectors.txt"),
        cache_dir=folder / "cache",
        quiet=True,
        **{**small, "device": "cpu", **more},
    )
