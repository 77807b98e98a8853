"""Every mutation turns its examples into what it says, and leaves alone what it says it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fastlora_verify.mutations.base import Example, Mutation
from fastlora_verify.mutations.example import part_of, parts, run_example, with_part
from fastlora_verify.mutations.example_kernels import KERNELS
from fastlora_verify.mutations.registry import MUTATIONS

CASES = [
    pytest.param(mutation, example, id=f"{mutation.id}-{example.kernel}-{example.where}-{i}")
    for mutation in MUTATIONS
    for i, example in enumerate(mutation.examples)
]


@pytest.mark.parametrize(("mutation", "example"), CASES)
def test_an_example_becomes_what_it_says(mutation: Mutation, example: Example) -> None:
    outcome = run_example(mutation, example)
    assert outcome.faults == ()
    assert outcome.before.strip() == example.before
    if example.after is None:
        assert outcome.parts == ()
    else:
        assert example.after in [part.strip("\n") for part in outcome.parts]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.id)
def test_a_mutation_says_what_it_changes_and_what_it_leaves_alone(mutation: Mutation) -> None:
    assert any(example.after is not None for example in mutation.examples)
    assert any(example.after is None for example in mutation.examples)


def test_an_example_that_says_the_wrong_thing_is_found_out() -> None:
    mutation = next(m for m in MUTATIONS if m.id == "bias-dropped")
    example = next(e for e in mutation.examples if e.after is not None)
    wrong = run_example(mutation, replace(example, before="out = torch.nn.functional.linear(inp, dense)"))
    assert wrong.parts == ()


def test_an_unknown_part_is_named_with_the_known_ones() -> None:
    with pytest.raises(LookupError, match="no part is named 'backward' among"):
        run_example(MUTATIONS[0], Example("backward", "pass", None))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_part_put_back_gives_the_kernel(kernel: str) -> None:
    text, _ = KERNELS[kernel]
    for name, body in parts(kernel).items():
        assert part_of(with_part(text, name, body), name) == body
