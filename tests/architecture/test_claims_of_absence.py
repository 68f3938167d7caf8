"""Sentences that say what there is not go out of date in silence: each is checked against APIs and settings."""

import re

import pytest

from fencepost.broker.config.broker_config import SETTINGS
from fencepost.broker.config.topic_settings import TOPIC_SETTINGS
from tests.architecture.claims_of_absence import CLAIMS, REFUTED, Claim
from tests.architecture.project_files import MARKDOWN_FILES, ROOT, name_of

SERVED = {int(path.name[3:5]) for path in (ROOT / "fencepost/broker/handlers").glob("api[0-9][0-9]_*.py")}
ALL = {**SETTINGS, **{name: entry.setting for name, entry in TOPIC_SETTINGS.items()}}
NAMES = {name for name, setting in ALL.items() if not setting.doc.startswith("No effect here")}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: f"{claim.page}: {claim.text}")
def test_what_a_page_says_is_missing_is_missing(claim: Claim) -> None:
    assert claim.text in " ".join((ROOT / claim.page).read_text(encoding="utf-8").split()), "remove it from CLAIMS, too"
    assert claim.apis or claim.settings
    assert not SERVED & {*claim.apis}
    assert not NAMES & {*claim.settings}


@pytest.mark.parametrize("text", REFUTED)
def test_pages_said_that_the_broker_lacks_what_it_has(text: str) -> None:
    """The guide of the client: no access rules; README, operations, security and rules: one node."""
    assert REFUTED[text] in SERVED
    found = [
        name_of(page)
        for page in MARKDOWN_FILES
        if not name_of(page).startswith(("docs/decisions/", "CHANGELOG"))
        and text in re.sub(r"\s+", " ", page.read_text(encoding="utf-8"))
    ]
    assert not found
