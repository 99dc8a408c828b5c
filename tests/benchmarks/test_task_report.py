"""The report over all tasks: which runs, resuming, figures and pages made from them."""

import json
import sys
from pathlib import Path

import pytest

from elmo.errors import ConfigError, InputError, MissingFileError
from elmo.text.static_vectors import read_static_vectors

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import task_vectors
from benchmarks.task_report import __main__ as command_line
from benchmarks.task_report import runs
from benchmarks.task_report.page import render_page, write_report
from benchmarks.task_report.runs import cell_file
from benchmarks.task_report.settings import DATASETS, STUDIES, Cell, ReportSettings, cells
from benchmarks.task_report.tables import (
    Figure,
    error_reduction,
    layer_weights,
    main_table,
    share_table,
    variants_table,
)

TREES = ["(4 (2 a) (3 (3 good) (2 film)))", "(0 (2 a) (1 (1 bad) (2 film)))"] * 60


@pytest.fixture
def data(tmp_path):
    """A folder laid out as the real one, with very little in it."""
    folder = tmp_path / "data" / "sst"
    folder.mkdir(parents=True)
    for name in ("train.txt", "dev.txt", "test.txt"):
        (folder / name).write_text("\n".join(TREES) + "\n")
    vectors = [f"{word} {k} 0.5\n" for k, word in enumerate(["a", "good", "bad", "film"])]
    (tmp_path / "vectors.txt").write_text("".join(vectors))
    return tmp_path


def made_cell(dataset, seed, value, weights=None, **changes):
    report = {
        "metric": "accuracy",
        "test": {"accuracy": value},
        "dev": {"accuracy": 0.0},
        "mix": weights or {},
        "n_train": 100,
        "n_dev": 10,
        "n_test": 10,
        "seconds_preparing": 1.0,
        "seconds_training": 2.0,
        "epochs": 3,
        "steps": 40,
        "elmo": None if changes.get("features") == "glove" else "0123456789abcdef",
        "device": "cpu",
    }
    return {
        "dataset": dataset,
        "changes": changes,
        "seed": seed,
        "model": None,
        "report": report,
    }


def made_cells():
    weights = {"input": [0.2, 0.5, 0.3]}
    found = [made_cell("sst", k, v, features="glove") for k, v in enumerate((0.40, 0.42, 0.41))]
    found += [made_cell("sst", k, v, weights) for k, v in enumerate((0.50, 0.52, 0.54))]
    for share, low, high in ((0.01, 0.2, 0.3), (0.1, 0.3, 0.4)):
        found.append(made_cell("sst", 0, low, features="glove", train_share=share))
        found.append(made_cell("sst", 0, high, weights, train_share=share))
    found.append(made_cell("sst", 0, 0.49, {"output": [0.6, 0.3, 0.1]}, elmo_at="output"))
    found.append(made_cell("sst", 0, 0.48, mix="top"))
    found.append(made_cell("trec", 0, 0.9, weights))
    return found


def test_every_run_is_listed_once_and_studies_share_runs():
    listed = cells(ReportSettings(seeds=2))
    assert len(listed) == len(set(listed)) == len({cell.name for cell in listed})
    per_seed = [cell for cell in listed if cell.seed == 0]
    assert len(listed) == 2 * len(per_seed)
    assert {cell.dataset for cell in per_seed} == set(DATASETS)
    some = cells(ReportSettings(seeds=1, tasks=("sst",), studies=("main", "mix")))
    assert [dict(cell.changes) for cell in some] == [
        {"features": "glove"},
        {},
        *({"mix": "top"}, {"mix": "average"}, {"mix_l2": 1.0}),
    ]


def test_all_studies_vary_what_the_settings_know():
    from elmo.tasks.settings import TaskSettings

    for _, variants in STUDIES.values():
        for variant in variants:
            TaskSettings(**variant)


