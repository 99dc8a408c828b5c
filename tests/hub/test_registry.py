"""Names of models: bundled ones and published ones."""

import re
from urllib.parse import urlsplit

import pytest

from elmo import ELMo, ElmoWarning, LanguageModelScorer
from elmo.cli.main import main
from elmo.errors import MissingFileError
from elmo.hub import names, registry
from elmo.hub.cache import folder_of
from elmo.hub.names import default_model, is_untrained, open_model
from elmo.hub.registry import PUBLISHED, bundled_models, find_published, similar_names
from elmo.weights.files import rounded_checkpoint
from named_models import assert_tiny
from strategies import VOCABULARY

TINY_RUN = "--steps 2 --batch 2 --unroll 4 --quiet --device cpu".split()

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
    monkeypatch.setattr(registry, "BUNDLED", tmp_path / "gone")
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
