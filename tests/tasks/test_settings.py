"""Settings of tasks: impossible ones are refused."""

import pytest

from elmo.errors import ConfigError
from elmo.tasks.settings import TaskSettings


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"features": "glove", "elmo_at": "both"}, "elmo_at is about ELMo"),
        ({"features": "random", "finetune_elmo": True}, "finetune_elmo is about ELMo"),
        ({"features": "elmo", "elmo_at": "output"}, "leaves nothing for the input"),
        ({"features": "word2vec"}, "one of glove, elmo"),
        ({"train_share": 0.0}, "above 0"),
        ({"epochs": -1}, "more than 0"),
        ({"dropout": 1.0}, "from 0"),
        ({"mix": "sum"}, "learned, top, average or a whole number"),
        ({"features": "elmo", "finetune_vectors": True}, "needs static vectors"),
        ({"epochs": "many"}, "a whole number"),
    ],
)
def test_impossible_settings_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        TaskSettings(**wrong)
