"""A trained model is measured on held-out documents as training measured it."""

import json
import math

import pytest

from elmo import ElmoConfig
from elmo.cli.main import main
from elmo.errors import InputError, WeightsError
from elmo.model.bilm import random_bilm
from elmo.runtime.metrics_file import read_metrics
from elmo.training.corpus.prepare import prepare
from elmo.training.corpus.settings import PrepareSettings
from elmo.training.heldout import heldout_perplexity
from elmo.training.snapshots import load_snapshot
from elmo.training.trainer import train
from elmo.weights.card import ModelCard
from elmo.weights.formats import save_checkpoint
from training.test_trainer import made_up_text, quick


def prepared(folder, **changes):
    text = folder / "text.txt"
    text.write_text(made_up_text(), encoding="utf-8")
    settings = {"heldout_share": 0.2, "min_count": 1, "workers": 1, **changes}
    prepare([text], folder / "data", PrepareSettings(**settings))
    return folder / "data"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    corpus = prepared(folder)
    train(quick(corpus, folder / "run", steps=20, validate_every=20, log_every=20))
    return corpus, folder / "run"


def test_a_saved_model_predicts_held_out_text_as_it_did_in_training(run):
    corpus, out = run
    told = [row for row in read_metrics(out / "metrics.jsonl") if row["split"] == "heldout"][-1]
    found = heldout_perplexity(str(out / "best"), corpus)
    assert found.forward == pytest.approx(told["perplexity_forward"], rel=1e-6)
    assert found.backward == pytest.approx(told["perplexity_backward"], rel=1e-6)
    assert found.n_words > 0
    assert heldout_perplexity(str(out / "best"), corpus, most_words=10).n_predictions <= 100


def test_the_command_measures_a_prepared_folder(run, capsys):
    corpus, out = run
    assert main(["perplexity", str(out / "best"), str(corpus), "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["forward"] == heldout_perplexity(str(out / "best"), corpus).forward
    assert main(["perplexity", str(out / "best"), str(corpus), "--quiet"]) == 0
    assert "mean" in capsys.readouterr().out


def test_every_command_states_the_same_mean_of_both_directions(run, tmp_path, capsys):
    """The geometric one: exp of the mean loss."""
    corpus, out = run
    text = tmp_path / "text.txt"
    text.write_text("the cat sat\non the mat\n")

    def command(*arguments):
        assert main(["perplexity", str(out / "best"), *arguments, "--json", "--quiet"]) == 0
        found = json.loads(capsys.readouterr().out)
        return found["forward"], found["backward"], found["mean"]

    row = [row for row in read_metrics(out / "metrics.jsonl") if row["split"] == "heldout"][-1]
    snapshot, _ = load_snapshot(out)
    card = ModelCard.from_dict(
        {
            "name": "x",
            "language": "en",
            "description": "y",
            "license": "z",
            "perplexity": {"forward": 64.0, "backward": 49.0, "mean": 56.5},
        }
    )
    stated = [
        command(str(text)),
        command(str(corpus)),
        (row["perplexity_forward"], row["perplexity_backward"], math.exp(row["loss"])),
        (row["perplexity_forward"], row["perplexity_backward"], snapshot.progress.best_perplexity),
        (64.0, 49.0, card.perplexity.mean),
        (64.0, 49.0, json.loads(card.to_json())["perplexity"]["mean"]),
    ]
    for forward, backward, mean in stated:
        assert mean == pytest.approx(math.sqrt(forward * backward), rel=1e-9)
        assert forward != backward


def test_a_model_of_other_words_or_of_none_is_refused(run, tmp_path):
    _, out = run
    other = prepared(tmp_path, vocab_size=8)
    with pytest.raises(InputError, match=r"predicts .* words that are not the 8 .*vocabulary"):
        heldout_perplexity(str(out / "best"), other)
    save_checkpoint(
        random_bilm(ElmoConfig.preset("tiny")).to_checkpoint(), tmp_path / "mute", "elmo"
    )
    with pytest.raises(WeightsError, match="no output layer"):
        heldout_perplexity(str(tmp_path / "mute"), other)


def test_a_corpus_that_holds_nothing_out_is_named(run, tmp_path):
    _, out = run
    corpus = prepared(tmp_path, heldout_share=0, vocabulary=out / "best" / "vocab.txt")
    with pytest.raises(InputError, match="no held-out text"):
        heldout_perplexity(str(out / "best"), corpus)
