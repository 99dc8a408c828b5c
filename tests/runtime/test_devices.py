"""Flags of PyTorch while a GPU computes: exact inside, as the user set them outside."""

import subprocess
import sys
import threading

import pytest
import torch

from elmo.runtime.devices import exact_products

GPU = torch.device("cuda")
cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul


def flags():
    return (
        matmul.fp32_precision,
        cudnn.conv.fp32_precision,
        cudnn.rnn.fp32_precision,
        cudnn.deterministic,
        cudnn.benchmark,
    )


EXACT = ("ieee", "ieee", "ieee", True, False)


@pytest.fixture(params=[False, True])
def tf32(request):
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = request.param
    yield request.param
    matmul.allow_tf32, cudnn.allow_tf32 = before


def test_products_are_exact_inside_and_as_before_outside(tf32):
    before = flags()
    with exact_products(GPU):
        assert flags() == EXACT
        with exact_products(GPU):
            assert flags() == EXACT
        assert flags() == EXACT
    assert flags() == before
    assert (matmul.allow_tf32, cudnn.allow_tf32) == (tf32, tf32)


def test_a_cpu_leaves_the_flags_alone():
    before = flags()
    with exact_products(torch.device("cpu")):
        assert flags() == before


def test_products_stay_exact_while_any_thread_wants_it(tf32):
    before = flags()
    begun, may_end = threading.Event(), threading.Event()

    def other():
        with exact_products(GPU):
            begun.set()
            may_end.wait(60)

    thread = threading.Thread(target=other)
    thread.start()
    assert begun.wait(60)
    with exact_products(GPU):
        pass
    assert flags() == EXACT
    may_end.set()
    thread.join()
    assert flags() == before


@pytest.mark.parametrize("setting", ["fp32_precision", "cudnn.rnn.fp32_precision"])
@pytest.mark.parametrize("value", ["ieee", "tf32"])
def test_whatever_precision_a_user_sets_sentences_are_embedded(setting, value):
    code = (
        f"import torch; torch.backends.{setting} = {value!r}\n"
        "from elmo import ELMo, ElmoConfig, random_bilm\n"
        "from elmo.runtime.devices import exact_products\n"
        "ELMo(random_bilm(ElmoConfig.preset('tiny')), device='cpu').encode_tokens([['a']])\n"
        "with exact_products(torch.device('cuda')):\n"
        "    print(torch.backends.cudnn.conv.fp32_precision, end=' ')\n"
        f"print(torch.backends.{setting})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout.split() == ["ieee", value], done.stderr
