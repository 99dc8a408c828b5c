"""The biLM once more, in float64 NumPy, one word at a time: slow, plain and independent.

It is written from the published conventions alone and shares no code with the package. Names and
layouts of its tensors are those of bilm-tf's HDF5 file, its options those of `options.json`.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = range(256, 261)
N_CHARACTERS = 261
SPECIAL_CHARACTERS = ("<S>", "</S>", "<W>", "</W>", "<PAD>", "<UNK>")
"""The first rows of `char_embed` in a model with an alphabet; its characters follow."""
FORGET_BIAS = 1.0  # TensorFlow adds it and does not save it


def spelling(word, max_characters):
    """Give the ids of a word, not shifted: rows of `char_embed`."""
    single = {"<S>": BEGIN_SENTENCE, "</S>": END_SENTENCE}
    inside = [single[word]] if word in single else list(word.encode("utf-8", "ignore"))
    row = [BEGIN_WORD, *inside[: max_characters - 2], END_WORD]
    return row + [PADDING] * (max_characters - len(row))


def alphabet_spelling(word, max_characters, characters):
    """Give the ids of a word by an alphabet, not shifted: rows of `char_embed`."""
    table = [*SPECIAL_CHARACTERS, *characters]
    inside = [word] if word in ("<S>", "</S>") else list(word)
    names = ["<W>", *inside[: max_characters - 2], "</W>"]
    names += ["<PAD>"] * (max_characters - len(names))
    return [table.index(name if name in table else "<UNK>") for name in names]


class Oracle:
    """A biLM in float64.

    `state` is a dict from (direction, layer) to (hidden, memory); an absent entry is zero.
    `clipped` counts how often the two clips had something to do.
    """

    def __init__(self, options, tensors, vocabulary=None, characters=None):
        self.options = options
        self.tensors = {name: np.asarray(t, dtype=np.float64) for name, t in tensors.items()}
        self.vocabulary = vocabulary
        self.characters = characters
        self.lstm = options["lstm"]
        self.n_layers = self.lstm["n_layers"]
        self.dim, self.width = self.lstm["dim"], self.lstm["projection_dim"]
        self.clipped = {"cell": 0, "proj": 0}
        self._known = {}

    def word_vector(self, word):
        """Give the context-free vector of a word, `(projection_dim,)`."""
        if word not in self._known:
            read = self._from_characters if "char_cnn" in self.options else self._from_vocabulary
            self._known[word] = read(word)
        return self._known[word]

    def read(self, words, state=None, boundaries=False):
        """Read one sentence between its boundaries.

        Returns:
            Layers `(n_layers + 1, n, 2 * projection_dim)`, and the state after it.
        """
        state = dict(state or {})
        vectors = [self.word_vector(word) for word in ["<S>", *words, "</S>"]]
        sides = []
        for direction in (0, 1):
            inputs = vectors if direction == 0 else vectors[::-1]
            layers = [inputs]
            for layer in range(self.n_layers):
                outputs, state[direction, layer] = self._run_layer(
                    direction, layer, inputs, state.get((direction, layer))
                )
                if layer > 0 and self.lstm["use_skip_connections"]:
                    outputs = [out + into for out, into in zip(outputs, inputs, strict=True)]
                layers.append(outputs)
                inputs = outputs
            sides.append([side if direction == 0 else side[::-1] for side in layers])
        both = np.concatenate([np.array(side) for side in sides], axis=2)
        return (both if boundaries else both[:, 1:-1]), state

    def read_all(self, sentences):
        """Read sentences one by one, each from nothing; returns their layers."""
        return [self.read(sentence)[0] for sentence in sentences]

    def _from_vocabulary(self, word):
        known = {w: row for row, w in enumerate(self.vocabulary)}
        return self.tensors["embedding"][known.get(word, known["<UNK>"])]

    def _from_characters(self, word):
        cnn = self.options["char_cnn"]
        longest = cnn["max_characters_per_token"]
        row = (
            spelling(word, longest)
            if self.characters is None
            else alphabet_spelling(word, longest, self.characters)
        )
        characters = self.tensors["char_embed"][row]
        activation = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}[cnn["activation"]]
        responses = []
        for i, (width, _) in enumerate(cnn["filters"]):
            kernel = self.tensors[f"CNN/W_cnn_{i}"][0]
            windows = np.stack(
                [characters[t : t + width] for t in range(len(characters) - width + 1)]
            )
            strength = np.einsum("twc,wcn->tn", windows, kernel) + self.tensors[f"CNN/b_cnn_{i}"]
            responses.append(activation(strength.max(axis=0)))
        x = np.concatenate(responses)
        for k in range(cnn.get("n_highway") or 0):
            gate = sigmoid(self._affine(x, f"CNN_high_{k}", "carry"))
            x = gate * np.maximum(self._affine(x, f"CNN_high_{k}", "transform"), 0) + (1 - gate) * x
        return self._affine(x, "CNN_proj", "proj") if "CNN_proj/W_proj" in self.tensors else x

    def _affine(self, x, scope, name):
        return x @ self.tensors[f"{scope}/W_{name}"] + self.tensors[f"{scope}/b_{name}"]

    def _run_layer(self, direction, layer, inputs, state):
        step = getattr(self, _cell_of(self.options).step)
        hidden, memory = state or (np.zeros(self.width), np.zeros(self.dim))
        outputs = []
        for vector in inputs:
            hidden, memory = step(cell_name(self.options, direction, layer), vector, hidden, memory)
            outputs.append(hidden)
        return outputs, (hidden, memory)

    def _lstm_step(self, cell, vector, hidden, memory):
        gates = np.concatenate([vector, hidden]) @ self.tensors[f"{cell}/W_0"]
        i, j, f, o = np.split(gates + self.tensors[f"{cell}/B"], 4)
        memory = sigmoid(f + FORGET_BIAS) * memory + sigmoid(i) * np.tanh(j)
        memory = self._clip("cell", memory)
        return self._project(cell, sigmoid(o) * np.tanh(memory)), memory

    def _gru_step(self, cell, vector, hidden, memory):
        kernel = self.tensors[f"{cell}/W_0"]
        from_input = np.split(vector @ kernel[: len(vector)] + self.tensors[f"{cell}/B"], 3)
        from_state = np.split(hidden @ kernel[len(vector) :], 3)
        r, z = (sigmoid(from_input[k] + from_state[k]) for k in (0, 1))
        n = np.tanh(from_input[2] + r * (from_state[2] + self.tensors[f"{cell}/B_candidate"]))
        memory = self._clip("cell", (1 - z) * n + z * memory)
        return self._project(cell, memory), memory

    def _project(self, cell, values):
        # Without a projection TensorFlow's LSTMCell has no second clip either.
        kernel = self.tensors.get(f"{cell}/W_P_0")
        return values if kernel is None else self._clip("proj", values @ kernel)

    def _clip(self, kind, values):
        bound = self.lstm[f"{kind}_clip"]
        if bound is None:
            return values
        self.clipped[kind] += int((np.abs(values) > bound).sum())
        return np.clip(values, -bound, bound)


def sigmoid(x):
    return (1 + np.tanh(x / 2)) / 2


@dataclass(frozen=True)
class _Cell:
    """What is known of a cell beside its step."""

    step: str
    """Method of `Oracle` that computes one word: `(cell, vector, hidden, memory)`."""
    stored: str
    """Its name in the HDF5 file."""
    n_gates: int
    has_recurrent_weight: bool = True
    vectors: tuple[str, ...] = ()
    """Further parameters of shape `(dim,)`."""


CELLS = {
    "lstm": _Cell("_lstm_step", "LSTMCell", 4),
    "gru": _Cell("_gru_step", "GRUCell", 3, vectors=("B_candidate",)),
}
"""All that differs between cells; a new one is a line here and its step in `Oracle`."""


def _cell_of(options):
    return CELLS[options["lstm"].get("cell", "lstm")]


def cell_name(options, direction, layer):
    return f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/{_cell_of(options).stored}"


def tensor_shapes(options):
    """List names and shapes of a model's tensors as bilm-tf stores them."""
    lstm = options["lstm"]
    dim, width = lstm["dim"], lstm["projection_dim"]
    known = _cell_of(options)
    shapes = {}
    if "char_cnn" in options:
        shapes |= _character_shapes(options["char_cnn"], width)
    else:
        shapes["embedding"] = (options["n_tokens_vocab"], width)
    for direction in (0, 1):
        for layer in range(lstm["n_layers"]):
            cell = cell_name(options, direction, layer)
            read = 2 * width if known.has_recurrent_weight else width
            shapes[f"{cell}/W_0"] = (read, known.n_gates * dim)
            shapes[f"{cell}/B"] = (known.n_gates * dim,)
            shapes |= {f"{cell}/{name}": (dim,) for name in known.vectors}
            if width < dim:
                shapes[f"{cell}/W_P_0"] = (dim, width)
    return shapes


