import pytest
import zoo

if not zoo.BROKEN:
    pytest.skip("the module is off", allow_module_level=True)


def test_one():
    assert not zoo.BROKEN
