"""Train an ELMo on one Chinese novel, on a CPU, and ask it who is like the hero.

    python examples/novel.py NOVEL.txt --hero 宝玉

The text is split into words by jieba, a model of the size `novel` is trained (words are read as
Chinese characters), and the words most similar to the hero's name are listed: other characters of
the novel come first. A word's vector is the mean of its vectors at all places where it stands, as
in `elmo similar`.

For 红楼梦, after 12 minutes on two cores: 凤姐儿 凤姐 贾琏 平儿 宝钗 黛玉 林黛玉 贾珍 鸳鸯 王夫人.

Needs the extra zh: pip install ".[zh,plots]".
"""

from __future__ import annotations

import argparse
import lzma
import sys
from pathlib import Path

from elmo import ELMo, ElmoError
from elmo.analysis.corpus import Corpus
from elmo.analysis.settings import CorpusSettings
from elmo.analysis.words.word_means import index_of_corpus
from elmo.training.corpus.prepare import prepare
from elmo.training.corpus.settings import PrepareSettings
from elmo.training.settings import TrainSettings
from elmo.training.trainer import train


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
    corpus = Corpus(CorpusSettings(corpus=(text,), tokenizer="chinese"), show_progress=True)
    index = index_of_corpus(model, corpus, choices.layer, choices.min_count)
    for hero in choices.hero:
        print(f"\nmost similar to {hero}:")
        for similar in index.similar(hero, choices.top, remove_mean=True):
            print(f"  {similar.cosine:.3f}  {similar.word}")
    return 0


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
    try:
        sys.exit(main())
    except ElmoError as error:  # such as a hero who is not in the novel
        sys.exit(f"error: {error}")
