"""Which arms of the tests died: the parts of parameter ids that the failures have in common."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from fastlora_verify.reports.escape import code, prose

MANY = 3  # arms that a cell lists
_ID = re.compile(r"\[(.+)\]$")
_BETWEEN = re.compile(r"(?<!\bno)-(?![A-Z](?:-|$))")  # no-bias and 2-D are one part each


def arms(tests: Sequence[str], known: Sequence[str] = (), unsaid: Collection[str] = ()) -> str:
    """`the bf16 arms`, `12 of them the bf16 and fp16 arms`, the test's name if it is one, or how many tests.

    An arm is a part of the parameter id, `bf16` in `test_x[bf16-2d]`. `known` is every test known to die of
    something; an arm is named only if most of the known tests that have it died here. `unsaid` are parts that
    tell a reader nothing, such as the device.
    """
    functions = list(dict.fromkeys(map(function, tests)))
    if len(tests) == 1:
        return _name(tests[0])
    shared = _shared(tests, known, unsaid)
    if shared:
        return f"the {' '.join(shared)} arms"
    found, covered = _telling(tests, known, unsaid)
    if found and covered == len(tests):
        return f"the {_listed(found)} arms"
    if len(functions) == 2:
        groups = [[test for test in tests if function(test) == name] for name in functions]
        return " + ".join(arms(group, known, unsaid) for group in groups)
    if found and covered >= 0.6 * len(tests):
        return f"{covered} of them the {_listed(found)} arms"
    return _name(functions[0]) if len(functions) == 1 else f"in {len(functions)} tests" if functions else ""


def function(test: str) -> str:
    """A test's id without its parameters."""
    return _ID.sub("", test)


def _parts(test: str) -> tuple[str, ...]:
    match = _ID.search(test)
    return tuple(_BETWEEN.split(match[1])) if match else ()


def _shared(tests: Sequence[str], known: Sequence[str], unsaid: Collection[str]) -> list[str]:
    """Parts that all the tests have and that not all of the known ones have."""
    common = set.intersection(*(set(_parts(test)) for test in tests)) if tests else set()
    others = [set(_parts(test)) for test in known if _parts(test)]
    everywhere = set.intersection(*others) if others and not set(known) <= set(tests) else set()
    return _safe([part for part in _parts(tests[0]) if part in common - everywhere - set(unsaid)] if tests else [])


def _telling(tests: Sequence[str], known: Sequence[str], unsaid: Collection[str]) -> tuple[list[str], int]:
    """A few parts whose tests nearly all died, where others lived, and how many tests have one of them."""
    functions = {function(test) for test in tests}
    beside = {test for test in known if function(test) in functions} - set(tests)
    if not beside:
        return [], 0
    died = Counter(part for test in tests for part in set(_parts(test)))
    had = died + Counter(part for test in beside for part in set(_parts(test)))
    telling = [p for p, n in died.most_common() if n >= 2 and n >= 0.8 * had[p] and p not in unsaid]
    left, found = set(tests), list[str]()
    for part in telling:
        new = {test for test in left if part in _parts(test)}
        if len(found) < MANY and len(new) >= 0.2 * len(tests):
            found.append(part)
            left -= new
    return _safe(found), len(tests) - len(left)


def _safe(parts: Sequence[str]) -> list[str]:
    return [prose(part, 24) for part in dict.fromkeys(parts)]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _name(test: str) -> str:
    return code(test.partition("::")[2] or test, 80)
