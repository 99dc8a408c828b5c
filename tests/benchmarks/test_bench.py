"""`elmo bench`, `elmo bench scaling` and `elmo bench precision`, as users run them."""

import json
import os
import re
import statistics
import subprocess
import sys

import pytest

from elmo import ELMo, ElmoConfig, random_bilm
from elmo.benchmark.bench_settings import PrecisionSettings, ScalingSettings, SpeedSettings
from elmo.benchmark.peers import MissingPeerError, load_elmo_class
from elmo.cli.main import main
from elmo.errors import ConfigError

QUICK = ["--quick", "--threads", "1", "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder for random weights that all tests share."""
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    ELMo(random_bilm(ElmoConfig.preset("tiny")), device="cpu").save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    """A treebank in which a word's last letter is its part of speech."""
    folder = tmp_path_factory.mktemp("treebank")
    tags = {"a": "NOUN", "o": "VERB", "e": "ADJ"}
    stems = [left + right for left in "bcdfg" for right in "aeiou"]
    for part, some in (("train", stems[::2] + stems[1::4]), ("test", stems[3::4])):
        lines = []
        for stem in some:
            for number, (letter, tag) in enumerate(tags.items(), start=1):
                lines.append(f"{number}\t{stem}l{letter}\t_\t{tag}" + "\t_" * 6)
            lines.append("")
        (folder / f"made-up-{part}.conllu").write_text("\n".join(lines) + "\n")
    return folder


def table(text, title):
    """Give the rows of the table whose first column has this title: cells by name."""
    (found,) = (part for part in text.split("\n\n") if part.startswith(f"{title}  "))
    rows = (re.split(r" {2,}", line.strip()) for line in found.splitlines()[1:])
    return {name: cells for name, *cells in rows}


def test_the_table_says_what_the_json_says(tmp_path, data, capsys):
    path = tmp_path / "report.json"
    flags = ["--sizes", "tiny", "--sentences", "8", "--skip-peers", "--precision", "fp32"]
    assert main(["bench", *QUICK, *flags, "--data", str(data), "--json", str(path)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    report = json.loads(path.read_text(encoding="utf-8"))
    assert report["machine"]["threads"] == 1
    (size,) = report["sizes"]
    assert (size["size"], size["device"], size["sentences"]) == ("tiny", "cpu", 8)
    corpus = table(captured.out, "corpus")
    assert list(corpus) == ["ours fp32, one call", "ours fp32, calls of 32, given order"]
    for row in size["corpus"]:
        speed = f"{row['words_per_second']['median']:,.0f}"
        assert corpus[row["name"]] == [speed, "-", "-", f"{row['share_of_peak']:.0%}"]
        assert len(row["seconds"]) == 2
        reached = least_work(size) / statistics.median(row["seconds"])
        assert row["share_of_peak"] == pytest.approx(reached / size["peaks"]["flops"]["fp32"])
    latency = table(captured.out, "one sentence of 20 words")
    for row in size["latency"]:
        assert len(row["seconds"]) == 8
        assert latency[row["name"]][0] == f"{row['milliseconds']['median']:.1f}"
    (memory,) = size["memory"]
    assert 0 < memory["loaded_mb"] <= memory["peak_mb"]
    assert table(captured.out, "memory")[memory["name"]][0] == f"{memory['peak_mb']:.0f}"
    (exact,) = size["agreement"]
    assert exact["other"] == "float64"
    assert exact["largest_difference"] < 1e-5


def least_work(size):
    """Count again what cannot be avoided."""
    costs = size["costs"]
    words = size["distinct_words"] * (costs["dense"] + costs["first_input"])
    return words + size["words"] * costs["recurrent"]


def test_a_model_of_the_users_is_measured_beside_allennlp(tmp_path, model_folder):
    try:
        load_elmo_class()
    except MissingPeerError as error:
        pytest.skip(str(error))
    path = tmp_path / "report.json"
    flags = ["--model", str(model_folder), "--sentences", "6", "--repeats", "1"]
    command = [sys.executable, "-m", "elmo", "bench", *QUICK, *flags, "--precision", "fp32"]
    done = subprocess.run(
        [*command, "--json", str(path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (size,) = json.loads(path.read_text(encoding="utf-8"))["sizes"]
    assert size["size"] == str(model_folder)
    assert [row["name"].split(",")[0] for row in size["corpus"]] == [
        "ours fp32",
        "AllenNLP 2.10.1",
        "ours fp32",
        "AllenNLP 2.10.1",
    ]
    assert {row["other"] for row in size["agreement"]} == {"float64", "AllenNLP 2.10.1"}
    assert size["corpus"][1]["times_given"]["median"] == 1
    assert size["corpus"][3]["times_sorted"]["median"] == 1
    ours, theirs = (size["corpus"][n]["words_per_second"]["median"] for n in (0, 1))
    assert size["corpus"][0]["times_given"]["median"] == pytest.approx(ours / theirs)


def test_a_model_that_allennlp_cannot_run_is_measured_alone(tmp_path, capsys):
    gru = ElmoConfig.preset("tiny", cell="gru")
    ELMo(random_bilm(gru), device="cpu").save_pretrained(tmp_path / "model")
    flags = [
        "--model",
        str(tmp_path / "model"),
        "--sentences",
        "4",
        "--repeats",
        "1",
        "--skip-memory",
    ]
    assert main(["bench", *QUICK, *flags, "--precision", "fp32"]) == 0
    out = capsys.readouterr().out
    assert "ours fp32, one call" in out
    assert re.search(r"^note .*(no gru cells|alone)", out, flags=re.MULTILINE)


def test_scaling_gives_a_table_a_json_and_a_picture(tmp_path, data, capsys):
    pytest.importorskip("matplotlib")
    paths = [tmp_path / "new" / "scaling.json", tmp_path / "pictures" / "scaling.png"]
    flags = ["--precision", "fp32", "--batches", "1", "4", "--lengths", "3", "9"]
    flags += ["--corpora", "8", "16", "--data", str(data)]
    flags += ["--json", str(paths[0]), "--plot", str(paths[1])]
    assert main(["bench", "scaling", *QUICK, *flags]) == 0
    out = capsys.readouterr().out
    report = json.loads(paths[0].read_text(encoding="utf-8"))
    points = [(row["sweep"], row["way"], row["size"]) for row in report["rows"]]
    assert points == [
        *(("batch", "encode_tokens", size) for size in (1, 4)),
        *(("length", "encode_tokens", size) for size in (3, 9)),
        *(("corpus", "stream_tokens", size) for size in (8, 16)),
        *(("corpus", "encode_tokens", size) for size in (8, 16)),
    ]
    assert [row["words"] for row in report["rows"][2:4]] == [32 * 3, 32 * 9]
    for row in report["rows"]:
        assert f"{row['words_per_second']['median']:,.0f}" in out
    assert [growth["sweep"] for growth in report["growth"]] == ["length", "corpus", "corpus"]
    for growth in report["growth"]:
        assert f"words^{growth['exponent']:.2f}" in out
    assert paths[1].read_bytes().startswith(b"\x89PNG")


def test_precision_reports_errors_and_probes(tmp_path, model_folder, treebank, capsys):
    paths = [tmp_path / "precision.json", tmp_path / "precision.md"]
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat .\n\nHello\n")
    flags = ["--text", str(text), "--treebank", str(treebank), "--quiet", "--device", "cpu"]
    flags += ["--json", str(paths[0]), "--markdown", str(paths[1])]
    assert main(["bench", "precision", str(model_folder), *flags]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert paths[1].read_text(encoding="utf-8") == captured.out
    report = json.loads(paths[0].read_text(encoding="utf-8"))
    assert (report["n_sentences"], report["n_words"], report["n_tags"]) == (2, 8, 3)
    modes = list(dict.fromkeys(row["mode"]["precision"] for row in report["errors"]))
    assert modes[0] == "fp32"
    assert "bf16" in modes
    errors = {(row["mode"]["precision"], row["layer"]): row for row in report["errors"]}
    for layer in range(3):
        exact, rounded = errors["fp32", layer], errors["bf16", layer]
        assert exact["largest"] < 1e-5 < rounded["largest"]
        assert exact["mean"] <= exact["largest"]
        assert exact["least_cosine"] == pytest.approx(1)
        assert f"| fp32 | {layer} | {exact['largest']:.1e} |" in captured.out
    scores = {(row["mode"]["precision"], row["layer"]): row for row in report["probes"]}
    first = scores["fp32", 0]
    assert first["changed"] == 0
    assert first["accuracy_of_fp32_probe"] == first["accuracy_of_own_probe"] > 0.9
    assert scores.keys() == errors.keys()
    again = tmp_path / "again.json"
    flags = ["--text", str(text), "--treebank", str(treebank), "--quiet", "--device", "cpu"]
    assert main(["bench", "precision", str(model_folder), *flags, "--json", str(again)]) == 0
    repeated = json.loads(again.read_text(encoding="utf-8"))
    assert (repeated["errors"], repeated["probes"]) == (report["errors"], report["probes"])


def test_precision_takes_its_sentences_from_the_treebank_if_there_is_no_text(
    model_folder, treebank, capsys
):
    flags = ["--treebank", str(treebank), "--precision", "fp32", "--words", "4", "--quiet"]
    assert main(["bench", "precision", str(model_folder), *flags, "--device", "cpu"]) == 0
    assert "on 2 sentences, 6 words" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["bench", "--sizes", "huge"], 2, "--sizes"),
        (["bench", "--sizes", "tiny", "--model", "here"], 2, "choose one"),
        (["bench", "--model", "./missing"], 2, "no such model"),
        (["bench", "--repeats", "0"], 2, "--repeats is 0"),
        (["bench", "--threads", "-1"], 2, "--threads is -1"),
        (["bench", "--device", "tpu9"], 2, "tpu9"),
        (["bench", "--precision", "fp64"], 2, "--precision"),
        (["bench", "--quick", "--json", "/dev/null/report.json"], 1, "cannot write /dev"),
        (["bench", "scaling", "--quick", "--plot", "/dev/null/p.png"], 1, "cannot write /dev"),
        (["bench", "--threads", "100000"], 2, "--threads is 100000, expected at most"),
        (["bench", "scaling", "--plot", "s.txt"], 2, "--plot is s.txt, expected a file whose name"),
        (["bench", "scaling", "--plot", "scaling"], 2, "ends with .png, .svg, .pdf"),
        (["bench", "scaling", "--batches", "4", "0"], 2, "--batches is 4 0"),
        (["bench", "precision", "random-tiny"], 2, "--text FILE, or --treebank"),
        (["bench", "precision", "random-tiny", "--text", "missing"], 2, "no such text file"),
        (["bench", "precision", "random-tiny", "--treebank", "missing"], 2, "no such folder"),
        (["bench", "precision"], 2, "MODEL"),
        (["bench", "frobnicate"], 2, "frobnicate"),
    ],
)
@pytest.mark.filterwarnings("ignore::elmo.errors.ElmoWarning")
def test_what_cannot_be_measured_is_said_in_one_line(
    arguments, code, expected, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main([*arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert expected in captured.err
    assert "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []


def made_scaling_report(**sizes):
    """A report of a model whose memory grows by a megabyte a sentence."""
    from elmo.benchmark.machine import this_machine
    from elmo.benchmark.scaling import KEPT, STREAMED, ScalingReport, ScalingRow
    from elmo.benchmark.timing import Spread

    rows = [
        ScalingRow("small", sweep, way, size, size, [1.0], Spread(size, size, size), size, None)
        for sweep, some in sizes.items()
        for way in ((KEPT, STREAMED) if sweep == "corpus" else (KEPT,))
        for size in some
    ]
    return ScalingReport("elmo bench scaling", "0", this_machine(), rows=rows)


def test_a_picture_has_numbers_where_something_was_measured():
    pytest.importorskip("matplotlib")
    from elmo.benchmark.scaling_report import scaling_figure

    sizes = {"batch": (1, 8, 64), "length": (10, 40), "corpus": (16,)}
    panels = scaling_figure(made_scaling_report(**sizes)).axes
    scales = ["log"] * 3 + ["linear"] * 3
    for panel, expected, scale in zip(panels, [*sizes.values()] * 2, scales, strict=True):
        assert panel.get_xscale() == scale
        assert tuple(panel.get_xticks()) == expected
        assert [label.get_text() for label in panel.get_xticklabels()] == list(map(str, expected))
    for panel in panels[3:]:  # of memory: no line lies on the edge
        assert panel.get_ylim() == pytest.approx((0, 1.1 * 64))


@pytest.mark.parametrize(
    ("sizes", "scale", "expected"),
    [
        ((7,), "log", [7]),
        ((1, 2, 4, 8, 16, 32, 64, 128, 256), "log", [1, 2, 4, 8, 16, 32, 64, 128, 256]),
        ((1, 2, 4, 8, 16, 32, 64, 128, 256), "linear", [1, 32, 64, 128, 256]),
        ((1, 2, 3, 4, 5, 6, 7, 8, 9, 1000), "log", [1, 3, 8, 1000]),
        ((1000, 1001, 1002, 100_000), "log", [1000, 100_000]),
    ],
)
def test_numbers_below_a_picture_do_not_touch(sizes, scale, expected):
    from elmo.benchmark.scaling_report import readable

    assert readable(sizes, scale) == expected


@pytest.mark.parametrize("kind", [SpeedSettings, ScalingSettings, PrecisionSettings])
def test_what_is_named_twice_is_measured_once(kind):
    assert kind(precision=("int8", "fp32", "int8")).precision == ("int8", "fp32")


def test_a_machine_is_not_asked_for_more_threads_than_it_can_start():
    most = 4 * os.cpu_count()
    assert SpeedSettings(threads=most).threads == most
    with pytest.raises(ConfigError, match=f"--threads is {most + 1}, expected at most {most}: 4"):
        SpeedSettings(threads=most + 1)


def test_a_picture_without_matplotlib_names_the_extra(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = tmp_path / "scaling.png"
    assert main(["bench", "scaling", *QUICK, "--plot", str(path)]) == 2
    assert "--plot needs the 'plots' extra: pip install matplotlib" in capsys.readouterr().err
    assert not path.exists()


def test_an_empty_text_is_refused(tmp_path, model_folder, capsys):
    (tmp_path / "empty.txt").write_text("\n\n")
    flags = ["--text", str(tmp_path / "empty.txt"), "--quiet", "--device", "cpu"]
    assert main(["bench", "precision", str(model_folder), *flags]) == 2
    assert "has no words" in capsys.readouterr().err
