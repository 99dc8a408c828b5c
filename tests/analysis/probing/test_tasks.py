"""What layers know: probes, senses by nearest means, thresholds on cosines."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from elmo.analysis.probing.tasks import best_threshold, layers, read_layer_data
from elmo.analysis.settings import LayerSettings
from elmo.errors import ConfigError


@pytest.mark.parametrize("task", ["pos", "wsd", "wic"])
def test_a_task_without_data_says_which_and_where_to_find_it(tmp_path, task):
    homes = {"pos": "UniversalDependencies", "wsd": "wsdeval", "wic": "mcl-wic"}
    with pytest.raises(ConfigError) as error:
        read_layer_data(LayerSettings(tasks=(task,)))
    assert f"no data for {task}" in str(error.value)
    assert homes[task] in str(error.value)
    assert "data FOLDER" in str(error.value)
    assert len(str(error.value).splitlines()) == 3
    with pytest.raises(ConfigError, match=f"no data in {tmp_path} for pos, wsd, wic"):
        read_layer_data(LayerSettings(data=tmp_path))


def test_tasks_are_those_whose_data_is_given(tiny_elmo, data_folder, wordnet_folder):
    settings = LayerSettings(treebank=data_folder / "pos_ewt")
    report = layers(model=tiny_elmo, settings=settings)
    assert (report.wsd, report.wic) == (None, None)
    assert len(report.pos.scores) == 4
    assert report.notes == [
        f"{task} was left out: no data is given for it" for task in ("wsd", "wic")
    ]
    every = read_layer_data(LayerSettings(data=data_folder, wordnet=wordnet_folder))
    assert None not in (every.tags, every.senses, every.pairs)
    with pytest.raises(ConfigError, match="no data for wic"):
        read_layer_data(LayerSettings(treebank=data_folder, tasks=("pos", "wic")))


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
    report = layers(model=tiny_elmo, settings=settings)
    semcor = tiny_elmo.encode_tokens(
        [["my", "bank", "lends"], ["muddy", "river", "bank", "."], ["the", "bank"]]
    )
    target = tiny_elmo.encode_tokens([["a", "bank", "&"]])[0][:, 1]
    money = (semcor[0][:, 1] + semcor[2][:, 1]) / 2
    shore = (semcor[1][:, 1:3].mean(axis=1) + semcor[2][:, 1]) / 2

    def cosine(a, b):
        return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))

    for layer, score in enumerate(report.wsd.scores[:-1]):
        right = cosine(target[layer], shore[layer]) > cosine(target[layer], money[layer])
        # The adjective is not in our SemCor: its first sense is right.
        assert score.f1 == pytest.approx((right + 1) / 2)
        assert score.by_set == {"senseval2": float(right), "semeval2013": 1.0}
        assert score.f1_seen == float(right)
    assert report.wsd.n_unseen == 1
    assert report.wsd.first_sense_f1 == 0.5  # the first sense of bank is money


def test_all_tasks_make_a_report_with_a_picture(tmp_path, tiny_elmo, data_folder, wordnet_folder):
    settings = LayerSettings(data=data_folder, wordnet=wordnet_folder)
    report = layers(model=tiny_elmo, settings=settings)
    assert [
        len(scores) for scores in (report.pos.scores, report.wsd.scores, report.wic.scores)
    ] == [4, 4, 4]
    assert report.pos.scores[0].accuracy == 1.0  # two words, two tags
    assert report.wic.scores[0].train_accuracy == 0.5  # all pairs are the same
    json.loads(report.json())
    for text in (report.text(), report.markdown()):
        assert "first sense" in text
        assert "97.3" in text
    pytest.importorskip("matplotlib")
    report.save(tmp_path)
    assert (tmp_path / "layers.svg").stat().st_size > 1000


def test_static_vectors_are_asked_beside_the_layers(
    tmp_path, tiny_elmo, data_folder, wordnet_folder
):
    path = tmp_path / "vectors.txt"
    path.write_text("the 1 0\ndog 0 2\nbank 0 4\n", encoding="utf-8")
    settings = LayerSettings(data=data_folder, wordnet=wordnet_folder, static_vectors=str(path))
    report = layers(model=tiny_elmo, settings=settings)
    assert [score.layer for score in report.pos.scores] == ["static", "0", "1", "2", "mix"]
    assert [score.layer for score in report.wic.scores][:3] == ["static", "static, sentence", "0"]
    assert "static, sentence" in report.text()
    assert "vectors.txt" in report.notes[0]
