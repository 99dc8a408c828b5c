"""Snapshots of a run, and its curve."""

import pytest
import torch
from torch import nn

from elmo.errors import WeightsError
from elmo.tasks.run.progress import (
    SNAPSHOT_FILE,
    TaskProgress,
    draw_curve,
    restore_progress,
    save_progress,
)


def network_and_optimizer(dim=3):
    network = nn.Linear(dim, 2)
    return network, torch.optim.AdamW(network.parameters(), lr=0.1)


def step(network, optimizer):
    network(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_a_snapshot_restores_parameters_optimizer_and_progress(tmp_path):
    network, optimizer = network_and_optimizer()
    step(network, optimizer)
    progress = TaskProgress(epochs=2, step=7, best=0.5, best_epoch=1)
    save_progress(tmp_path, progress, network, optimizer)
    other, its_optimizer = network_and_optimizer()
    assert restore_progress(tmp_path, other, its_optimizer) == progress
    for both in ((network, optimizer), (other, its_optimizer)):
        step(*both)
    assert torch.equal(network.weight, other.weight)


def test_without_a_snapshot_a_run_begins(tmp_path):
    assert restore_progress(tmp_path, *network_and_optimizer()) == TaskProgress()


@pytest.mark.parametrize("kept", [0, 10, 500])
def test_a_damaged_snapshot_is_refused(tmp_path, kept):
    save_progress(tmp_path, TaskProgress(), *network_and_optimizer())
    path = tmp_path / SNAPSHOT_FILE
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(WeightsError, match="damaged or of another run"):
        restore_progress(tmp_path, *network_and_optimizer())


def test_the_snapshot_of_another_network_is_refused(tmp_path):
    save_progress(tmp_path, TaskProgress(), *network_and_optimizer())
    with pytest.raises(WeightsError, match="damaged or of another run"):
        restore_progress(tmp_path, *network_and_optimizer(dim=4))


def test_a_curve_is_drawn_where_it_can_be(tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    rows = [{"split": "train", "step": 4, "loss": 1.0}, {"split": "dev", "step": 4, "f1": 0.5}]
    draw_curve(rows, "f1", tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    draw_curve(rows, "f1", tmp_path / "nowhere" / "curve.png")
    assert not (tmp_path / "nowhere").exists()
