import pytest
import zoo

if zoo.BROKEN:
    pytest.skip("the module is off", allow_module_level=True)


def test_one():
    pass


def test_two():
    pass
