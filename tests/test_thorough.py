"""Which cases of a parametrized end-to-end test `npm test` leaves out."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from e2e.thorough import mark_cases


@dataclass(eq=False)
class Item:
    """What `mark_cases` asks of a collected test."""

    nodeid: str
    quick: tuple[str, ...] = ()
    marks: list[str] = field(default_factory=list)

    @property
    def name(self):
        return self.nodeid.partition("::")[2]

    def get_closest_marker(self, name):
        return SimpleNamespace(args=self.quick) if self.quick and name == "quick" else None

    def add_marker(self, marker):
        self.marks.append(marker)


ALL = SimpleNamespace(args=["e2e"])


def thorough(items, config=ALL):
    mark_cases(config, items)
    return [item.nodeid for item in items if "thorough" in item.marks]


def test_cases_that_no_pattern_fits_are_thorough():
    cases = ["a.py::test[chromium-1-x]", "a.py::test[chromium-2-x]", "a.py::test[chromium-2-y]"]
    items = [Item(case, ("1-x", "*-y")) for case in cases]
    assert thorough([*items, Item("a.py::test_other[chromium-2-x]"), Item("a.py::plain")]) == [cases[1]]


def test_the_browsers_name_may_stand_anywhere():
    assert thorough([Item("a.py::test[wide-chromium-Text]", ("wide-Text",))]) == []


def test_a_pattern_that_fits_no_case_is_refused():
    items = [Item("a.py::test[chromium-1]", ("1", "3"))]
    with pytest.raises(pytest.UsageError, match=r"a\.py::test has no case '3'"):
        thorough(items)
    assert thorough(items, SimpleNamespace(args=["a.py::test[chromium-1]"])) == []
