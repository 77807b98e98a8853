import pytest
import switch


@pytest.fixture
def resource():
    if switch.SETUP:
        raise OSError("no set-up")
    yield 1
    assert not switch.TEARDOWN, "no tear-down"


def test_resource(resource):
    assert resource == 1


def test_skips():
    if switch.SKIP:
        pytest.skip("switched off")


def test_xfails():
    if switch.XFAIL:
        pytest.xfail("switched off")


def test_fails():
    if switch.FAIL:
        pytest.fail("told to")


def test_source():
    assert switch.check(1) == 1


@pytest.mark.xfail(reason="broken")
def test_repaired():
    assert switch.REPAIRED


@pytest.mark.xfail(reason="broken", strict=True)
def test_strict():
    assert switch.STRICT


@pytest.mark.skipif(not switch.APPEAR, reason="not yet")
def test_appears():
    assert not switch.APPEAR


@pytest.mark.parametrize("name", switch.NAMES[1:] if switch.VANISH else switch.NAMES)
def test_names(name):
    assert name in switch.NAMES
