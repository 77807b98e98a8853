import os
import random
import time
from random import seed as sow

import pytest
from drawn import LIMIT, drawn

random.seed(20)
RATES = {"slow": 1.0, "fast": 1.5}


@pytest.mark.parametrize("rate", ["slow", pytest.param("fast", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("seed", [3, pytest.param(5, marks=pytest.mark.xfail), 7])
def test_argument(seed, rate):
    random.seed(seed)
    ratio = 2 * RATES[rate] * drawn()
    print(f"{rate} ratio {ratio} of seed {seed}")
    assert ratio <= 2 * LIMIT


@pytest.mark.parametrize("device, seed, size", [("x", 3, 1), ("x", 7, 1), ("y", 3, 2)])
def test_rows(seed, device, size):
    random.seed(seed)
    assert drawn() < LIMIT - size / 10


@pytest.mark.skipif("TEST_CARD" not in os.environ, reason="no card")
@pytest.mark.parametrize("seed", [1, 2])
def test_card(seed):
    raise AssertionError


def test_through_a_fixture(start_seed, wide):
    random.seed(start_seed)
    assert start_seed % 100 == 0
    assert drawn() < LIMIT


def plant(number):
    sow(number)


class TestInside:
    def test_helper(self):
        plant(100)
        assert drawn() < LIMIT

    def test_own_generator(self):
        assert random.Random(x := 51).random() < LIMIT, x


def test_seeds_nothing():
    assert drawn() < LIMIT


def test_environment():
    number = int(os.environ.get("TRIAL", "0"))
    print("hash", hash("text"), "pid", os.getpid())
    assert number + int(os.environ.get("OTHER", "0")) < 6


@pytest.mark.parametrize("seed", [0, 1])
def test_ends(seed):
    if seed == 3:
        os._exit(7)
    if seed == 5:
        time.sleep(60)
    assert True
