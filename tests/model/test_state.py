"""State by rows: taken, repeated, and carried as AllenNLP carries it."""

import torch

from elmo import State
from elmo.model.bilm import CarriedState, zero_state


def test_states_are_taken_repeated_and_split_by_row(tiny_config):
    shape = (tiny_config.n_layers, 2, 3)
    state = State(torch.randn(*shape, 16), torch.randn(*shape, 64))
    assert state.rows == 3
    assert torch.equal(state.take(torch.tensor([2, 0])).hidden, state.hidden[:, :, [2, 0]])
    repeated = state.take(slice(1, 2)).repeat(4)
    assert repeated.rows == 4
    assert torch.equal(repeated.memory[:, :, 3], state.memory[:, :, 1])
    layer = state.layer(1, 0)
    assert torch.equal(layer.hidden, state.hidden[1, 0])
    assert torch.equal(layer.memory, state.memory[1, 0])


def test_carried_state_grows_by_zero_rows_and_keeps_rows_beyond_a_smaller_batch(tiny_config):
    carried = CarriedState(tiny_config)
    cpu = torch.device("cpu")
    assert not carried.first_rows(2, cpu).hidden.any()
    ones = zero_state(tiny_config, 2, torch.empty(0))
    ones.hidden.fill_(1.0)
    carried.keep(ones)
    grown = carried.first_rows(3, cpu)
    assert grown.hidden[0, 0, :, 0].tolist() == [1.0, 1.0, 0.0]
    twos = zero_state(tiny_config, 1, torch.empty(0))
    twos.hidden.fill_(2.0)
    carried.first_rows(1, cpu)
    carried.keep(twos)
    assert carried.first_rows(3, cpu).hidden[0, 0, :, 0].tolist() == [2.0, 1.0, 0.0]


def test_carried_state_does_not_write_into_what_it_was_given(tiny_config):
    carried = CarriedState(tiny_config)
    given_state = zero_state(tiny_config, 1, torch.empty(0))
    carried.state = given_state
    carried.first_rows(1, torch.device("cpu"))
    new = zero_state(tiny_config, 1, torch.empty(0))
    new.memory.fill_(7.0)
    carried.keep(new)
    assert not given_state.memory.any()
