import pytest
from card import present

pytestmark = pytest.mark.skipif(not present(), reason="no card")


def test_card():
    assert present()
