import os
import subprocess
import sys

from calc import add

DAEMON = """
import subprocess, sys
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]], start_new_session=True)
"""


def test_add():
    assert add(1, 2) == 3


def test_daemon():
    subprocess.run([sys.executable, "-c", DAEMON, os.environ["DAEMON_MARKER"]], check=True)
