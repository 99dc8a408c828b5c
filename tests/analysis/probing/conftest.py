"""WordNet and the data of probing tasks, a few lines of each."""

import json

import pytest

# Two senses of a noun, and a satellite adjective with its head, as WordNet writes them; a line
# begins with its own place in the file.
HEADER = "  1 header  \n"
SHORE = "00000013 06 n 02 bank 1 Shore a 000 | land  \n"
MONEY = f"{len(HEADER + SHORE):08d}"
DATA_NOUN = HEADER + SHORE + f"{MONEY} 14 n 01 bank 0 001 @ 00000013 n 0000 | money  \n"
HEAD = "00000000 00 a 02 odd(a) 2 strange 0 000 | head  \n"
LIKE = f"{len(HEAD):08d}"
DATA_ADJ = HEAD + f"{LIKE} 00 s 01 peculiar(p) 0 002 + {MONEY} n 0000 & 00000000 a 0000 | like  \n"


@pytest.fixture(scope="module")
def wordnet_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wordnet")
    for part in ("noun", "verb", "adj", "adv"):
        (folder / f"index.{part}").write_text("  1 header\n")
        (folder / f"data.{part}").write_text("")
    (folder / "data.noun").write_text(DATA_NOUN)
    (folder / "data.adj").write_text(DATA_ADJ)
    (folder / "index.noun").write_text(f"  1 header\nbank n 2 1 @ 2 1 {MONEY} 00000013  \n")
    (folder / "index.adj").write_text(f"peculiar a 1 1 & 1 0 {LIKE}  \n")
    return folder


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory):
    """A folder like that of the real data, with a few sentences of ours."""
    folder = tmp_path_factory.mktemp("tasks")
    for name in ("wsd/ALL", "wic", "pos_ewt"):
        (folder / name).mkdir(parents=True)
    money, shore = "bank%1:14:00::", "bank%1:06:01::"
    lines = [
        {"words": ["my", "bank", "lends"], "senses": [[1, "bank", "NN", money, "1"]]},
        {"words": ["muddy", "river_bank", "."], "senses": [[1, "bank", "NN", shore, "2"]]},
        {"words": ["the", "bank"], "senses": [[1, "bank", "NN", f"{money};1:06:01::", "1;2"]]},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "wsd" / "semcor.jsonl").write_text(text)
    (folder / "wsd" / "ALL" / "ALL.data.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8" ?>\n<corpus><text>'
        '<sentence id="senseval2.d0.s0"><wf>a</wf>'
        '<instance id="t0" lemma="bank" pos="NOUN">bank</instance><wf>&amp;</wf></sentence>'
        '<sentence id="semeval2013.d0.s0">'
        '<instance id="t1" lemma="peculiar" pos="ADJ">very peculiar</instance></sentence>'
        "</text></corpus>"
    )
    gold = f"t0 {shore}\nt1 peculiar%5:00:00:odd:02 other%3:00:00::\n"
    (folder / "wsd" / "ALL" / "ALL.gold.key.txt").write_text(gold)
    sentence = 'He said: "Don\'t bank on it!"'
    pairs = [
        {"id": f"{n}", "sentence1": sentence, "start1": "16", "end1": "20",
         "sentence2": "The bank closed. It did.", "start2": "4", "end2": "8"}
        for n in range(6)
    ]  # fmt: skip
    for part in ("training.en-en", "dev.en-en"):
        (folder / "wic" / f"{part}.data").write_text(json.dumps(pairs))
        tags = [{"id": f"{n}", "tag": "TF"[n % 2]} for n in range(6)]
        (folder / "wic" / f"{part}.gold").write_text(json.dumps(tags))
    rows = "".join(
        f"{n}\t{word}\t_\t{tag}\t_\t_\t_\t_\t_\t_\n"
        for n, (word, tag) in enumerate([("the", "DET"), ("cat", "NOUN")], start=1)
    )
    for part in ("train", "test"):
        (folder / "pos_ewt" / f"x-{part}.conllu").write_text((rows + "\n") * 4)
    return folder
