"""Names of models: folders, files, pairs, untrained ones and the Hub."""

import fnmatch
import re
import subprocess
import sys
from urllib.parse import urlsplit

import huggingface_hub
import pytest
import torch

from elmo import ELMo, Elmo, ElmoConfig, ElmoWarning, LanguageModelScorer, batch_to_ids
from elmo.cli.main import main
from elmo.errors import ConfigError, MissingFileError
from elmo.hub import names
from elmo.hub.cache import folder_of
from elmo.hub.names import (
    PUBLISHED,
    HubOptions,
    bundled_models,
    default_model,
    find_card,
    find_published,
    is_untrained,
    open_model,
    require_known,
    similar_names,
)
from elmo.weights.files import rounded_checkpoint
from elmo.weights.formats import patterns
from named_models import assert_tiny
from strategies import VOCABULARY

SENTENCES = [["The", "cat"], ["No"]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_elmo):
    """The tiny model in both layouts."""
    base = tmp_path_factory.mktemp("models")
    tiny_elmo.save_pretrained(base / "ours")
    tiny_elmo.save_pretrained(base / "hdf5", format="hdf5")
    return base


@pytest.mark.parametrize("path", ["ours", "hdf5", "ours/model.safetensors", "hdf5/weights.hdf5"])
@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_a_folder_or_its_weights_file_is_a_name(folders, tiny_elmo, path, kind):
    assert_tiny(ELMo.from_pretrained(kind(folders / path)), tiny_elmo)


def test_a_pair_of_options_and_weights_will_do(folders, tiny_elmo):
    pair = {
        "options": folders / "hdf5" / "options.json",
        "weights": str(folders / "hdf5" / "weights.hdf5"),
    }
    assert_tiny(ELMo.from_pretrained(**pair), tiny_elmo)


@pytest.mark.parametrize(
    "given",
    [
        {"options": "options.json"},
        {"weights": "weights.hdf5"},
        {"name": "here", "options": "options.json", "weights": "weights.hdf5"},
    ],
)
def test_half_a_pair_or_a_pair_with_a_name_is_refused(given):
    with pytest.raises(ConfigError, match="either a name or a pair"):
        open_model(**given)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"name": 3}, "name_or_path is 3 of type int"),
        ({"options": 3, "weights": "weights.hdf5"}, "options is 3 of type int"),
        ({"options": "options.json", "weights": ["w"]}, r"weights is \['w'\] of type list"),
    ],
)
def test_what_is_no_path_is_refused(given, named):
    with pytest.raises(ConfigError, match=f"{named}, expected a text or a path"):
        open_model(**given)


def test_an_address_in_the_place_of_a_file_is_named():
    address = "https://models.org/elmo_weights.hdf5"
    with pytest.raises(MissingFileError, match=f"{address} is an address, expected a file"):
        open_model(options="options.json", weights=address)


def test_a_missing_folder_is_named(tmp_path):
    for name in (tmp_path / "gone", str(tmp_path / "gone"), "gone", "./gone/model"):
        with pytest.raises(MissingFileError, match=r"no such model folder or file: .*gone"):
            open_model(name)


@pytest.mark.parametrize("missing", ["options", "weights"])
def test_a_missing_part_of_a_pair_is_named(folders, tmp_path, missing):
    pair = {
        "options": folders / "hdf5" / "options.json",
        "weights": folders / "hdf5" / "weights.hdf5",
        missing: tmp_path / "gone",
    }
    with pytest.raises(MissingFileError, match=r"no such .*file: .*gone"):
        open_model(**pair)


def test_an_untrained_model_says_that_it_is_one():
    with pytest.warns(ElmoWarning, match="'random-tiny' has random weights"):
        elmo = ELMo.from_pretrained("random-tiny")
    assert elmo.config == ElmoConfig.preset("tiny")
    with pytest.warns(ElmoWarning, match="random weights"):
        again = ELMo.from_pretrained("random-tiny")
    assert again.fingerprint == elmo.fingerprint


def test_an_unknown_size_of_untrained_model_is_named():
    with pytest.raises(MissingFileError, match="'random-huge'; untrained models are random-tiny"):
        open_model("random-huge")


def test_a_folder_called_like_an_untrained_model_is_a_folder(
    folders, tiny_elmo, tmp_path, monkeypatch
):
    tiny_elmo.save_pretrained(tmp_path / "random-tiny")
    monkeypatch.chdir(tmp_path)
    assert_tiny(ELMo.from_pretrained("random-tiny"), tiny_elmo)


def test_names_of_untrained_models_are_known():
    assert is_untrained("random-small")
    assert not is_untrained("someone/elmo")


