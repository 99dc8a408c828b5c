"""Train an ELMo on one Chinese novel, on a CPU, and ask it who is like the hero.

    python examples/novel.py NOVEL.txt --hero 宝玉

The text is split into words by jieba, a model of the size `novel` is trained (words are read as
Chinese characters), and the words most similar to the hero's name are listed: other characters of
the novel come first. A word's vector is the mean of its vectors at all places where it stands.

For 红楼梦, after 12 minutes on two cores: 凤姐儿 凤姐 贾琏 平儿 宝钗 黛玉 林黛玉 贾珍 鸳鸯 王夫人.

Needs the extra zh: pip install "elmo-torch[zh,plots]".
"""

from __future__ import annotations

import argparse
import lzma
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmo import ELMo
from elmo.text import get_tokenizer
from elmo.training.prepare import prepare
from elmo.training.prepare_settings import PrepareSettings
from elmo.training.train_settings import TrainSettings
from elmo.training.trainer import train

Vectors = npt.NDArray[np.float32]
SENTENCES_AT_ONCE = 512


def main() -> int:
    """Run all steps; what is in OUT already is not done again."""
    choices = _arguments()
    out: Path = choices.out
    out.mkdir(parents=True, exist_ok=True)
    text = out / "novel.txt"
    if not text.exists():
        text.write_text(_read_novel(choices.text, choices.novel), encoding="utf-8")
    settings = PrepareSettings(tokenizer="chinese", min_count=2, heldout=0.02, resume=True)
    report = prepare([text], out / "data", settings, show_progress=True)
    if report is not None:
        print(report.table())
    if not (out / "run" / "best").exists() or choices.resume:
        _train(out, choices.minutes, choices.resume)
    model = ELMo.from_pretrained(out / "run" / "best", device="cpu")
    words, vectors = mean_vectors(model, text, choices.layer, choices.min_count)
    for hero in choices.hero:
        print(f"\nmost similar to {hero}:")
        for word, similarity in most_similar(hero, words, vectors, choices.top):
            print(f"  {similarity:.3f}  {word}")
    return 0


def mean_vectors(model: ELMo, text: Path, layer: int, min_count: int) -> tuple[list[str], Vectors]:
    """Give each word that is frequent enough the mean of its vectors in the text.

    Returns:
        Words, and their vectors `(n_words, dim)`.
    """
    tokenizer = get_tokenizer("chinese")
    lines = text.read_text(encoding="utf-8").splitlines()
    sentences = [s for line in lines for s in tokenizer.sentences(line) if s]
    counts = Counter(word for sentence in sentences for word in sentence)
    words = [word for word, count in counts.most_common() if count >= min_count]
    places = {word: place for place, word in enumerate(words)}
    sums = np.zeros((len(words), model.config.output_dim), dtype=np.float32)
    for first in range(0, len(sentences), SENTENCES_AT_ONCE):
        some = sentences[first : first + SENTENCES_AT_ONCE]
        for sentence, vectors in zip(some, model.encode_tokens(some, layers=layer), strict=True):
            known = [place for place, word in enumerate(sentence) if word in places]
            np.add.at(sums, [places[sentence[place]] for place in known], vectors[known])
    return words, sums / np.array([counts[word] for word in words], dtype=np.float32)[:, None]


def most_similar(
    hero: str, words: list[str], vectors: Vectors, top: int
) -> list[tuple[str, float]]:
    """Rank words by the cosine of their vectors, after the mean of all words was taken away."""
    if hero not in words:
        sys.exit(f"{hero} is not among the frequent words of the novel; try another --hero")
    centred = vectors - vectors.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    similarities = centred @ centred[words.index(hero)]
    order = np.argsort(-similarities)
    return [(words[k], float(similarities[k])) for k in order if words[k] != hero][:top]


def _train(out: Path, minutes: float, resume: bool) -> None:
    if resume:
        train(TrainSettings(resume=out / "run", minutes=minutes))
        return
    train(
        TrainSettings(
            data=out / "data",
            out=out / "run",
            preset="novel",
            minutes=minutes,
            shuffle="documents",
            validate_every=500,
            checkpoint_every=500,
            device="cpu",
        )
    )


def _read_novel(path: Path, number: int) -> str:
    """Read one novel of a file in which novels stand one after another, a blank line between."""
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        novels = [part for part in file.read().split("\n\n") if part.strip()]
    if not 1 <= number <= len(novels):
        sys.exit(f"{path} holds {len(novels)} texts; choose one of them with --novel")
    return novels[number - 1].strip() + "\n"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", type=Path, help="the novel, UTF-8, plain or .xz")
    parser.add_argument("--novel", type=int, default=1, help="which, if blank lines part several")
    parser.add_argument("--hero", nargs="+", default=["宝玉"], help="whose likes are wanted")
    parser.add_argument("--minutes", type=float, default=15, help="time to train")
    parser.add_argument("--out", type=Path, default=Path("novel"), help="folder for everything")
    parser.add_argument("--resume", action="store_true", help="train on for --minutes in all")
    parser.add_argument("--layer", type=int, default=2, help="which layer's vectors")
    parser.add_argument("--min-count", type=int, default=50, help="how frequent words must be")
    parser.add_argument("--top", type=int, default=10, help="how many words are listed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
