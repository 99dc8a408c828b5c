"""Make what both trees read: models of every kind, a prepared corpus, data of every task.

    python -m benchmarks.trees.inputs FOLDER

The old tree runs this, once. Weights are random, drawn with fixed seeds.
"""

from __future__ import annotations

import json
import random
import runpy
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from benchmarks.trees import make_sentences, require_tree
from benchmarks.trees.names import own_flags
from elmo import ELMo, ElmoConfig, random_bilm

TINY_RUN = ["--preset", "tiny", "--batch-size", "4", "--unroll-steps", "5", "--log-every", "2"]
TINY_RUN += ["--validate-every", "4", "--checkpoint-every", "3", "--device", "cpu", "--quiet"]
STEPS = 12
ENGLISH = [
    "The river bank was green .",
    "She sat on the bank of the river and read a book .",
    "He went to the bank to get some money for the house .",
    "",
    "naïve café 日本語 “ quotes ” … 🤗",
    "The The the THE",
    "x" * 60,
    "It is one of the best known examples of its kind in the world .",
    "A",
    "Colorless green ideas sleep furiously , said nobody in particular .",
]
CHINESE = [
    "宝玉 笑 道 “ 我 不 去 。 ”",
    "真人 修行 得 道 、 成 了 神仙 。",
    "河 的 北岸 有 一 座 城 。",
    "北京 是 中国 的 首都 、 有 两千万 人 。",
]


