import os
import subprocess
import sys

from calc import add


def test_add():
    assert add(1, 2) == 3


def test_daemon():
    marker = os.environ["DAEMON_MARKER"]
    daemon = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]], start_new_session=True)"
    subprocess.run([sys.executable, "-c", daemon, marker], check=True)
