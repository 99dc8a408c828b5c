"""What layers know: WordNet, data of tasks, senses by nearest means, thresholds, correlations."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from conftest import SHARED
from elmo.analysis.layers.report import draw_layers, render_layers
from elmo.analysis.layers.static_targets import static_targets
from elmo.analysis.layers.task_data import read_evaluation, read_pairs, read_semcor
from elmo.analysis.layers.tasks import best_threshold, measure_layers, read_layer_data
from elmo.analysis.layers.wordnet import WordNet
from elmo.analysis.passages import Corpus
from elmo.analysis.report_files import as_json
from elmo.analysis.settings import (
    WORDNET,
    CorpusSettings,
    CorrelationSettings,
    LayerSettings,
)
from elmo.analysis.targets import all_targets, every_word, layer_names
from elmo.analysis.words.correlation import (
    compare_with_people,
    ranks,
    read_judged_pairs,
    spearman,
    spearman_estimate,
)
from elmo.analysis.words.correlation_report import draw_correlation, render_correlation
from elmo.embed.selection import mix_layers
from elmo.errors import ConfigError, InputError, MissingFileError
from elmo.text.files import get_tokenizer
from elmo.text.vector_sources import open_vectors

TASKS = SHARED / "data" / "tasks"

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


# --- WordNet --------------------------------------------------------------------------------------


def test_first_senses_are_given_as_keys(wordnet_folder):
    wordnet = WordNet(wordnet_folder)
    assert wordnet.first_sense("Bank", "NOUN") == "bank%1:14:00::"
    assert wordnet.first_sense("peculiar", "ADJ") == "peculiar%5:00:00:odd:02"
    assert wordnet.first_sense("unheard-of", "NOUN") is None


def test_a_folder_without_wordnet_is_told(tmp_path, wordnet_folder):
    with pytest.raises(MissingFileError, match="wordnet-base"):
        WordNet(tmp_path)
    for path in wordnet_folder.iterdir():
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "data.noun").write_text("x" * 80)
    with pytest.raises(InputError, match="are the files of one version"):
        WordNet(tmp_path).first_sense("bank", "NOUN")


def test_the_first_senses_of_the_real_wordnet_score_as_published():
    """65.2 on all data sets, as in Raganato et al. (2017), table 2."""
    if not (TASKS / "wsd").is_dir():
        pytest.skip("the data of tasks is not beside the repository (../shared/data/tasks)")
    if not (WORDNET / "index.noun").is_file():
        pytest.skip("WordNet is not installed (Debian: wordnet-base)")
    data, wordnet = read_evaluation(TASKS / "wsd"), WordNet(WORDNET)
    assert len(data.spans) == 7253
    right = {}
    for lemma, keys, group in zip(data.lemmas, data.keys, data.groups, strict=True):
        right.setdefault(group, []).append(wordnet.first_sense(*lemma) in keys)
    scores = {group: round(100 * float(np.mean(r)), 1) for group, r in right.items()}
    assert scores == {
        "senseval2": 66.8, "senseval3": 66.2, "semeval2007": 55.2, "semeval2013": 63.0,
        "semeval2015": 67.8,
    }  # fmt: skip
    assert round(100 * np.mean([r for rights in right.values() for r in rights]), 1) == 65.2


# --- data -----------------------------------------------------------------------------------------


def test_semcor_is_read_with_phrases_split(data_folder):
    data = read_semcor(data_folder / "wsd")
    assert data.sentences[1] == ["muddy", "river", "bank", "."]
    assert data.spans.tolist() == [[0, 1, 2], [1, 1, 3], [2, 1, 2]]
    assert data.keys[2] == ["bank%1:14:00::", "bank%1:06:01::"]
    assert set(data.lemmas) == {("bank", "NOUN")}
    assert len(read_semcor(data_folder / "wsd", limit=1).sentences) == 1


def test_the_evaluation_is_read_with_its_sets(data_folder):
    data = read_evaluation(data_folder / "wsd")
    assert data.sentences == [["a", "bank", "&"], ["very", "peculiar"]]
    assert data.spans.tolist() == [[0, 1, 2], [1, 0, 2]]
    assert data.groups == ["senseval2", "semeval2013"]
    assert len(data.keys[1]) == 2


def test_pairs_find_their_word_in_raw_text(data_folder):
    data = read_pairs(data_folder / "wic", "dev.en-en", get_tokenizer("english"), limit=4)
    assert len(data.same) == 4
    assert data.same.tolist() == [True, False, True, False]
    for sentence, first, last in data.spans:
        assert data.sentences[sentence][first:last] == ["bank"]
    assert data.sentences[1] == ["The", "bank", "closed", "."]


def test_bad_data_is_told(tmp_path):
    with pytest.raises(MissingFileError, match=r"semcor\.jsonl"):
        read_semcor(tmp_path)
    (tmp_path / "semcor.jsonl").write_text('{"words": ["a"]}\n')
    with pytest.raises(InputError, match="line 1"):
        read_semcor(tmp_path)
    (tmp_path / "x.data").write_text("[{]")
    with pytest.raises(InputError, match="no JSON"):
        read_pairs(tmp_path, "x", get_tokenizer("english"))
    with pytest.raises(ConfigError, match="--tasks"):
        LayerSettings(tasks=())


def test_data_that_nobody_named_is_asked_for(tmp_path):
    with pytest.raises(ConfigError, match=r"pos, wsd, wic: give --data FOLDER.*pos_ewt \("):
        read_layer_data(LayerSettings(), print)
    some = LayerSettings(tasks=("wic", "pos"), treebank=tmp_path)
    with pytest.raises(ConfigError, match=r"for wic: give --data .*mcl-wic\); or .* by --wic, or"):
        read_layer_data(some, print)


# --- tasks ----------------------------------------------------------------------------------------


def test_targets_are_means_of_their_words_in_every_layer(tiny_elmo):
    sentences = [["a", "b", "c"], ["d"], ["e", "f"]]
    spans = np.array([[0, 0, 2], [0, 2, 3], [2, 0, 2]])
    found = all_targets(tiny_elmo, sentences, spans)
    vectors = tiny_elmo.encode_tokens(sentences)
    expected = np.stack([vectors[s][:, a:b].mean(axis=1) for s, a, b in spans], axis=1)
    np.testing.assert_allclose(found[:-1], expected, atol=1e-6)
    mixed = tiny_elmo.encode_tokens(sentences, layers="mix")
    np.testing.assert_allclose(found[-1, 1], mixed[0][2], atol=1e-6)
    assert every_word(sentences).tolist()[3] == [1, 0, 1]
    assert layer_names(tiny_elmo) == ["0", "1", "2", "mix"]


def test_static_targets_know_the_word_and_the_mean_of_its_sentence(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("a 1 0\nB 0 2\nb 0 4\n", encoding="utf-8")
    sentences = [["A", "B", "?"], ["b"]]
    spans = np.array([[0, 0, 1], [0, 0, 2], [1, 0, 1]])
    alone, together = static_targets(open_vectors(str(path)), sentences, spans)
    np.testing.assert_allclose(alone, [[1, 0], [0.5, 1], [0, 4]])
    np.testing.assert_allclose(together, [[1 / 3, 2 / 3], [1 / 3, 2 / 3], [0, 4]], atol=1e-6)


@given(
    hnp.arrays(np.float64, st.integers(1, 20), elements=st.sampled_from([0.1, 0.2, 0.3, 0.5])),
    st.randoms(use_true_random=False),
)
def test_no_threshold_is_better_than_the_best(values, random):
    same = np.array([random.random() < 0.5 for _ in values])
    threshold, accuracy = best_threshold(values, same)
    assert ((values > threshold) == same).mean() == pytest.approx(accuracy)
    tried = [((values > t) == same).mean() for t in np.arange(-0.05, 1.0, 0.1)]
    assert accuracy >= max(tried) - 1e-12


def test_senses_are_those_of_the_nearest_means(tiny_elmo, data_folder, wordnet_folder):
    settings = LayerSettings(data=data_folder, tasks=("wsd",), wordnet=wordnet_folder)
    report = measure_layers(tiny_elmo, read_layer_data(settings, print), print)
    semcor = tiny_elmo.encode_tokens(
        [["my", "bank", "lends"], ["muddy", "river", "bank", "."], ["the", "bank"]]
    )
    target = tiny_elmo.encode_tokens([["a", "bank", "&"]])[0][:, 1]
    money = (semcor[0][:, 1] + semcor[2][:, 1]) / 2
    shore = (semcor[1][:, 1:3].mean(axis=1) + semcor[2][:, 1]) / 2

    def cosine(a, b):
        return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))

    for layer, score in enumerate(report.wsd[:-1]):
        right = cosine(target[layer], shore[layer]) > cosine(target[layer], money[layer])
        # The adjective is not in our SemCor: its first sense is right.
        assert score.f1 == pytest.approx((right + 1) / 2)
        assert score.by_set == {"senseval2": float(right), "semeval2013": 1.0}
        assert score.f1_seen == float(right)
    assert report.sense_unseen == 1
    assert report.first_sense_f1 == 0.5  # the first sense of bank is money


def test_all_tasks_make_a_report_with_a_picture(tmp_path, tiny_elmo, data_folder, wordnet_folder):
    settings = LayerSettings(data=data_folder, wordnet=wordnet_folder)
    report = measure_layers(tiny_elmo, read_layer_data(settings, print), print)
    assert [len(scores) for scores in (report.pos, report.wsd, report.wic)] == [4, 4, 4]
    assert report.pos[0].accuracy == 1.0  # two words, two tags
    assert report.wic[0].train_accuracy == 0.5  # all pairs are the same
    json.loads(as_json(report))
    for markdown in (False, True):
        text = render_layers(report, markdown)
        assert "first sense" in text
        assert "97.3" in text
    pytest.importorskip("matplotlib")
    draw_layers(report, tmp_path / "layers")
    assert (tmp_path / "layers.svg").stat().st_size > 1000


def test_static_vectors_are_asked_beside_the_layers(
    tmp_path, tiny_elmo, data_folder, wordnet_folder
):
    path = tmp_path / "vectors.txt"
    path.write_text("the 1 0\ndog 0 2\nbank 0 4\n", encoding="utf-8")
    settings = LayerSettings(data=data_folder, wordnet=wordnet_folder, static=str(path))
    report = measure_layers(tiny_elmo, read_layer_data(settings, print), print)
    assert [score.layer for score in report.pos] == ["static", "0", "1", "2", "mix"]
    assert [score.layer for score in report.wic][:3] == ["static", "static, sentence", "0"]
    assert "static, sentence" in render_layers(report)
    assert "vectors.txt" in report.notes[0]


# --- people ---------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30))
def test_equal_values_share_their_mean_rank(values):
    ordered = sorted(values)
    expected = [np.mean([k for k, v in enumerate(ordered) if v == value]) for value in values]
    assert ranks(np.array(values, float)).tolist() == expected


@given(hnp.arrays(np.float64, (2, 12), elements=st.integers(0, 5).map(float)))
def test_spearman_is_pearson_of_ranks(values):
    first, second = values
    found = spearman(first, second)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert found is None
    else:
        expected = np.corrcoef(ranks(first), ranks(second))[0, 1]
        assert found == pytest.approx(expected, abs=1e-9)


def test_spearman_knows_its_extremes():
    values = np.arange(10.0)
    assert spearman(values, values**3) == pytest.approx(1.0)
    assert spearman(values, -values) == pytest.approx(-1.0)
    assert spearman(values[:2], values[:2]) is None
    found = spearman_estimate(values, values, 50, 0)
    assert found.low == pytest.approx(1.0)


@pytest.mark.parametrize("separator", ["\t", ",", "  ", "; "])
def test_pairs_of_people_are_read_in_any_columns(tmp_path, separator):
    rows = [("word1", "word2", "score"), ("a", "b", "1.5"), ("李白", "诗", "9"), ("c", "d", "0")]
    path = tmp_path / "pairs.txt"
    path.write_text("\r\n".join(separator.join(row) for row in rows) + "\r\n\r\n# end\r\n")
    pairs = read_judged_pairs(path)
    assert (pairs.left[1], pairs.right[1], pairs.scores[1]) == ("李白", "诗", 9.0)
    assert len(pairs.scores) == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a b 1\na b\n", "line 2"),
        ("a b 1\na b nan\n", "line 2"),
        ("a b 1\n", "has 1 pair;"),
        ("a b x\n", r"has 0 pairs \(line 1, 'a b x', has no score: taken for a header\);"),
    ],
)
def test_files_that_are_no_pairs_are_told(tmp_path, text, told):
    (tmp_path / "pairs.txt").write_text(text)
    with pytest.raises(InputError, match=told):
        read_judged_pairs(tmp_path / "pairs.txt")


def test_words_are_compared_in_isolation_and_in_context(tmp_path, tiny_elmo):
    (tmp_path / "pairs.txt").write_text("cat dog 5\ncat car 2\ndog car 1\ncat unseen 3\n")
    (tmp_path / "text.txt").write_text("the cat sat\na dog sat\nthe car went\na cat ran\n")
    pairs = read_judged_pairs(tmp_path / "pairs.txt")
    corpus = Corpus(CorpusSettings(corpus=(tmp_path / "text.txt",)))
    settings = CorrelationSettings(resamples=20)
    report = compare_with_people(tiny_elmo, [pairs], corpus, settings)
    assert [(row.way, row.layer, row.n_pairs) for row in report.rows] == [
        (way, layer, n)
        for way, n in (("isolation", 4), ("context", 3))
        for layer in ("0", "1", "2", "mix")
    ]
    assert "3 of 4 pairs" in report.notes[0]
    assert "unseen" in report.notes[0]
    alone = {w: tiny_elmo.encode_tokens([[w]])[0][:, 0] for w in pairs.words}

    def cosine(a, b):
        return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))

    cosines = [
        cosine(alone[a][2], alone[b][2]) for a, b in zip(pairs.left, pairs.right, strict=True)
    ]
    expected = spearman(pairs.scores, np.array(cosines))
    assert report.rows[2].spearman.value == pytest.approx(expected)
    embedded = tiny_elmo.encode_tokens(list(corpus))
    cat = (embedded[0][:, 1] + embedded[3][:, 1]) / 2
    means = {"cat": cat, "dog": embedded[1][:, 1], "car": embedded[2][:, 1]}
    cosines = [
        cosine(means[a][1], means[b][1])
        for a, b in (("cat", "dog"), ("cat", "car"), ("dog", "car"))
    ]
    assert report.rows[5].spearman.value == pytest.approx(
        spearman(pairs.scores[:3], np.array(cosines))
    )
    json.loads(as_json(report))
    assert "in context" in render_correlation(report)
    pytest.importorskip("matplotlib")
    draw_correlation(report, tmp_path / "picture")
    assert (tmp_path / "picture.png").is_file()


def test_a_corpus_without_the_words_leaves_isolation(tmp_path, tiny_elmo):
    (tmp_path / "pairs.txt").write_text("a b 1\nc d 2\ne f 3\n")
    (tmp_path / "text.txt").write_text("something else\n")
    corpus = Corpus(CorpusSettings(corpus=(tmp_path / "text.txt",)))
    pairs = read_judged_pairs(tmp_path / "pairs.txt")
    report = compare_with_people(tiny_elmo, [pairs], corpus, CorrelationSettings(resamples=5))
    assert {row.way for row in report.rows} == {"isolation"}
    assert "too few to compare in context" in report.notes[0]


def test_the_chinese_sets_are_read():
    folder = SHARED / "data" / "zh"
    if not (folder / "240.txt").is_file():
        pytest.skip("the Chinese sets are not beside the repository (../shared/data/zh)")
    assert len(read_judged_pairs(folder / "240.txt").scores) == 240
    assert len(read_judged_pairs(folder / "297.txt").scores) == 297


def test_the_mix_is_the_models_own(tiny_elmo):
    import torch

    vectors = tiny_elmo.encode_tokens([["a", "b"]])[0]
    found = all_targets(tiny_elmo, [["a", "b"]], every_word([["a", "b"]]))
    expected = mix_layers([torch.from_numpy(layer) for layer in vectors], tiny_elmo.config)
    np.testing.assert_allclose(found[-1], expected.numpy(), atol=1e-6)