def elmo(*arguments: str | Path) -> str:
    """Run `python -m elmo` in this process and return its standard output."""
    package = Path(str(sys.modules["elmo"].__file__)).parent
    given = own_flags(package, list(map(str, arguments)))
    before, sys.argv = sys.argv, ["elmo", *given]
    output = StringIO()
    code: object = 0
    try:
        with redirect_stdout(output):
            runpy.run_module("elmo", run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        code = stop.code
    finally:
        sys.argv = before
    if code:
        raise RuntimeError(f"elmo {' '.join(map(str, arguments))}: exit code {code}")
    return output.getvalue()


def main(folder: Path) -> None:
    """Make everything."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_texts(folder)
    _write_models(folder)
    _write_manylangs(folder / "manylangs")
    _write_tasks(folder)
    split = ["--heldout-share", "0.1", "--min-count", "1"]
    elmo("prepare", folder / "grammar.txt", folder / "data", *split)
    for name, flags in TRAINED_MODELS.items():
        flags = [*flags, "--steps", str(STEPS)]
        elmo("train", "--data", folder / "data", "--out", folder / name, *TINY_RUN, *flags)


TRAINED_MODELS: dict[str, Sequence[str]] = {
    "characters": ["--softmax", "full"],
    "words": ["--input", "words", "--softmax", "sampled", "--softmax-samples", "5"],
    "codepoints": ["--input", "codepoints", "--cell", "gru", "--softmax", "adaptive"],
}
"""Runs whose models are read by further checks, and their flags."""


def _write_texts(folder: Path) -> None:
    made_up = [" ".join(sentence) for sentence in make_sentences(60)]
    _write(folder / "english.txt", ENGLISH + made_up[:20])
    _write(folder / "plain.txt", [line for line in ENGLISH if line and len(line) < 60] + made_up)
    _write(folder / "chinese.txt", CHINESE)
    _write(folder / "raw-chinese.txt", [line.replace(" ", "") for line in CHINESE])
    chance = random.Random(0)
    nouns, verbs = ["cat", "dog", "bird", "fish", "mouse"], ["sees", "hears", "follows"]
    grammar = []
    for _ in range(60):
        for _ in range(chance.randint(3, 8)):
            first, second = chance.choice(nouns), chance.choice(nouns)
            grammar.append(f"the {first} {verbs[nouns.index(first) % 3]} the {second} .")
        grammar.append("")
    _write(folder / "grammar.txt", grammar)
    _write(folder / "words.txt", ["river", "bank", "money", "house", "book", "city", "world"])
    pairs = ["river bank 4", "cat dog 3", "house money 1", "book world 2", "bird fish 3.5"]
    _write(folder / "pairs.txt", pairs)
    values = torch.randn(30, 8, generator=torch.Generator().manual_seed(3)).tolist()
    known = [*nouns, *verbs, "the", ".", "a", "is", "it", *TASK_WORDS]
    rows = zip(known, values, strict=False)
    _write(folder / "vectors.txt", [" ".join([w, *(f"{v:.4f}" for v in row)]) for w, row in rows])


def _write(path: Path, lines: Sequence[str]) -> None:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


# --- models ---------------------------------------------------------------------------------------


def _write_models(folder: Path) -> None:
    tiny = ElmoConfig.preset("tiny")
    kinds: dict[str, ElmoConfig] = {
        "original": ElmoConfig.preset("original"),
        "lstm": tiny,
        "gru": tiny.replace(cell="gru", n_layers=3),
        "unprojected": tiny.replace(projection_dim=64, skip_connections=False, activation="tanh"),
    }
    for name, config in kinds.items():
        layout: Any = "elmo" if name == "gru" else "hdf5"
        ELMo(_lively(random_bilm(config, seed=7)), device="cpu").save_pretrained(
            folder / name, layout
        )


def _lively(model: torch.nn.Module) -> Any:
    """Scale fresh weights so that vectors spread as in a trained model, and clips are reached."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
            elif "_layers." in name:
                parameter.mul_(2.0)
    return model


CHARACTERS = ["a", "b", "c", "é", "語", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
WORDS = ["ab", "cab", "語", "abcabc", "<oov>", "<bos>", "<eos>", "<pad>"]


def _write_manylangs(folder: Path) -> None:
    """Write a small model in the layout of ELMoForManyLangs."""
    generator = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> torch.Tensor:
        return 0.6 * torch.randn(*shape, generator=generator)

    dim, width, filters = 8, 6, [[1, 3], [2, 4], [3, 5]]
    layers = {}
    for name in ("forward_layer_0", "forward_layer_1", "backward_layer_0", "backward_layer_1"):
        layers[f"{name}.input_linearity.weight"] = draw(4 * dim, width)
        layers[f"{name}.state_linearity.weight"] = draw(4 * dim, width)
        layers[f"{name}.state_linearity.bias"] = draw(4 * dim)
        layers[f"{name}.state_projection.weight"] = draw(width, dim)
    words = {"char_emb_layer.embedding.weight": draw(len(CHARACTERS), 5)}
    words["word_emb_layer.embedding.weight"] = draw(len(WORDS), 4)
    for i, (size, number) in enumerate(filters):
        words[f"convolutions.{i}.weight"] = draw(number, 5, size)
        words[f"convolutions.{i}.bias"] = draw(number)
    words["highways._layers.0.weight"], words["highways._layers.0.bias"] = draw(24, 12), draw(24)
    words["projection.weight"], words["projection.bias"] = draw(width, 16), draw(width)
    sizes = {
        "encoder": {"name": "elmo", "projection_dim": width, "cell_clip": 0.4, "proj_clip": 0.3,
                    "dim": dim, "n_layers": 2},
        "token_embedder": {"name": "cnn", "activation": "relu", "filters": filters,
                           "n_highway": 1, "word_dim": 4, "char_dim": 5,
                           "max_characters_per_token": 12},
        "classifier": {"name": "sampled_softmax", "n_samples": 8192},
        "dropout": 0.1,
    }  # fmt: skip
    folder.mkdir()
    torch.save(layers, folder / "encoder.pkl")
    torch.save(words, folder / "token_embedder.pkl")
    _write(folder / "char.dic", [f"{entry}\t{row}" for row, entry in enumerate(CHARACTERS)])
    _write(folder / "word.dic", [f"{entry}\t{row}" for row, entry in enumerate(WORDS)])
    (folder / "sizes.json").write_text(json.dumps(sizes))
    (folder / "config.json").write_text(json.dumps({"config_path": "sizes.json", "seed": 1}))


# --- tasks ----------------------------------------------------------------------------------------

COLORS, THINGS = ["red", "green", "blue"], ["car", "house", "door", "cup"]
TASK_WORDS = [*COLORS, *THINGS, "paints", "Ann", "Bo", "left", "sang"]
TASKS = {
    "classify": ("texts.csv", "the car is red"),
    "tag": ("tags.conll", "the red car is blue"),
    "srl": ("frames.jsonl", "car paints the red cup"),
    "nli": ("pairs.jsonl", "A man eats.\tA dog runs."),
    "qa": ("questions.json", "Who sang?\tAnn sang, and Bo left."),
    "coref": ("documents.conll", "Ann saw Bo. Ann left."),
}
"""For each task its file, and a text to predict for."""


def _write_tasks(folder: Path) -> None:
    pairs = [(color, thing) for color in COLORS for thing in THINGS] * 2
    _write(folder / "texts.csv", ["text,label", *(f"the {t} is {c},{c}" for c, t in pairs)])
    tagged = [f"the O\n{c} B-X\n{t} I-X\nis O\nblue B-Y\n" for c, t in pairs if c != "blue"]
    _write(folder / "tags.conll", tagged)
    tags = ["B-ARG0", "B-V", "B-ARG1", "I-ARG1", "I-ARG1"]
    frames = [{"pred": 1, "sense": "paint.01", "tags": tags}]
    painted = [{"words": [t, "paints", "the", c, t], "frames": frames} for c, t in pairs]
    _write(folder / "frames.jsonl", [json.dumps(record) for record in painted])
    meant = [("A man eats.", "A man eats.", "same"), ("A dog runs.", "A man eats.", "other")] * 4
    keys = ("sentence1", "sentence2", "gold_label")
    records = [dict(zip(keys, pair, strict=True)) for pair in meant]
    _write(folder / "pairs.jsonl", [json.dumps(record) for record in records])
    context = "Ann sang. Bo left early."
    answers = [{"text": "Bo", "answer_start": context.index("Bo")}]
    asked = [{"id": str(k), "question": "Who left?", "answers": answers} for k in range(4)]
    paragraphs = [{"context": context, "qas": asked}]
    squad = {"data": [{"title": "t", "paragraphs": paragraphs}]}
    (folder / "questions.json").write_text(json.dumps(squad))
    marks = [("Ann", "(0)"), ("saw", "-"), ("Bo", "(1)"), (".", "-"), ("Ann", "(0)"), ("left", "-")]
    lines = [f"x 0 {k} {word} {mark}" for k, (word, mark) in enumerate(marks)]
    _write(
        folder / "documents.conll", ["#begin document (x); part 000", *lines, "#end document"] * 3
    )


if __name__ == "__main__":
    require_tree()
    main(Path(sys.argv[1]))
