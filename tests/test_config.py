"""Sizes: defaults, checks, and the way to and from both JSON files."""

import dataclasses
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmo import ElmoConfig, ElmoError
from elmo.config import STANDARD_FILTERS
from elmo.errors import ConfigError
from oracle import tensor_shapes
from strategies import configs, options


def minimal_options():
    return {
        "lstm": {"dim": 64, "projection_dim": 16},
        "char_cnn": {
            "activation": "relu",
            "embedding": {"dim": 4},
            "filters": [[1, 4], [2, 8]],
        },
    }


def test_the_defaults_are_the_original_model():
    shapes = tensor_shapes(ElmoConfig().to_options())
    # The published count: 93.6 M.
    assert sum(math.prod(shape) for shape in shapes.values()) == 93_600_848
    assert ElmoConfig() == ElmoConfig.preset("original")
    assert ElmoConfig().n_filters == 2048
    assert ElmoConfig().output_dim == 1024


@pytest.mark.parametrize(("name", "millions"), [("small", 13.6), ("medium", 28.0)])
def test_presets_have_the_published_sizes(name, millions):
    shapes = tensor_shapes(ElmoConfig.preset(name).to_options())
    count = sum(math.prod(shape) for shape in shapes.values())
    assert count / 1e6 == pytest.approx(millions, abs=0.05)


def test_a_preset_takes_changes():
    assert ElmoConfig.preset("tiny", n_layers=3).n_layers == 3
    assert ElmoConfig.preset("tiny", n_layers=3) == ElmoConfig.preset("tiny").replace(n_layers=3)


def test_an_unknown_preset_is_named_together_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"'huge'.*tiny, .*small, medium, original"):
        ElmoConfig.preset("huge")


@given(config=configs(cells=("lstm", "gru"), reads=("characters", "words")))
def test_config_json_gives_the_same_config_back(config):
    assert ElmoConfig.from_dict(json.loads(config.to_json())) == config


@given(drawn=options(cells=("lstm", "gru"), reads=("characters", "words")))
def test_options_json_gives_the_same_config_back(drawn):
    config = ElmoConfig.from_options(drawn)
    assert ElmoConfig.from_options(json.loads(json.dumps(config.to_options()))) == config


@given(drawn=options())
def test_options_are_understood_field_by_field(drawn):
    config = ElmoConfig.from_options(drawn)
    lstm, cnn = drawn["lstm"], drawn["char_cnn"]
    assert (config.dim, config.projection_dim) == (lstm["dim"], lstm["projection_dim"])
    assert (config.cell_clip, config.proj_clip) == (lstm["cell_clip"], lstm["proj_clip"])
    assert config.n_layers == lstm["n_layers"]
    assert config.skip_connections == lstm["use_skip_connections"]
    assert [list(pair) for pair in config.filters] == cnn["filters"]
    assert (config.activation, config.n_highway) == (cnn["activation"], cnn["n_highway"])
    assert config.char_dim == cnn["embedding"]["dim"]
    assert config.max_characters == cnn["max_characters_per_token"]
    assert config.has_projection == (lstm["projection_dim"] < lstm["dim"])
    n_filters = sum(number for _, number in cnn["filters"])
    assert config.has_word_projection == (n_filters != lstm["projection_dim"])


def test_written_options_ask_for_262_characters_as_bilm_tf_wants_them():
    assert ElmoConfig().to_options()["char_cnn"]["n_characters"] == 262


def test_missing_options_get_the_defaults_of_bilm_tf():
    config = ElmoConfig.from_options(minimal_options())
    assert config.n_layers == 1
    assert config.cell_clip is None
    assert config.proj_clip is None
    assert not config.skip_connections
    assert config.n_highway == 0
    assert config.max_characters == 50


def test_keys_for_training_are_ignored():
    training = {
        "bidirectional": True,
        "dropout": 0.1,
        "batch_size": 128,
        "n_tokens_vocab": 793471,
        "unroll_steps": 20,
        "all_clip_norm_val": 10.0,
    }
    assert ElmoConfig.from_options(minimal_options() | training) == ElmoConfig.from_options(
        minimal_options()
    )


def test_options_without_characters_describe_a_model_that_reads_words():
    config = ElmoConfig.from_options(
        {"lstm": {"dim": 8, "projection_dim": 4}, "n_tokens_vocab": 100}
    )
    assert not config.reads_characters
    assert config.n_words == 100
    assert not config.has_word_projection


@pytest.mark.parametrize("path", ["lstm", "lstm.dim", "lstm.projection_dim", "char_cnn.filters"])
def test_a_missing_option_is_named(path):
    given_options = minimal_options()
    *sections, key = path.split(".")
    inner = given_options
    for section in sections:
        inner = inner[section]
    del inner[key]
    with pytest.raises(ConfigError, match=path):
        ElmoConfig.from_options(given_options)


def test_a_section_that_is_no_object_is_named():
    with pytest.raises(ConfigError, match="'lstm' is 5"):
        ElmoConfig.from_options({"lstm": 5})


@pytest.mark.parametrize(("stated", "rows"), [(261, 262), (262, 262), (300, 300), (8, 8)])
def test_261_and_262_characters_are_bytes_and_others_an_alphabet(stated, rows):
    given_options = minimal_options()
    given_options["char_cnn"]["n_characters"] = stated
    config = ElmoConfig.from_options(given_options)
    assert config.n_characters == rows
    assert config.has_alphabet == (rows != 262)
    assert config.to_options()["char_cnn"]["n_characters"] == rows


