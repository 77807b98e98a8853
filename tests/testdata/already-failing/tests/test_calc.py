from calc import add


def test_add():
    assert add(1, 2) == 3


def test_wrong():
    assert add(1, 2) == 4
