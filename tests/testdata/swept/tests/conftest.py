import pytest


@pytest.fixture(params=[3, 7])
def start_seed(request):
    return request.param * 100


@pytest.fixture(scope="module", params=["a", "b"])
def wide(request):
    return request.param
