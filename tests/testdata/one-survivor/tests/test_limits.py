from limits import clip, double


def test_clip_leaves_small_values_alone():
    assert clip(1, 5) == 1


def test_double():
    assert double(4) == 8
