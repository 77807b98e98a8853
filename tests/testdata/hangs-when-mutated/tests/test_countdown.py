import signal
import subprocess
import sys
import time

from countdown import steps, wait


def test_steps():
    assert steps(3) == 3


def test_steps_deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    helper = subprocess.Popen([sys.executable, "-c", code])
    assert steps(2) == 2
    helper.kill()
    helper.wait()


def test_wait():
    wait(0.01, time.sleep)
