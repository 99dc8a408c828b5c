"""Ctrl-C: kept while something must not be left halfway, and never a reason to hang."""

import signal
import subprocess
import sys
import threading

import pytest

from elmo.runtime.interrupts import interrupts_later

pytestmark = pytest.mark.usefixtures("ctrl_c")


def test_an_interruption_waits_until_what_was_begun_is_done():
    done = []

    def change():
        with interrupts_later():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        change()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interruption_does_not_wait():
    done = []

    def change():
        with interrupts_later():
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        change()
    assert not done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_are_left_alone():
    done = []

    def change():
        with interrupts_later():
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=change)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]


INTERRUPTED_INSIDE = """
import signal, sys, threading
from elmo.training.corpus.workers import workers

enter = threading.Condition.__enter__
times = iter(range(int(sys.argv[1])))

def enter_and_be_interrupted(self):
    # The worst moment: the lock is held, and nothing knows yet that it has to be let go.
    taken = enter(self)
    if armed and threading.current_thread() is threading.main_thread():
        if next(times, None) is None:
            armed.clear()
            signal.raise_signal(signal.SIGINT)
    return taken

if __name__ == "__main__":
    armed = []
    threading.Condition.__enter__ = enter_and_be_interrupted
    try:
        with workers(2) as mapper:
            for _ in mapper(abs, iter(int, 1)):
                armed[:] = [True]
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("moment", range(6))
def test_a_pool_of_processes_ends_even_if_it_is_interrupted_inside_of_its_locks(tmp_path, moment):
    script = tmp_path / "jobs.py"
    script.write_text(INTERRUPTED_INSIDE)
    done = subprocess.run(
        [sys.executable, str(script), str(moment)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == "interrupted\n", done.stderr
