"""Train an ELMo on one novel, on a CPU, and ask it who is like the hero.

    python examples/novel.py NOVEL.txt 宝玉 黛玉 --minutes 15

NOVEL.txt is a novel as people have it: UTF-8 or GB18030, with blank lines between paragraphs or
without, lines of any length. A chapter becomes a document. The words most similar to a name come
out: for 宝玉 in 红楼梦, after 12 minutes on two cores, 凤姐儿 凤姐 贾琏 平儿 宝钗 黛玉 林黛玉 贾珍
鸳鸯 王夫人, all of them characters of the novel. What is in the folder --out already is not done
again; with other names only these are looked up.

Chinese needs the extra zh: pip install ".[zh,plots]".
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import elmo

CHAPTER = re.compile(
    r"(第[零〇一二两三四五六七八九十百千\d]+[回章节卷]|(chapter|book|part) [\divxlc]+\b).{0,60}",
    re.IGNORECASE,
)
SENTENCE_END = re.compile(r"[.!?。\uff01\uff0e\uff1f…][\"')\]\u201d\u2019」』]*$")
"""With the Chinese marks and closing quotes."""


def main() -> None:
    """Run all steps; what is done already is not done again."""
    choices = arguments()
    text, data, run = (choices.out / name for name in ("novel.txt", "data", "run"))
    choices.out.mkdir(parents=True, exist_ok=True)

    novel = decoded(choices.novel.read_bytes())
    documents = chapters(novel)
    text.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    is_chinese = len(re.findall(r"[\u4e00-\u9fff]", novel)) > len(novel) / 3
    tokenizer = "chinese" if is_chinese else "english"
    print(f"{choices.novel}: {len(documents)} chapters, {len(novel):,} characters, {tokenizer}")

    print("\n1. Splitting the text into words and counting them")
    print(elmo.prepare(text, data, tokenizer=tokenizer, heldout_share=0.02, resume=True))

    if (run / "run.json").exists():
        print(f"\n2. {run} exists: elmo train --resume {run} --minutes 30 would train it longer")
    else:
        length = {"steps": choices.steps} if choices.steps else {"minutes": choices.minutes}
        ((unit, amount),) = length.items()
        print(f"\n2. Training for {amount:g} {unit}; Ctrl-C stops earlier and saves")
        print(elmo.train(data=data, out=run, preset="novel", device="cpu", **length))

    if choices.names:
        print("\n3. Embedding the novel, a mean vector for each frequent word, nearest words")
        index = choices.out / "words.safetensors"
        where = {"model": run / "best", "corpus": [text], "index": index, "show_progress": True}
        how = {"min_count": choices.min_count, "remove_mean": True}
        print(elmo.similar(*choices.names, **where, **how).text())


def decoded(content: bytes) -> str:
    """Return the text of a file in UTF-8, or in GB18030 as older Chinese files are."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("gb18030")


def chapters(novel: str) -> list[str]:
    """Return the text of each chapter, one paragraph a line, without headings and blank lines.

    Lines that were wrapped are joined again: a paragraph ends with a blank line or with a sentence.
    """
    found: list[list[str]] = [[]]
    pending = ""
    for line in (*map(str.strip, novel.splitlines()), ""):
        is_sentence = SENTENCE_END.search(line) is not None
        is_heading = CHAPTER.fullmatch(line) is not None and not is_sentence
        if line and not is_heading:
            pending += (" " if pending[-1:].isascii() and pending else "") + line
        if pending and (not line or is_heading or is_sentence):
            found[-1].append(pending)
            pending = ""
        if is_heading and found[-1]:
            found.append([])
    return ["\n".join(paragraphs) for paragraphs in found if paragraphs]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("novel", type=Path, help="a text file")
    parser.add_argument("names", nargs="*", help="whose likes are wanted")
    parser.add_argument("--minutes", type=float, default=15, help="time to train")
    parser.add_argument("--steps", type=int, help="instead of --minutes: steps to train")
    parser.add_argument("--min-count", type=int, default=50, help="how frequent listed words are")
    parser.add_argument("--out", type=Path, default=Path("novel"), help="folder for everything")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except elmo.ElmoError as error:  # such as a hero who is not in the novel
        sys.exit(f"error: {error}")