def _character_shapes(cnn, width):
    char_dim = cnn["embedding"]["dim"]
    stated = cnn.get("n_characters", 262)  # with the masked row, which is not stored
    rows = N_CHARACTERS if stated in (261, 262) else stated - 1
    shapes = {"char_embed": (rows, char_dim)}
    for i, (filter_width, number) in enumerate(cnn["filters"]):
        shapes[f"CNN/W_cnn_{i}"] = (1, filter_width, char_dim, number)
        shapes[f"CNN/b_cnn_{i}"] = (number,)
    n_filters = sum(number for _, number in cnn["filters"])
    for k in range(cnn.get("n_highway") or 0):
        for name in ("carry", "transform"):
            shapes[f"CNN_high_{k}/W_{name}"] = (n_filters, n_filters)
            shapes[f"CNN_high_{k}/b_{name}"] = (n_filters,)
    if n_filters != width:
        shapes["CNN_proj/W_proj"] = (n_filters, width)
        shapes["CNN_proj/b_proj"] = (width,)
    return shapes


def random_tensors(options, seed=0, recurrent_scale=1.0):
    """Draw float32 tensors, biases too, so that no term of any formula can hide behind a zero."""
    generator = np.random.default_rng(seed)
    tensors = {}
    for name, shape in tensor_shapes(options).items():
        scale = recurrent_scale if name.startswith("RNN_") else 1.0
        is_table = name in ("char_embed", "embedding")
        fan_in = 4 if is_table or len(shape) == 1 else math.prod(shape[:-1])
        noise = generator.standard_normal(shape) * scale / math.sqrt(fan_in)
        tensors[name] = noise.astype(np.float32)
    return tensors


def write_files(folder, options, tensors, vocabulary=None, characters=None):
    """Write `options.json`, `weights.hdf5`, `vocab.txt` as the published tools would.

    And `characters.txt`, as we describe it; of characters that need no escape.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "options.json").write_text(json.dumps(options))
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, tensor in tensors.items():
            file.create_dataset(name, data=tensor)
    if vocabulary is not None:
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in vocabulary))
    if characters is not None:
        lines = (*SPECIAL_CHARACTERS, *characters)
        (folder / "characters.txt").write_text("".join(f"{line}\n" for line in lines))
    return folder
