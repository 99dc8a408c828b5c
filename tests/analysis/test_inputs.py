"""The functions of analysis take models, texts and settings as users have them."""

import pytest

import elmo
from elmo import analysis
from elmo.analysis.settings import ContextualitySettings, CorpusSettings, SimilarSettings
from elmo.errors import ConfigError, ElmoWarning, InputError, OutputExistsError

RAW = "The bank isn't far. He's at the bank, isn't he? Banks lend money; rivers don't.\n" * 4


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the bank of the river\na bank lends money\nthe cat sat\na river ran\n")
    return path


def test_settings_are_keywords_or_the_dataclass_of_the_command(tiny_elmo, text):
    by_keyword = elmo.similar("bank", model=tiny_elmo, corpus=text, min_count=1, top=2)
    settings = SimilarSettings(min_count=1, top=2)
    assert by_keyword == elmo.similar("bank", model=tiny_elmo, corpus=str(text), settings=settings)
    corpus = CorpusSettings(corpus=(text,))
    assert by_keyword == elmo.similar("bank", model=tiny_elmo, corpus=corpus, settings=settings)
    (found,) = by_keyword.lists
    assert (found.word, len(found.similar)) == ("bank", 2)
    with pytest.raises(TypeError, match="tops"):
        elmo.similar("bank", model=tiny_elmo, corpus=text, tops=3)
    with pytest.raises(ConfigError, match="top is 0"):
        elmo.similar("bank", model=tiny_elmo, corpus=text, top=0)


def test_a_corpus_is_one_file_or_several_with_their_settings_as_keywords(tiny_elmo, text):
    once = analysis.contextuality(model=tiny_elmo, corpus=text, min_contexts=2, resamples=2)
    twice = analysis.contextuality(
        model=tiny_elmo, corpus=[text, text], min_contexts=2, resamples=2, ignore_case=True
    )
    assert (once.n_sentences, twice.n_sentences) == (4, 8)
    assert once.tokenizer == "whitespace"
    assert once.corpus == "text.txt"
    assert once.layers == twice.layers  # the same sentences count once


def test_a_model_is_one_in_memory_or_a_name(text):
    loaded = elmo.ELMo.from_pretrained("small-en", device="cpu")
    by_name, in_memory = (
        elmo.neighbors("He is at the [bank].", model=model, corpus=text, top=1)
        for model in ("small-en", loaded)
    )
    assert by_name == in_memory
    assert by_name.neighborhoods[0].sentence[-2:] == ["bank", "."]


def test_a_report_is_saved_where_a_folder_is_given(tiny_elmo, text, tmp_path):
    settings = ContextualitySettings(min_contexts=2, resamples=2, out=tmp_path / "out")
    report = analysis.contextuality(model=tiny_elmo, corpus=text, settings=settings)
    saved = {path.suffix for path in (tmp_path / "out").iterdir()}
    assert saved == set(report.endings())
    assert (tmp_path / "out" / "contextuality.json").read_text() == report.json() + "\n"
    with pytest.raises(OutputExistsError, match="overwrite"):
        analysis.contextuality(model=tiny_elmo, corpus=text, settings=settings)


def test_functions_without_a_question_say_what_they_need(tiny_elmo, text):
    for asked, missing in (
        (lambda: elmo.similar(model=tiny_elmo, corpus=text), "needs a WORD"),
        (lambda: elmo.neighbors(model=tiny_elmo, corpus=text), "needs a SENTENCE"),
        (lambda: elmo.neighbors("[a]", model=tiny_elmo), "no text to read"),
        (lambda: analysis.correlation(model=tiny_elmo), "needs a FILE"),
        (lambda: analysis.contextuality(model=tiny_elmo), "no text to read"),
    ):
        with pytest.raises(InputError, match=missing):
            asked()


def test_raw_text_is_split_as_the_text_of_the_model_was(tmp_path):
    (tmp_path / "raw.txt").write_text(RAW)

    def counts(**settings):
        corpus = tmp_path / "raw.txt"
        found = elmo.similar("bank", model="small-en", corpus=corpus, min_count=1, **settings)
        return {near.word: near.count for near in found.lists[0].similar}

    assert counts(top=50) == counts(top=50, tokenizer="english")
    assert counts(top=50)["n't"] == 12
    with pytest.warns(ElmoWarning, match="looks raw .*model"):
        assert "isn't" in counts(top=50, tokenizer="whitespace")


def test_the_look_at_a_corpus_is_reported_once(tmp_path, recwarn):
    path = tmp_path / "split.txt"
    path.write_text("He was , he said , at the bank . Was he ?\n" * 5)
    elmo.similar("bank", model="small-en", corpus=path, min_count=1)  # reads the corpus twice
    told = [str(w.message) for w in recwarn if issubclass(w.category, ElmoWarning)]
    assert len(told) == 1
    assert "looks split into words already" in told[0]
