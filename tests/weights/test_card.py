"""Model cards: written, read, checked, shown."""

import json
import re

import pytest

from elmo.cli.main import main
from elmo.errors import ConfigError
from elmo.hub import names
from elmo.hub.names import open_model
from elmo.weights.card import ModelCard
from elmo.weights.formats import save_checkpoint
from named_models import CARD


def test_info_prints_the_card_and_checks_the_files(bundled, capsys):
    assert main(["info", "small-en", "--long"]) == 0
    text = capsys.readouterr().out
    for expected in (
        "small-en: A model of a test.",
        "CC BY-SA 4.0",
        "A book (https://x.y), 12,345 words, public domain",
        "56.00 (forward 64.00, backward 49.00)",
        "12.5 minutes",
        "a coffee",
        "1,000,000",
        "2.13%",
        "POS: 91.2 %",
        "$ elmo probe pos",
        "$ elmo train --data data --out run",
        "model.safetensors  (checked)",
        "softmax.safetensors  (checked)",
    ):
        assert expected in text
    assert "NOT WHAT" not in text
    (bundled / "vocab.txt").write_text((bundled / "vocab.txt").read_text().rstrip() + " \n")
    assert main(["info", "small-en", "--long"]) == 0
    captured = capsys.readouterr()
    assert "vocab.txt  (NOT WHAT THE CARD SAYS)" in captured.out
    assert "vocab.txt changed since" in captured.err
    assert main(["info", str(bundled), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["changed_files"] == ["vocab.txt"]
    assert facts["card"]["perplexity"]["mean"] == 56.0


def test_a_card_survives_its_file_and_knows_what_changed(bundled, tmp_path):
    card = ModelCard.read(bundled / "card.json")
    assert card.parameters == sum(t.numel() for t in open_model("small-en").tensors.values())
    assert set(card.files) == {
        "config.json",
        "model.safetensors",
        "softmax.safetensors",
        "vocab.txt",
    }
    assert ModelCard.from_dict(json.loads(card.to_json())) == card
    assert card.changed_files(bundled) == []
    (bundled / "config.json").unlink()
    assert card.changed_files(bundled) == ["config.json"]
    readme = (bundled / "README.md").read_text()
    assert readme.startswith("---\nlibrary_name: elmo-torch\nlanguage: en\n")
    for expected in (
        "# small-en",
        "| held-out perplexity | 56.00",
        "## Figures",
        "| fingerprint |",
    ):
        assert expected in readme


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "holds a list"),
        ({"name": "x", "language": "en", "description": "y"}, "field 'license' is missing"),
        ({"color": "red"}, "unknown field 'color'; known are commands"),
        (
            {**json.loads(CARD.to_json()), "sources": [{"name": "x"}]},
            "sources: the field 'license'",
        ),
        ({**json.loads(CARD.to_json()), "figures": {}}, "figures is {}, expected a list"),
        ({**json.loads(CARD.to_json()), "perplexity": {"mean": 1}}, "perplexity: is {'mean': 1}"),
    ],
)
def test_a_card_with_mistakes_is_told(tmp_path, content, message):
    path = tmp_path / "card.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=re.escape(message)):
        ModelCard.read(path)
    path.write_text("{")
    with pytest.raises(ConfigError, match="not valid JSON"):
        ModelCard.read(path)


def test_a_card_goes_with_our_layout_only(tmp_path, capsys):
    (tmp_path / "card.json").write_text(CARD.to_json())
    arguments = ["--to", "hdf5", "--card", str(tmp_path / "card.json")]
    assert main(["convert", "random-tiny", str(tmp_path / "out"), *arguments]) == 2
    assert "--card goes with the format elmo" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["small-en", "small-zh"])
def test_the_models_that_ship_are_what_their_cards_say(name):
    folder = names.BUNDLED / name
    if not (folder / "config.json").is_file():
        pytest.skip(f"{name} is not in this checkout")
    card = ModelCard.read(folder / "card.json")
    assert card.name == name
    assert card.sources
    assert card.perplexity is not None
    assert card.changed_files(folder) == []
    assert sum(path.stat().st_size for path in folder.iterdir()) < 60e6


def test_a_model_card_is_written_with_sizes_and_fingerprint(folder, checkpoint):
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: elmo-torch\n")
    assert checkpoint.fingerprint() in card
    assert "2 per direction, 64 LSTM cells, projected to 16" in card
    assert "characters (UTF-8 bytes, 50 a word), 124 filters, 1 highway layers" in card


def test_the_card_of_a_word_model_says_so(word_folder):
    assert "words of a vocabulary of 9" in (word_folder / "README.md").read_text()


def test_a_card_that_is_there_is_kept(folder, checkpoint):
    (folder / "README.md").write_text("mine")
    save_checkpoint(checkpoint, folder)
    assert (folder / "README.md").read_text() == "mine"