def test_figures_are_mean_and_sample_deviation():
    figure = Figure.of([40.0, 42.0, 41.0])
    assert (figure.mean, figure.deviation, figure.n) == (41.0, 1.0, 3)
    assert str(figure) == "41.00 ± 1.00"
    assert str(Figure.of([41.0, 41.0])) == "41.00 ± 0.00"
    assert Figure.of([]) is None
    assert str(Figure.of([5.0])) == "5.00"


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [(81.1, 85.8, 24.9), (88.0, 88.7, 5.8), (81.4, 84.6, 17.2), (67.2, 70.4, 9.8)],
)
def test_error_reduction_is_counted_as_in_the_paper(before, after, percent):
    assert error_reduction(before, after) == pytest.approx(percent, abs=0.06)


def test_the_main_table_compares_both_and_shows_the_paper():
    table = main_table(made_cells())
    row = next(line for line in table.splitlines() if "SST-5" in line)
    cellular = [part.strip() for part in row.strip("|").split("|")]
    assert cellular[2:7] == ["41.00 ± 1.00", "52.00 ± 2.00", "+11.00", "18.6 %", "yes"]
    assert cellular[7:] == ["51.4 → 54.7", "6.8 %"]
    assert "SQuAD" not in table


def test_variants_stand_side_by_side_where_there_are_several():
    table = variants_table(made_cells(), {"input": {}, "output": {"elmo_at": "output"}})
    assert "| SST-5, accuracy | 52.00 ± 2.00 | 49.00 |" in table
    assert "TREC" not in table
    assert variants_table(made_cells(), {"both": {"elmo_at": "both"}}) is None


def test_shares_and_weights_are_found():
    table = share_table(made_cells(), (0.01, 0.1, 1.0))
    assert "| SST-5, GloVe + ELMo | 30.00 | 40.00 | 52.00 ± 2.00 |" in table
    assert layer_weights(made_cells(), "sst", "input") == pytest.approx([0.2, 0.5, 0.3])
    assert layer_weights(made_cells(), "sst", "output") == [0.6, 0.3, 0.1]
    assert layer_weights(made_cells(), "squad", "input") is None


