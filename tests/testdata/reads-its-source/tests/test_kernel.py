import inspect
import os
import subprocess
import sys
from pathlib import Path

import kernel


def ask(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_file():
    assert "x * SCALE" in Path(kernel.__file__).read_text()


def test_inspect():
    assert inspect.getsource(kernel.scaled).splitlines()[-1].strip() == "return x * SCALE"
    assert kernel.scaled.__doc__ == "Twice x."
    assert "hit" not in str(kernel.scaled.__code__.co_consts)


def test_subprocess():
    assert ask("import kernel; print(kernel.scaled(4))") == "8"


def test_subprocess_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ask("import kernel; print(kernel.scaled(5))") == "10"


def test_import_path():
    assert ask("import kernel; print(kernel.__file__)") == os.path.abspath("src/kernel.py")
