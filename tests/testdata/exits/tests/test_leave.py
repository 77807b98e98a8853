from leave import leave


def test_before():
    assert leave(False) == "stayed"


def test_stays():
    assert leave(False) == "stayed"
