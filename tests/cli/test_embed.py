"""`elmo embed` and `elmo cache`."""
# ruff: noqa: RUF001 - Chinese punctuation is meant

import h5py
import numpy as np
import pytest

from command import elmo
from elmo import ELMo, TokenFile
from elmo.cli.main import main
from elmo.text.files import get_tokenizer


def test_embed_writes_vectors_and_keeps_standard_output_clean(tmp_path, model_folder, text):
    done = elmo("embed", text, tmp_path / "out.h5", "--model", model_folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "3 sentences, 11 words" in done.stderr
    assert "words/s" in done.stderr
    expected = ELMo.from_pretrained(model_folder, device="cpu").encode_tokens(
        [line.split() for line in text.read_text().splitlines()]
    )
    with h5py.File(tmp_path / "out.h5", "r") as file:
        for number, array in enumerate(expected):
            np.testing.assert_array_equal(file[str(number)], array)


def test_embed_reads_standard_input_and_every_flag(tmp_path, model_folder):
    flags = "--layers average --state warm --format npz --dtype float16 --batch-tokens 4".split()
    done = elmo(
        *("embed", "-", tmp_path / "out.npz", "--model", model_folder, "--device", "cpu", *flags),
        stdin="The cat sat .\nHello\n",
    )
    assert done.returncode == 0, done.stderr
    model = ELMo.from_pretrained(model_folder, device="cpu")
    expected = model.encode_tokens(
        [["The", "cat", "sat", "."], ["Hello"]], layers="average", state="warm"
    )
    with np.load(tmp_path / "out.npz") as file:
        np.testing.assert_array_equal(file["0"], expected[0].astype(np.float16))
        np.testing.assert_array_equal(file["1"], expected[1].astype(np.float16))


def test_a_layer_can_be_named_by_its_number(tmp_path, model_folder, text):
    done = elmo("embed", text, tmp_path / "o", "--model", model_folder, "--layers", "0", "--quiet")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    with h5py.File(tmp_path / "o", "r") as file:
        assert file["0"].shape == (4, 32)
        assert file.attrs["layers"] == "0"


def test_an_untrained_model_says_that_it_is_one(tmp_path, text):
    done = elmo("embed", text, tmp_path / "out.h5", "--model", "random-tiny")
    assert done.returncode == 0
    assert "note: 'random-tiny' has random weights" in done.stderr


def test_what_there_is_one_of_is_told_in_the_singular(tmp_path, model_folder):
    for text, told in (
        ("Hello\n", "1 sentence, 1 word in"),
        ("Hello\n\n", "2 sentences, 1 word in"),
        ("", "standard input is empty"),
    ):
        done = elmo("embed", "-", tmp_path / f"{len(text)}", "--model", model_folder, stdin=text)
        assert done.returncode == 0, done.stderr
        assert told in done.stderr


def test_cache_makes_a_token_file_that_embed_uses(tmp_path, model_folder, text):
    (tmp_path / "words.txt").write_text("<S>\n</S>\n<UNK>\nThe\ncat\n.\n", encoding="utf-8")
    out = tmp_path / "tokens.hdf5"
    done = elmo("cache", tmp_path / "words.txt", out, "--model", model_folder)
    assert done.returncode == 0, done.stderr
    assert "6 words of" in done.stderr
    model = ELMo.from_pretrained(model_folder, device="cpu")
    np.testing.assert_array_equal(
        TokenFile(out).vectors(np.arange(6)),
        model.word_vectors(["<S>", "</S>", "<UNK>", "The", "cat", "."]),
    )
    for name, flags in (("plain", []), ("cached", ["--token-file", out])):
        run = elmo("embed", text, tmp_path / name, "--model", model_folder, *flags)
        assert run.returncode == 0, run.stderr
    with h5py.File(tmp_path / "plain") as plain, h5py.File(tmp_path / "cached") as cached:
        for key in ("0", "1", "2"):
            np.testing.assert_array_equal(plain[key], cached[key])
    wrong = elmo("embed", text, tmp_path / "x", "--model", "random-tiny", "--token-file", out)
    assert wrong.returncode == 0  # random-tiny is what the folder was made from
    other = elmo("embed", text, tmp_path / "y", "--model", "random-small", "--token-file", out)
    assert other.returncode == 2
    assert "16 values, the model has 128" in other.stderr


# --- text as people have it -----------------------------------------------------------------------

ENGLISH = """The river bank isn't far, he said.
"So we can walk?" She had brown hair, and a new coat.
They sat on the bank (it was warm) and waited.
"""
CHINESE = """宝玉听了，便说道：“我不去了。”
黛玉笑道：“你不去，我也不去。”
众人听了，都笑起来了。
"""


@pytest.mark.parametrize(
    ("model", "raw", "tokenizer"),
    [("small-en", ENGLISH, "english"), ("small-zh", CHINESE, "chinese")],
)
def test_raw_text_is_noticed_and_split_as_the_models_own_text_was(
    tmp_path, capsys, model, raw, tokenizer
):
    text, split, out = tmp_path / "raw.txt", tmp_path / "split.txt", tmp_path / "out.h5"
    text.write_text(raw, encoding="utf-8")
    flags = ["--model", model, "--device", "cpu", "--quiet", "--overwrite"]
    assert main(["embed", str(text), str(out), *flags]) == 0
    note = capsys.readouterr().err
    assert "the text looks raw" in note
    assert "use --tokenizer model" in note
    assert len(note.splitlines()) == 1

    assert main(["embed", str(text), str(out), *flags, "--tokenizer", "model"]) == 0
    assert capsys.readouterr().err == ""
    sentences = [
        words for line in raw.splitlines() for words in get_tokenizer(tokenizer).sentences(line)
    ]
    expected = ELMo.from_pretrained(model, device="cpu").encode_tokens(sentences)
    with h5py.File(out, "r") as file:
        assert file.attrs["tokenizer"] == tokenizer
        for number, array in enumerate(expected):
            np.testing.assert_array_equal(file[str(number)], array)

    split.write_text("".join(" ".join(words) + "\n" for words in sentences), encoding="utf-8")
    assert main(["embed", str(split), str(out), *flags]) == 0
    assert capsys.readouterr().err == ""
    if model == "small-en":  # Chinese that is split stays as it is
        assert main(["embed", str(split), str(out), *flags, "--tokenizer", "model"]) == 0
        assert "use --tokenizer whitespace" in capsys.readouterr().err


def test_text_in_another_script_is_noticed(tmp_path, capsys):
    text = tmp_path / "zh.txt"
    text.write_text(CHINESE, encoding="utf-8")
    assert main(["embed", str(text), str(tmp_path / "out.h5"), "--device", "cpu", "--quiet"]) == 0
    assert "in Chinese script, but the model is for English" in capsys.readouterr().err


def test_a_model_that_does_not_know_its_text_cannot_choose_a_tokenizer(
    tmp_path, model_folder, text, capsys
):
    flags = ["--model", str(model_folder), "--tokenizer", "model", "--device", "cpu"]
    assert main(["embed", str(text), str(tmp_path / "out.h5"), *flags]) == 2
    assert "give --tokenizer whitespace|english" in capsys.readouterr().err
    assert not (tmp_path / "out.h5").exists()


def test_a_complete_output_of_another_text_is_not_taken_for_this_one(
    tmp_path, model_folder, text, capsys
):
    out, other = tmp_path / "out.h5", tmp_path / "other.txt"
    flags = ["--model", str(model_folder), "--device", "cpu"]
    assert main(["embed", str(text), str(out), *flags]) == 0
    assert main(["embed", str(text), str(out), *flags, "--resume"]) == 0
    assert "is complete: nothing to do" in capsys.readouterr().err
    other.write_text("Another text .\n")
    assert main(["embed", str(other), str(out), *flags, "--resume"]) == 1
    assert "3 sentences of another text" in capsys.readouterr().err
