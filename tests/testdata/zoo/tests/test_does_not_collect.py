import zoo

assert zoo.open_gate(1) == 1, "at import"


def test_never():
    pass