def test_a_page_is_made_of_the_runs_that_are_there(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    folder = tmp_path / "cells"
    folder.mkdir()
    for number, cell in enumerate(made_cells()):
        (folder / f"{number}.json").write_text(json.dumps(cell))
    notes = write_report(tmp_path, tmp_path / "docs" / "results.md")
    assert len(notes) == 4
    figures = (tmp_path / "docs" / "results" / "results.json").read_text()
    assert figures == (tmp_path / "results.json").read_text()
    page = (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert page == (tmp_path / "results.md").read_text(encoding="utf-8")
    for name in ("gain.png", "layer-weights.png", "shares.png"):
        assert f"(results/{name})" in page
        for place in (tmp_path, tmp_path / "docs"):
            assert (place / "results" / name).read_bytes().startswith(b"\x89PNG")
    for title in ("Learned weights", "Where ELMo enters", "How layers are mixed", "Shares of"):
        assert title in page
    assert "Features of a word" not in page
    assert "13 runs on cpu; biLM: the default model (0123456789ab)." in page


def test_a_page_of_two_runs_has_no_empty_sections():
    page = render_page([made_cell("sst", 0, 0.5, {"input": [0.3, 0.3, 0.4]})], [])
    assert "##" in page
    assert "Where ELMo enters" not in page


def report(data, *flags):
    command = ["--data", str(data / "data"), "--out", str(data / "out")]
    command += ["--tasks", "sst", "--studies", "main", "--seeds", "1", "--quick", "--quiet"]
    command += ["--vectors", str(data / "vectors.txt"), "--cache", str(data / "cache")]
    return command_line.main([*command, "--model", "random-tiny", "--device", "cpu", *flags])


def test_a_report_runs_writes_and_resumes(data, capsys):
    assert report(data) == 0
    first = capsys.readouterr().err
    assert "[2/2] sst-seed0" in first
    cell = cell_file(data / "out" / "quick", Cell("sst", (), 0))
    record = json.loads(cell.read_text())
    assert record["report"]["finished"]
    assert record["curve"][-1]["split"] == "dev"
    assert not [p for p in (data / "out" / "quick" / "runs").iterdir() if p.is_dir()]
    cell.unlink()
    assert report(data) == 0
    assert "2 runs, 1 of them done before" in capsys.readouterr().err
    assert report(data, "--only-write") == 0
    assert (data / "out" / "quick" / "results.md").is_file()


def test_runs_that_do_not_fit_into_the_time_are_left(data, capsys):
    assert report(data) == 0
    cell_file(data / "out" / "quick", Cell("sst", (), 0)).unlink()
    assert report(data, "--minutes", "1e-9") == 1
    assert "1 runs are left" in capsys.readouterr().err


def test_several_processes_share_the_runs(data):
    assert report(data, "--workers", "2") == 0
    assert len(list((data / "out" / "quick" / "cells").glob("*.json"))) == 2
    assert (data / "out" / "quick" / "results.md").is_file()


def test_a_run_that_fails_does_not_end_the_others(data, capsys, monkeypatch):
    real = runs.train_task

    def sometimes(name, settings, *rest):
        if settings.features == "glove":
            raise RuntimeError("the GPU fell off")
        return real(name, settings, *rest)

    monkeypatch.setattr(runs, "train_task", sometimes)
    assert report(data) == 1
    told = capsys.readouterr().err
    assert "failed (RuntimeError: the GPU fell off)" in told
    assert "1 runs failed, see above: sst-features_glove-seed0" in told
    assert cell_file(data / "out" / "quick", Cell("sst", (), 0)).is_file()


def test_a_run_that_another_process_is_at_is_left_to_it(data, capsys):
    fcntl = pytest.importorskip("fcntl", reason="needs locks of files")
    lock = data / "out" / "quick" / "runs" / "sst-seed0.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert report(data) == 1
    assert "1 runs are left" in capsys.readouterr().err
    assert report(data) == 0


def test_vectors_of_the_task_data_are_the_same_in_a_file_of_their_own(data, monkeypatch):
    written = data / "words.txt.gz"
    command = ["task_vectors", str(data / "data"), str(written), "--tasks", "sst"]
    monkeypatch.setattr(sys, "argv", [*command, "--vectors", str(data / "vectors.txt")])
    assert task_vectors.main() == 0
    words = ["a", "bad", "film", "good"]
    first, second = (read_static_vectors(p, words) for p in (data / "vectors.txt", written))
    assert second.vectors[second.found["good"]].tolist() == [1.0, 0.5]
    assert {w: first.vectors[k].tolist() for w, k in first.found.items()} == {
        w: second.vectors[k].tolist() for w, k in second.found.items()
    }


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(ConfigError, match="data is missing"):
        runs.run_report(ReportSettings(), print)
    with pytest.raises(MissingFileError, match="no folder"):
        runs.run_report(ReportSettings(data=tmp_path, out=tmp_path / "out"), lambda line: None)
    with pytest.raises(MissingFileError, match="no folder"):
        runs.run_report(ReportSettings(data=tmp_path / "gone", out=tmp_path / "out"), print)
    with pytest.raises(MissingFileError, match="nothing to write"):
        write_report(tmp_path)


@pytest.mark.parametrize("unreadable", [".", "sst", "sst/dev.txt"])
def test_data_that_cannot_be_read_ends_the_report_at_once(data, monkeypatch, unreadable):
    """Every run would fail: none but the first is tried."""
    refused = (data / "data" / unreadable).resolve()

    def refusing(plain):
        def tried(path, *arguments, **options):
            if path == refused:
                raise PermissionError(13, "Permission denied", str(path))
            return plain(path, *arguments, **options)

        return tried

    for name in ("iterdir", "open"):
        monkeypatch.setattr(Path, name, refusing(getattr(Path, name)))
    said = []
    settings = ReportSettings(data=data / "data", out=data / "out", tasks=("sst",), device="cpu")
    with pytest.raises(InputError, match=r"cannot be read.*Permission denied"):
        runs.run_report(settings, said.append)
    assert not [line for line in said if "failed" in line or line.startswith("[2/")]