def test_a_repository_that_cannot_be_had_is_named(monkeypatch):
    def offline(name, **settings):
        raise huggingface_hub.errors.LocalEntryNotFoundError("offline mode is on\nmore lines")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(
        MissingFileError, match=r"'someone/elmo' is no folder here.*offline mode is on$"
    ):
        open_model("someone/elmo")


def test_a_repository_is_not_asked_for_over_the_network_when_offline(monkeypatch, tmp_path):
    # Both switches lead through the real downloader, which finds nothing in an empty cache.
    with pytest.raises(MissingFileError, match="'someone/elmo' is no folder here"):
        open_model("someone/elmo", hub=HubOptions(cache_dir=tmp_path, local_files_only=True))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(MissingFileError, match="'someone/elmo' is no folder here"):
        open_model("someone/elmo", hub=HubOptions(cache_dir=tmp_path))


def test_a_download_is_read_like_a_folder_and_settings_are_handed_on(
    monkeypatch, folders, tiny_elmo, tmp_path
):
    asked = {}

    def local(name, **settings):
        asked.update(settings, name=name)
        return str(folders / "ours")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", local)
    elmo = ELMo.from_pretrained(
        "someone/elmo", revision="v1", cache_dir=tmp_path, token="t", local_files_only=True
    )
    assert_tiny(elmo, tiny_elmo)
    assert asked["name"] == "someone/elmo"
    assert (asked["revision"], asked["cache_dir"]) == ("v1", tmp_path)
    assert (asked["token"], asked["local_files_only"]) == ("t", True)
    assert asked["force_download"] is False


@torch.no_grad()
def test_the_task_module_loads_by_the_same_names(folders, tiny_bilm):
    ids = batch_to_ids(SENTENCES)
    expected = Elmo(tiny_bilm, dropout=0.0)(ids)["elmo_representations"][0]
    for module in (
        Elmo.from_pretrained(folders / "ours", dropout=0.0),
        Elmo.from_pretrained(
            options=folders / "hdf5" / "options.json",
            weights=folders / "hdf5" / "weights.hdf5",
            dropout=0.0,
        ),
    ):
        assert torch.equal(module(ids)["elmo_representations"][0], expected)
    two = Elmo.from_pretrained(folders / "ours", 2, mix="top", local_files_only=True)
    assert len(two.mixes) == 2


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "model.safetensors",
        "softmax.safetensors",
        "elmo_2x4096_512_2048cnn_2xhighway_options.json",
        "elmo_2x4096_512_2048cnn_2xhighway_weights.hdf5",
        "vocab.txt",
        "characters.txt",
        "lookup.safetensors",
        "lookup.txt",
        "card.json",
        "encoder.pkl",
        "token_embedder.pkl",
        "char.dic",
        "word.dic",
        "cnn_50_100_512_4096_sample.json",
    ],
)
def test_the_hub_is_asked_for_every_file_that_a_model_may_have(name):
    assert any(fnmatch.fnmatch(name, pattern) for pattern in patterns())


TINY_RUN = "--steps 2 --batch-size 2 --unroll-steps 4 --quiet --device cpu".split()

# --- models that come with the package ------------------------------------------------------------


def test_a_bundled_model_is_opened_by_its_name_and_is_the_default(bundled, language_model):
    assert bundled_models() == {"small-en": bundled}
    expected = rounded_checkpoint(language_model, "float16").fingerprint()
    assert open_model("small-en").fingerprint() == expected
    assert ELMo.from_pretrained(device="cpu").fingerprint == expected
    assert default_model() == "small-en"
    assert not is_untrained(None)
    assert LanguageModelScorer.from_pretrained(device="cpu").vocabulary.words == VOCABULARY


def test_without_the_bundled_model_the_default_is_untrained_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(names, "BUNDLED", tmp_path / "gone")
    assert default_model() == "random-small"
    assert is_untrained(None)
    monkeypatch.setattr(names, "_WITHOUT_IT", "random-tiny")
    with pytest.warns(ElmoWarning, match="has random weights"):
        open_model()