@pytest.mark.parametrize("stated", [7, 0, -1, 3.5, "300", None, True])
def test_an_impossible_number_of_characters_is_refused(stated):
    given_options = minimal_options()
    given_options["char_cnn"]["n_characters"] = stated
    with pytest.raises(ConfigError, match=r"n_characters is .*(at least 8|a whole number)"):
        ElmoConfig.from_options(given_options)


def test_a_config_does_not_leave_the_masked_row_out():
    with pytest.raises(ConfigError, match="n_characters is 261, expected 262 for UTF-8 bytes"):
        ElmoConfig(n_characters=261)


def test_a_model_that_reads_words_has_no_alphabet():
    config = ElmoConfig(n_words=5, filters=(), n_characters=300)
    assert not config.has_alphabet
    assert config == ElmoConfig(n_words=5, filters=())


def test_the_tutorials_size_is_a_preset():
    config = ElmoConfig.preset("tutorial", n_characters=5000)
    assert (config.dim, config.projection_dim, config.n_layers) == (512, 256, 2)
    assert (config.char_dim, config.max_characters, config.n_filters) == (128, 10, 2048)
    assert config.has_alphabet


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dim", 0),
        ("dim", -4),
        ("dim", 4.0),
        ("dim", True),
        ("dim", "64"),
        ("dim", None),
        ("projection_dim", 0),
        ("projection_dim", 65),
        ("n_layers", 0),
        ("char_dim", 0),
        ("n_highway", -1),
        ("n_words", -1),
        ("max_characters", 2),
        ("cell", 3),
        ("activation", "gelu"),
        ("cell_clip", -3.0),
        ("cell_clip", "3"),
        ("proj_clip", float("nan")),
        ("filters", ()),
        ("filters", ((0, 4),)),
        ("filters", ((1, 0),)),
        ("filters", ((1, 2, 3),)),
        ("filters", (7,)),
        ("filters", ((51, 4),)),
        ("mix_weights", (1.0,)),
        ("mix_weights", (1.0,) * 4),
    ],
)
def test_an_impossible_value_is_refused_by_name(field, value):
    with pytest.raises(ConfigError, match=field):
        ElmoConfig.preset("tiny", **{field: value})


def test_a_clip_of_zero_means_none_as_in_allennlp():
    config = ElmoConfig.preset("tiny", cell_clip=0, proj_clip=0.0)
    assert config.cell_clip is None
    assert config.proj_clip is None


def test_lists_and_whole_numbers_of_json_compare_equal_to_ours():
    ours = ElmoConfig.preset("tiny", mix_weights=(0.0, 1.0, 2.0), cell_clip=3.0)
    theirs = ElmoConfig.preset("tiny", mix_weights=[0, 1, 2], cell_clip=3).replace(
        filters=[list(pair) for pair in ours.filters]
    )
    assert ours == theirs
    assert hash(ours) == hash(theirs)


def test_an_unknown_key_is_named():
    with pytest.raises(ConfigError, match="unknown settings dimm; known are"):
        ElmoConfig.from_dict({"dimm": 3})


def test_the_config_of_another_kind_of_model_is_refused():
    with pytest.raises(ConfigError, match="model_type is 'bert', expected 'elmo'"):
        ElmoConfig.from_dict({"model_type": "bert"})


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ElmoConfig().dim = 5


def test_every_config_error_is_an_elmo_error_and_a_value_error():
    with pytest.raises(ElmoError):
        ElmoConfig(dim=0)
    with pytest.raises(ValueError, match="dim is 0"):
        ElmoConfig(dim=0)


@settings(max_examples=20)
@given(filters=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 40)), min_size=1, max_size=4))
def test_the_number_of_filters_is_their_sum(filters):
    config = ElmoConfig(filters=tuple(filters))
    assert config.n_filters == sum(number for _, number in filters)


def test_the_standard_filters_are_the_published_ones():
    assert [width for width, _ in STANDARD_FILTERS] == [1, 2, 3, 4, 5, 6, 7]
    assert [number for _, number in STANDARD_FILTERS] == [32, 32, 64, 128, 256, 512, 1024]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("filters", None),
        ("filters", 5),
        ("mix_weights", None),
        ("mix_weights", ["a"]),
        ("mix_weights", [math.nan] * 3),
        ("mix_gamma", "x"),
        ("mix_gamma", math.inf),
        ("skip_connections", "no"),
        ("cell_clip", True),
        ("proj_clip", -1),
    ],
)
def test_values_of_another_kind_are_refused(field, value):
    with pytest.raises(ConfigError, match=f"{field} is"):
        ElmoConfig.from_dict({**ElmoConfig.preset("tiny").to_dict(), field: value})


def test_models_that_read_words_do_not_differ_in_what_they_do_not_use():
    assert ElmoConfig(n_words=9, char_dim=4, n_highway=7) == ElmoConfig(n_words=9, filters=())


def test_a_model_knows_its_tokenizer_which_is_no_part_of_its_options():
    config = ElmoConfig.preset("tiny", tokenizer="english")
    assert ElmoConfig.from_dict(json.loads(config.to_json())) == config
    assert config.to_options() == ElmoConfig.preset("tiny").to_options()
    assert "tokenizer" not in ElmoConfig.preset("tiny").to_dict()
    with pytest.raises(ConfigError, match="tokenizer is 'English', expected one of"):
        ElmoConfig(tokenizer="English")
