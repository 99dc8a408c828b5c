"""Data sets cut into train, dev and test."""

import json
from itertools import chain

import pytest

from elmo.errors import InputError, MissingFileError
from elmo.tasks.readers import splits
from elmo.tasks.readers.tables import read_table
from elmo.tasks.settings import ReadOptions
from reader_samples import PAIR, litbank, squad

WORDS = ReadOptions(tokenizer="whitespace")


def test_the_small_training_set_of_snli_knows_no_premise_of_the_others(
    write, tmp_path, monkeypatch
):
    monkeypatch.setattr(splits, "TUNED_PAIRS", 4)
    pairs = [{**PAIR, "sentence1": f"Premise {k // 2} ."} for k in range(20)]
    test = [{**PAIR, "sentence1": "premise  3"}]
    write("\n".join(map(json.dumps, pairs)), "snli_1.0_dev.jsonl")
    write("\n".join(map(json.dumps, test)), "snli_1.0_test.jsonl.gz")
    rows = ["\t".join([f"Premise {k} .", "h", "neutral"]) for k in range(12)]
    write("\n".join(["\t".join(PAIR), *rows]), "cad-train.tsv")
    parts = splits.split_snli(tmp_path, tmp_path / "out")
    premises = [
        {json.loads(line)["sentence1"].lower().replace(" ", "").strip(".")
         for line in path.read_text().splitlines()}
        for path in parts
    ]  # fmt: skip
    assert len(premises[1]) == 2
    assert premises[2] == {"premise3"}
    assert not premises[0] & (premises[1] | premises[2])
    assert len(premises[0]) == 12 - len(premises[1] | premises[2])


def test_squad_is_cut_between_articles(write, tmp_path):
    data = [squad("Ann.", {"text": "Ann", "answer_start": 0})["data"][0] for _ in range(40)]
    for number, article in enumerate(data):
        article["title"] = str(number)
    for name in ("train-v1.1-x.json", "dev-v1.1.json"):
        write(json.dumps({"version": "1.1", "data": data}), name)
    parts = splits.split_squad(tmp_path, tmp_path / "out")
    titles = [
        [article["title"] for article in json.loads(path.read_text())["data"]] for path in parts
    ]
    assert [len(part) for part in titles] == [38, 2, 40]
    assert sorted(titles[0] + titles[1]) == sorted(titles[2])


def test_agnews_and_trec_keep_every_row_once(write, tmp_path):
    write("label,text\n" + "".join(f'{k % 4},"a, {k}"\n' for k in range(50)), "news.csv")
    parts = splits.split_agnews(tmp_path, tmp_path / "out")
    found = [[tuple(e.words) for e in read_table(path, WORDS)] for path in parts]
    assert [len(part) for part in found] == [40, 5, 5]
    assert len(set(chain.from_iterable(found))) == 50
    for name in ("TREC.train.all", "TREC.test.all"):
        (tmp_path / name).write_bytes(b"LOC Where is \xe9 ?\n" * 20)
    parts = splits.split_trec(tmp_path, tmp_path / "trec")
    assert [len(read_table(path, WORDS)) for path in parts] == [18, 2, 20]
    assert read_table(parts.dev, WORDS)[0].words == ["Where", "is", "é", "?"]


def test_splits_say_what_is_missing(tmp_path, write):
    with pytest.raises(MissingFileError, match=r"has no file snli_1\.0_dev\.jsonl"):
        splits.split_snli(tmp_path, tmp_path / "out")
    write(litbank([("b", "(0)")]), "b.conll")
    with pytest.raises(InputError, match="1 documents, expected 100"):
        splits.split_litbank(tmp_path, tmp_path / "out")