def test_commands_use_the_bundled_model_when_none_is_named(bundled, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("the cat sat\n\n" * 40)
    for arguments in (
        ["embed", str(tmp_path / "text.txt"), str(tmp_path / "out.h5")],
        ["info"],
        ["perplexity", str(tmp_path / "text.txt")],
        ["score", str(tmp_path / "text.txt")],
        ["finetune", str(tmp_path / "text.txt"), "--out", str(tmp_path / "tuned"), *TINY_RUN],
        ["substitutes", "the [cat] sat"],
    ):
        assert main(arguments) == 0, arguments
    captured = capsys.readouterr()
    assert "random" not in captured.err
    assert "forward     " in captured.out


# --- published models -----------------------------------------------------------------------------


def test_names_are_unique_and_every_address_is_a_web_address():
    assert len({name.casefold() for name in PUBLISHED}) == len(PUBLISHED)
    folders = [folder_of(model).name for model in PUBLISHED.values()]
    assert len(set(folders)) == len(folders)
    for model in PUBLISHED.values():
        assert re.fullmatch(r"[\w.-]+", folder_of(model).name)
        for name, file in model.files.items():
            assert urlsplit(file.address).scheme in ("http", "https")
            assert re.fullmatch(r"[\w.-]+", name)
            assert file.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", file.sha256)


def test_the_checksum_that_is_known_is_there():
    weights = PUBLISHED["small"].files["weights.hdf5"]
    assert (weights.size, weights.sha256[:8]) == (54_402_456, "747ba97a")


def test_a_published_model_is_found_by_name_or_number():
    assert find_published("ORIGINAL-5.5b").name == "original-5.5B"
    assert find_published("manylangs:zh").files["179.zip"].address.endswith("/11/179.zip")
    assert find_published("nlpl:195").language == "ru"
    assert find_published("nlpl:00210").files["210.zip"].address.endswith("/20/210.zip")
    for name in ("nlpl:", "nlpl:0", "nlpl:-1", "nlpl:../x", "nlpl:1234567", "origina", ""):
        assert find_published(name) is None


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orignal", "original"),
        ("smal", "small"),
        ("Medum", "medium"),
        ("pub-med", "pubmed"),
        ("manylang:de", "manylangs:de"),
        ("small-enn", "small-en"),
        ("random-smal", "random-small"),
        ("5.5B", "original-5.5B"),
    ],
)
def test_the_nearest_names_are_suggested(bundled, name, expected):
    assert expected in similar_names(name)
    with pytest.raises(MissingFileError, match=f"{expected}") as caught:
        open_model(name)
    assert f"no such model folder or file: {name}" in str(caught.value) or "random-" in name


def test_a_name_like_nothing_else_gets_no_guess(capsys):
    assert similar_names("zzzzqqqq") == []
    assert main(["info", "zzzzqqqq"]) == 2
    captured = capsys.readouterr()
    assert "Did you mean" not in captured.err
    assert "elmo models" in captured.err


# --- elmo models ----------------------------------------------------------------------------------


def test_what_is_on_the_disk_goes_first(cache, tiny_elmo, tmp_path, monkeypatch):
    tiny_elmo.save_pretrained(tmp_path / "original")
    monkeypatch.chdir(tmp_path)
    assert_tiny(ELMo.from_pretrained("original"), tiny_elmo)


# --- what is known of a model ---------------------------------------------------------------------


def test_a_card_is_known_without_weights(bundled, tmp_path, monkeypatch):
    (bundled / "model.safetensors").unlink()
    for name in (None, "small-en", bundled, str(bundled)):
        card = find_card(name)
        assert (card.language, card.tokenizer, card.unknown_rate) == ("en", "english", 0.0213)
    assert find_card("original").language == "en"
    assert find_card("manylangs:de").language == "de"
    for unknown in ("nosuch", tmp_path, "random-tiny", "someone/model"):
        assert find_card(unknown) is None


def test_the_folder_of_a_run_names_the_models_inside(tmp_path, tiny_elmo, monkeypatch):
    (tmp_path / "run" / "log").mkdir(parents=True)
    for name in ("best", "last"):
        tiny_elmo.save_pretrained(tmp_path / "run" / name)
    monkeypatch.chdir(tmp_path)
    for name in ("run", "run/bets"):
        with pytest.raises(MissingFileError) as caught:
            open_model(name)
        expected = "run is the folder of several models: name run/best or run/last"
        assert str(caught.value) == expected


@pytest.mark.parametrize(
    "given",
    [
        ("nosuch",),
        ("./no/such",),
        ("random-huge",),
        (None, "options.json", "weights.hdf5"),
        (None, "options.json"),
        (3,),
    ],
)
def test_what_cannot_be_a_model_is_refused_before_pytorch_is_imported(given):
    code = f"from elmo.hub.names import require_known\ntry: require_known(*{given})\n"
    code += "except ValueError: import sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_what_may_be_a_model_is_not_refused(bundled):
    for name in (None, "small-en", bundled, "random-tiny", "original", "nlpl:7", "someone/model"):
        require_known(name)
