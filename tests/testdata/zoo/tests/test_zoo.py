# ruff: noqa: PT009, PT022 - unittest is one of the ways
import unittest
import warnings

import pytest
import zoo


class TestUnit(unittest.TestCase):
    def setUp(self):
        self.addCleanup(lambda: self.assertFalse(zoo.BROKEN))

    def test_plain(self):
        self.assertEqual(zoo.open_gate(1), 1)

    def test_subtests(self):
        for i in range(3):
            with self.subTest(i=i):
                self.assertEqual(zoo.open_gate(i), i)

    @unittest.expectedFailure
    def test_expected(self):
        self.assertEqual(zoo.open_gate(2), -1)

    @unittest.skipIf(zoo.BROKEN, "broken")
    def test_skips(self):
        pass


class TestClassSetUp(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if zoo.BROKEN:
            raise OSError("no class")

    def test_one(self):
        pass

    def test_two(self):
        pass


@pytest.fixture(scope="module")
def shared():
    value = zoo.open_gate(5)
    assert value == 5
    yield value


@pytest.fixture
def closing():
    yield
    if zoo.BROKEN:
        pytest.fail("at tear-down")


@pytest.mark.parametrize("name", ["a", "a::b", "c/d.py", "ü [x]", "", "two words", "a\nb"])
def test_ids(name, shared):
    assert zoo.open_gate(name) == name


def test_closing(closing):
    pass


def test_closing_after_failure(closing):
    assert not zoo.BROKEN


def test_native_subtests(subtests):
    for i in range(3):
        with subtests.test(msg="gate", i=i):
            assert zoo.open_gate(i) == i


@pytest.mark.xfail(raises=ValueError, reason="only ValueError is expected")
def test_expected_exception():
    if zoo.BROKEN:
        raise TypeError
    raise ValueError


@pytest.mark.xfail(strict=True)
def test_strict():
    assert zoo.BROKEN


def test_warns():
    with pytest.warns(UserWarning, match="open"):
        warnings.warn("open" if not zoo.BROKEN else "closed", stacklevel=1)


def test_raises():
    with pytest.raises(ZeroDivisionError):
        1 / (zoo.open_gate(1) - 1)


def test_capsys(capsys):
    print(zoo.open_gate("x"))
    assert capsys.readouterr().out == "x\n"


def test_capfd(capfd):
    import os

    os.write(1, str(zoo.open_gate("y")).encode())
    assert capfd.readouterr().out == "y"


def test_caplog(caplog):
    import logging

    logging.getLogger("zoo").warning("%s", zoo.open_gate("z"))
    assert "z" in caplog.text


def test_exits():
    with pytest.raises(SystemExit):
        raise SystemExit(3)
    if zoo.BROKEN:
        raise SystemExit(0)


def test_groups():
    if zoo.BROKEN:
        raise ExceptionGroup("two", [AssertionError("one"), AssertionError("other")])


def test_last_run(cache):
    assert cache.get("zoo/last", None) is None
    cache.set("zoo/last", 1)


def test_tmp(tmp_path):
    assert not list(tmp_path.iterdir())
