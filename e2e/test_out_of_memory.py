"""No room for a buffer in a real device, in every family of kernels: an error names it, then all goes on."""

import re

import pytest

from e2e.page.families import FAMILIES
from e2e.page.lack import lack


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_fails_by_name_and_the_next_one_is_right(lab, family):
    answers = lab.call(lack, family)
    assert len(answers) == 3
    for answer in answers:
        assert re.match(r"GPU(OutOfMemory|Validation)Error: .* of [\d,]+ bytes: ", answer["error"]), answer
        assert answer["bytes"] == 0
        assert answer["again"]
