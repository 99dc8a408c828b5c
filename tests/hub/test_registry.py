"""Models by name: bundled ones, published ones behind a mirror, and the commands about them."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from elmo import ELMo, ElmoWarning, LanguageModelScorer
from elmo.cli.main import main
from elmo.errors import ConfigError, MissingFileError, WeightsError
from elmo.hub import cache as hub_cache
from elmo.hub import names, registry
from elmo.hub.cache import cached_folder, folder_of, mirrored, network_options, obtain, remove
from elmo.hub.download import FetchOptions, RemoteFile
from elmo.hub.names import HubOptions, default_model, is_untrained, open_model
from elmo.hub.registry import PUBLISHED, bundled_models, find_published, similar_names
from elmo.model.perplexity import Perplexity
from elmo.text.vocabulary import Vocabulary
from elmo.weights.card import Figure, ModelCard, Source
from elmo.weights.storage import load_checkpoint, rounded_checkpoint, save_checkpoint
from elmo.weights.tensors_on_disk import StoredTensors
from file_server import Faults, serve
from strategies import VOCABULARY, seeded_bilm

ROOT = Path(__file__).parents[2]
SENTENCES = [["The", "cat"], ["No"]]
TINY_RUN = "--steps 2 --batch 2 --unroll 4 --quiet --device cpu".split()
CARD = ModelCard(
    name="small-en",
    language="en",
    description="A model of a test.",
    licence="CC BY-SA 4.0",
    sources=(Source(name="A book", licence="public domain", address="https://x.y", words=12_345),),
    tokenizer="english",
    vocabulary_size=9,
    unknown_rate=0.0213,
    tokens=1_000_000,
    minutes=12.5,
    device="one GPU",
    cost="a coffee",
    perplexity=Perplexity(forward=64.0, backward=49.0),
    figures=(Figure(name="POS", value="91.2 %", command="elmo probe pos"),),
    commands=("elmo prepare a.txt data", "elmo train --data data --out run"),
)


@pytest.fixture
def language_model(tiny_bilm):
    """Weights with an output layer, mix weights and a warm state."""
    generator = torch.Generator().manual_seed(3)
    checkpoint = tiny_bilm.to_checkpoint()
    config = checkpoint.config.replace(mix_weights=(1.0, 0.0, -1.0), mix_gamma=2.0)
    return type(checkpoint)(
        config=config,
        tensors=checkpoint.tensors,
        vocabulary=Vocabulary(VOCABULARY),
        warm_state=(
            torch.rand(2, 2, 16, generator=generator),
            torch.rand(2, 2, 64, generator=generator),
        ),
        softmax={
            "weight": torch.randn(9, 16, generator=generator),
            "bias": torch.randn(9, generator=generator),
        },
    )


@pytest.fixture
def bundled(tmp_path, monkeypatch, language_model):
    """An installation with one bundled model, made by the tool that makes real ones."""
    monkeypatch.setattr(registry, "BUNDLED", tmp_path / "bundled")
    save_checkpoint(language_model, tmp_path / "run")
    (tmp_path / "filled.json").write_text(CARD.to_json())
    folder = tmp_path / "bundled" / "small-en"
    arguments = ["--dtype", "float16", "--card", str(tmp_path / "filled.json")]
    assert main(["convert", str(tmp_path / "run"), str(folder), *arguments]) == 0
    return folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ELMO_CACHE", str(tmp_path / "cache"))
    for name in ("ELMO_OFFLINE", "ELMO_MIRROR", "ELMO_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


@pytest.fixture
def mirror(monkeypatch, cache):
    """A mirror of the published models; it holds what a test puts there."""
    monkeypatch.setenv("no_proxy", "*")
    with serve() as server:
        monkeypatch.setenv("ELMO_MIRROR", f"{server.address}/mirror/")
        yield server


def publish(server, name, folder):
    """Put the files of a folder where the mirror of a published model has them."""
    model = find_published(name)
    for local, file in model.files.items():
        address = urlsplit(file.address)
        server.files[f"/mirror/{address.netloc}{address.path}"] = (folder / local).read_bytes()


@pytest.fixture
def hdf5(tmp_path, tiny_elmo):
    tiny_elmo.save_pretrained(tmp_path / "hdf5", format="hdf5")
    return tmp_path / "hdf5"


def assert_tiny(elmo, tiny_elmo):
    for found, expected in zip(
        elmo.encode_tokens(SENTENCES), tiny_elmo.encode_tokens(SENTENCES), strict=True
    ):
        assert np.array_equal(found, expected)


# --- float16, and the output layer in a file of its own -------------------------------------------


def test_float16_halves_the_files_and_loading_gives_float32(tmp_path, language_model):
    save_checkpoint(language_model, tmp_path / "full")
    save_checkpoint(language_model, tmp_path / "half", dtype="float16")
    for name, tensors in (
        ("model.safetensors", language_model.tensors),
        ("softmax.safetensors", language_model.softmax),
    ):
        stored = load_file(tmp_path / "half" / name)
        for key, tensor in tensors.items():
            assert stored[key].dtype == torch.float16
            assert torch.equal(stored[key], tensor.half())
    sizes = [(tmp_path / kind / "softmax.safetensors").stat().st_size for kind in ("full", "half")]
    assert sizes[0] - sizes[1] == 2 * (9 * 16 + 9)
    found = load_checkpoint(tmp_path / "half")
    expected = rounded_checkpoint(language_model, "float16")
    for kind in ("tensors", "softmax"):
        for key, tensor in getattr(expected, kind).items():
            assert getattr(found, kind)[key].dtype == torch.float32
            assert torch.equal(getattr(found, kind)[key], tensor)
    assert found.fingerprint() == expected.fingerprint() != language_model.fingerprint()
    assert found.fingerprint() in (tmp_path / "half" / "README.md").read_text()
    assert found.config == language_model.config
    assert found.vocabulary.words == VOCABULARY
    for part, kept in zip(found.warm_state, language_model.warm_state, strict=True):
        assert torch.equal(part, kept)  # not rounded


def test_float16_is_idempotent(tmp_path, language_model):
    save_checkpoint(language_model, tmp_path / "once", dtype="float16")
    save_checkpoint(load_checkpoint(tmp_path / "once"), tmp_path / "twice", dtype="float16")
    for name in ("model.safetensors", "softmax.safetensors", "config.json", "README.md"):
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_weights_that_float16_cannot_hold_are_named(tmp_path, language_model):
    name = next(iter(language_model.tensors))
    huge = {**language_model.tensors, name: torch.full_like(language_model.tensors[name], 1e5)}
    checkpoint = type(language_model)(config=language_model.config, tensors=huge)
    with pytest.raises(WeightsError, match=rf"'{re.escape(name)}' have values beyond 65,504"):
        save_checkpoint(checkpoint, tmp_path / "half", dtype="float16")
    assert not (tmp_path / "half" / "model.safetensors").exists()


def test_the_published_layout_has_no_float16(tmp_path, language_model):
    with pytest.raises(ConfigError, match="format hdf5"):
        save_checkpoint(language_model, tmp_path, "hdf5", "float16")
    with pytest.raises(ConfigError, match="dtype is 'int8'"):
        save_checkpoint(language_model, tmp_path, "elmo", "int8")


def test_embedding_never_reads_the_output_layer(tmp_path, language_model):
    save_checkpoint(language_model, tmp_path / "model", dtype="float16")
    softmax = open_model(tmp_path / "model").softmax
    assert isinstance(softmax, StoredTensors)
    elmo = ELMo.from_pretrained(tmp_path / "model", device="cpu")
    elmo.encode_tokens(SENTENCES)
    assert not elmo._softmax.is_read
    assert not softmax.is_read
    # Its values are damaged, its header is not: vectors can be had, predictions cannot.
    path = tmp_path / "model" / "softmax.safetensors"
    content = bytearray(path.read_bytes())
    content[-20:] = b"\xff" * 20  # NaN
    path.write_bytes(content)
    ELMo.from_pretrained(tmp_path / "model", device="cpu").encode_tokens(SENTENCES)
    with pytest.raises(WeightsError, match="'softmax "):
        LanguageModelScorer.from_pretrained(tmp_path / "model", device="cpu")


def test_the_output_layer_is_there_when_it_is_looked_at(tmp_path, language_model):
    save_checkpoint(language_model, tmp_path / "model", dtype="float16")
    lazy = open_model(tmp_path / "model").softmax
    assert (sorted(lazy), len(lazy), "bias" in lazy) == (["bias", "weight"], 2, True)
    assert not lazy.is_read
    assert torch.equal(lazy["weight"], language_model.softmax["weight"].half().float())
    assert lazy.is_read
    rounded = rounded_checkpoint(language_model, "float16")
    scores = [
        LanguageModelScorer(model, device="cpu").score(SENTENCES)[0].forward
        for model in (open_model(tmp_path / "model"), rounded)
    ]
    assert np.array_equal(*scores)


def test_a_model_that_was_only_embedded_with_is_saved_with_its_output_layer(
    tmp_path, language_model
):
    save_checkpoint(language_model, tmp_path / "model")
    ELMo.from_pretrained(tmp_path / "model", device="cpu").save_pretrained(tmp_path / "again")
    for name in ("softmax.safetensors", "vocab.txt"):
        assert (tmp_path / "model" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_a_lazy_output_layer_is_still_checked_against_the_vocabulary(tmp_path, language_model):
    save_checkpoint(language_model, tmp_path / "model")
    Vocabulary(VOCABULARY[:-1]).write(tmp_path / "model" / "vocab.txt")
    with pytest.raises(WeightsError, match="is for 9 words, but the vocabulary beside it lists 8"):
        open_model(tmp_path / "model")


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


def test_info_prints_the_card_and_checks_the_files(bundled, capsys):
    assert main(["info", "small-en"]) == 0
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
    assert main(["info", "small-en"]) == 0
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
        ({"name": "x", "language": "en", "description": "y"}, "field 'licence' is missing"),
        ({"colour": "red"}, "unknown field 'colour'; known are commands"),
        (
            {**json.loads(CARD.to_json()), "sources": [{"name": "x"}]},
            "sources: the field 'licence'",
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
    folder = registry.BUNDLED / name
    if not (folder / "config.json").is_file():
        pytest.skip(f"{name} is not in this checkout")
    card = ModelCard.read(folder / "card.json")
    assert card.name == name
    assert card.sources
    assert card.perplexity is not None
    assert card.changed_files(folder) == []
    assert sum(path.stat().st_size for path in folder.iterdir()) < 60e6


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


def test_a_published_model_is_downloaded_once_and_loaded(mirror, cache, hdf5, tiny_elmo, capsys):
    publish(mirror, "original", hdf5)
    assert_tiny(ELMo.from_pretrained("original"), tiny_elmo)
    assert "weights.hdf5" in capsys.readouterr().err  # progress
    n_requests = len(mirror.requests)
    assert_tiny(ELMo.from_pretrained("Original"), tiny_elmo)
    assert len(mirror.requests) == n_requests == 2
    assert {path.name for path in (cache / "original").iterdir() if path.name[0] != "."} == {
        "options.json",
        "options.json.sha256.json",
        "weights.hdf5",
        "weights.hdf5.sha256.json",
    }


def test_a_model_in_the_cache_needs_no_network(mirror, hdf5, tiny_elmo, monkeypatch):
    publish(mirror, "medium", hdf5)
    obtain(find_published("medium"))
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    monkeypatch.setenv("ELMO_MIRROR", "http://127.0.0.1:9")
    assert_tiny(ELMo.from_pretrained("medium"), tiny_elmo)
    monkeypatch.delenv("ELMO_OFFLINE")
    assert_tiny(ELMo.from_pretrained("medium", local_files_only=True), tiny_elmo)


def test_offline_the_file_and_its_place_are_named(cache, monkeypatch, capsys):
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    with pytest.raises(MissingFileError) as caught:
        open_model("original")
    place = cache / "original" / "options.json"
    assert f"place it at {place}. " in str(caught.value)
    assert f"place it at {place.with_name('weights.hdf5')}" in str(caught.value)
    assert "amazonaws.com" in str(caught.value)
    assert main(["info", "original"]) == 2
    assert str(place) in capsys.readouterr().err
    assert not cache.exists()


def test_offline_is_said_to_the_hub_too(monkeypatch, tmp_path, cache):
    monkeypatch.setenv("ELMO_OFFLINE", "yes")
    with pytest.raises(MissingFileError, match="'someone/elmo' is no folder here"):
        open_model("someone/elmo", hub=HubOptions(cache_dir=tmp_path))


def test_files_that_a_person_placed_are_used(cache, hdf5, tiny_elmo, monkeypatch):
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    shutil.copytree(hdf5, cache / "pubmed")
    assert_tiny(ELMo.from_pretrained("pubmed"), tiny_elmo)


def test_a_wrong_file_in_the_place_of_a_known_one_is_refused(mirror, hdf5, cache):
    publish(mirror, "small", hdf5)
    with pytest.raises(WeightsError, match=r"expected 54,402,456"):
        ELMo.from_pretrained("small")
    assert not (cache / "small" / "weights.hdf5").exists()


def test_cache_dir_and_force_download_are_respected(mirror, hdf5, tmp_path, cache):
    publish(mirror, "original", hdf5)
    for _ in range(2):
        ELMo.from_pretrained("original", cache_dir=tmp_path / "mine", force_download=True)
    assert (tmp_path / "mine" / "original" / "weights.hdf5").is_file()
    assert not cache.exists()
    assert len(mirror.requests) == 4


def zip_of(folder, path, names):
    with zipfile.ZipFile(path, "w") as archive:
        for name, source in names.items():
            archive.write(folder / source, name)
    return path


def test_an_archive_is_unpacked_and_not_kept(mirror, hdf5, tmp_path, cache, tiny_elmo):
    (hdf5 / "run.sh").write_text("rm -rf /")
    names = {"model.hdf5": "weights.hdf5", "options.json": "options.json", "run.sh": "run.sh"}
    zip_of(hdf5, tmp_path / "195.zip", names)
    publish(mirror, "nlpl:195", tmp_path)
    assert_tiny(ELMo.from_pretrained("nlpl:195"), tiny_elmo)
    folder = cache / "nlpl-195"
    assert {path.name for path in (folder / "model").iterdir()} == {"model.hdf5", "options.json"}
    assert not (folder / "195.zip").exists()
    assert (folder / "195.zip.sha256.json").is_file()
    mirror.faults = Faults(status=404)
    assert_tiny(ELMo.from_pretrained("nlpl:195"), tiny_elmo)
    assert cached_folder(find_published("nlpl:195")) == folder / "model"


def test_an_archive_that_changed_since_the_first_time_is_refused(mirror, hdf5, tmp_path, cache):
    names = {"model.hdf5": "weights.hdf5", "options.json": "options.json"}
    zip_of(hdf5, tmp_path / "210.zip", names)
    publish(mirror, "nlpl:210", tmp_path)
    model = find_published("nlpl:210")
    obtain(model)
    assert remove(model) > 1000
    zip_of(hdf5, tmp_path / "210.zip", {**names, "LICENSE": "options.json"})
    publish(mirror, "nlpl:210", tmp_path)
    with pytest.raises(WeightsError, match="the first time"):
        obtain(model)


def test_a_zip_that_a_person_placed_is_unpacked_offline(hdf5, cache, monkeypatch, tiny_elmo):
    monkeypatch.setenv("ELMO_OFFLINE", "1")
    (cache / "nlpl-7").mkdir(parents=True)
    names = {"model.hdf5": "weights.hdf5", "options.json": "options.json"}
    zip_of(hdf5, cache / "nlpl-7" / "7.zip", names)
    assert_tiny(ELMo.from_pretrained("nlpl:7"), tiny_elmo)


def test_two_processes_unpack_one_archive_from_one_download(mirror, hdf5, tmp_path):
    names = {"model.hdf5": "weights.hdf5", "options.json": "options.json"}
    zip_of(hdf5, tmp_path / "8.zip", names)
    publish(mirror, "nlpl:8", tmp_path)
    mirror.faults.stall = 1.0
    code = "from elmo.hub.cache import obtain; from elmo.hub.registry import find_published\n"
    code += "obtain(find_published('nlpl:8'))"
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [process.wait(timeout=60) for process in running] == [0, 0]
    assert len(mirror.requests) == 1


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


def test_what_is_on_the_disk_goes_first(cache, tiny_elmo, tmp_path, monkeypatch):
    tiny_elmo.save_pretrained(tmp_path / "original")
    monkeypatch.chdir(tmp_path)
    assert_tiny(ELMo.from_pretrained("original"), tiny_elmo)


# --- the environment ------------------------------------------------------------------------------


def test_models_are_kept_where_the_environment_or_the_caller_says(monkeypatch, tmp_path):
    model = find_published("original")
    monkeypatch.setenv("ELMO_CACHE", "~/models")
    assert folder_of(model) == Path.home() / "models" / "original"
    assert folder_of(model, tmp_path) == tmp_path / "original"


def test_a_mirror_has_the_tree_that_wget_makes(monkeypatch):
    file = RemoteFile(address="https://host.org/a/b.zip", size=3)
    monkeypatch.delenv("ELMO_MIRROR", raising=False)
    assert mirrored(file) == file
    monkeypatch.setenv("ELMO_MIRROR", "https://mirror.net/elmo/")
    assert mirrored(file).address == "https://mirror.net/elmo/host.org/a/b.zip"
    assert mirrored(file).size == 3
    for wrong in ("mirror.net", "file:///etc", "ftp://x"):
        monkeypatch.setenv("ELMO_MIRROR", wrong)
        with pytest.raises(ConfigError, match="ELMO_MIRROR"):
            mirrored(file)


def test_the_environment_says_how_the_network_is_used(monkeypatch):
    monkeypatch.setenv("ELMO_TIMEOUT", "2.5")
    monkeypatch.setenv("ELMO_OFFLINE", "0")
    options = network_options(force=True)
    assert (options.timeout, options.offline, options.force) == (2.5, False, True)
    for wrong in ("soon", "0", "-1", "inf", "nan"):
        monkeypatch.setenv("ELMO_TIMEOUT", wrong)
        with pytest.raises(ConfigError, match="ELMO_TIMEOUT"):
            network_options()


# --- elmo models ----------------------------------------------------------------------------------


def run(capsys, *arguments):
    code = main([*map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_models_lists_all_and_filters(bundled, cache, capsys):
    code, out, _ = run(capsys, "models")
    assert code == 0
    names = [line.split()[0] for line in out.splitlines()]
    assert names == ["name", "small-en", *PUBLISHED]
    _, out, _ = run(capsys, "models", "GERMAN")
    assert [line.split()[0] for line in out.splitlines()[:2]] == ["name", "manylangs:de"]
    assert find_published("manylangs:de").files["142.zip"].address in out
    code, out, err = run(capsys, "models", "orignal")
    assert (code, out) == (0, "")
    assert "did you mean original" in err


def test_models_as_json_says_everything(bundled, mirror, hdf5, cache, capsys):
    publish(mirror, "original", hdf5)
    assert run(capsys, "models", "--download", "original")[0] == 0
    _, out, _ = run(capsys, "models", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["small-en"]["where"] == "bundled"
    assert rows["small-en"]["licence"] == "CC BY-SA 4.0"
    assert rows["original"]["where"] == "cached"
    assert rows["original"]["folder"] == str(cache / "original")
    assert rows["medium"]["where"] == "network"
    assert rows["medium"]["addresses"][1].startswith(mirror.address)
    assert rows["small"]["bytes"] == 54_402_456


def test_models_downloads_ahead_and_frees_space(mirror, hdf5, cache, capsys):
    publish(mirror, "original", hdf5)
    code, out, err = run(capsys, "models", "--download", "original")
    assert (code, out) == (0, "")
    assert f"bytes in {cache / 'original'}" in err
    assert run(capsys, "models", "--download", "original", "--quiet")[2] == ""
    size = sum((hdf5 / name).stat().st_size for name in ("options.json", "weights.hdf5"))
    code, _, err = run(capsys, "models", "--remove", "original")
    assert code == 0
    assert f"{size:,} bytes freed" in err
    assert not (cache / "original" / "weights.hdf5").exists()
    assert "not here" in run(capsys, "models", "--remove", "original")[2]
    assert run(capsys, "models", "--download", "original")[0] == 0  # the checksum still holds


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--download", "orignal"], 2, "did you mean original"),
        (["--download", "small-en"], 2, "comes with the package"),
        (["--remove", "random-tiny"], 2, "no published model 'random-tiny'"),
        (["--remove", "a", "--download", "b"], 2, "exclude each other"),
        (["--download", "pt"], 2, "has no such file (404"),
    ],
)
def test_what_models_cannot_do_is_said_in_one_line(
    bundled, mirror, capsys, arguments, code, message
):
    found, out, err = run(capsys, "models", *arguments, "--quiet")
    assert (found, out) == (code, "")
    assert message in err


def test_a_download_that_breaks_off_is_no_mistake_of_the_user(mirror, hdf5, capsys, monkeypatch):
    publish(mirror, "original", hdf5)
    mirror.faults.stall = 20
    mirror.faults.cuts = [0] * 9
    monkeypatch.setenv("ELMO_TIMEOUT", "0.05")
    quick = partial(FetchOptions, attempts=2, wait=0)
    monkeypatch.setattr(hub_cache, "FetchOptions", quick)
    code, _, err = run(capsys, "models", "--download", "original", "--quiet")
    assert code == 1
    assert "sent nothing for 0.05 s" in err


def test_the_list_of_models_comes_without_torch():
    code = (
        "import sys; from elmo.cli.main import main\n"
        "assert main(['models']) == 0\n"
        "assert 'torch' not in sys.modules and 'h5py' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_same_weights_give_the_same_bytes(tmp_path, tiny_config):
    for name in ("one", "two"):
        save_checkpoint(seeded_bilm(tiny_config).to_checkpoint(), tmp_path / name, dtype="float16")
    assert (tmp_path / "one" / "model.safetensors").read_bytes() == (
        tmp_path / "two" / "model.safetensors"
    ).read_bytes()
