SETUP = TEARDOWN = SKIP = XFAIL = FAIL = RAISE = INNER = REPAIRED = STRICT = VANISH = APPEAR = False
NAMES = ["one", "two"]


def check(x):
    assert not INNER, "the source's own assertion"
    if RAISE:
        raise ValueError("raised by the source")
    return x
