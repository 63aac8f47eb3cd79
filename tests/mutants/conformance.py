"""The suite's verdict on the reference and its sound variants, in a test for each campaign. For mutants alone.

`BUCKETPROOF_TARGETS` names the targets, and `BUCKETPROOF_EXAMPLES` says how many plans are drawn for each campaign.
"""

from __future__ import annotations

import os

import pytest

from bucketproof.properties import Profile, cells, judge
from bucketproof.targets import resolve

TARGETS = os.environ["BUCKETPROOF_TARGETS"].split()
PROFILE = Profile("smoke", int(os.environ["BUCKETPROOF_EXAMPLES"]), repeatable=True)


@pytest.mark.parametrize("campaign", sorted({cell.campaign for cell in cells()}))
@pytest.mark.parametrize("name", TARGETS)
def test_it_keeps_every_promise(name: str, campaign: str) -> None:
    target = resolve(name)

    outcomes = [judge(cell, target, PROFILE, 1) for cell in cells() if cell.campaign == campaign]

    assert not [each for each in outcomes if each.status not in ("pass", "unpromised")]
