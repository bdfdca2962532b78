"""What stands behind the `@`."""

import pytest

from tests.registry.samples import BASE, digest_of
from turnout.core.errors import InvalidRequest, ModelNotFound
from turnout.core.identity import Digest
from turnout.routing.selectors import check_alias, check_semantic_version, select_version
from turnout.routing.snapshot import Adapter, VersionSummary

TWINS = (Digest("sha256:" + "abcd" * 16), Digest("sha256:" + "abcd" * 15 + "0000"))
ADAPTER = Adapter(
    id=1,
    tenant="acme",
    name="legal",
    public=False,
    shared_with=frozenset(),
    last_number=5,
    created_at=0,
    versions=(
        VersionSummary(1, "1.0.0", TWINS[0], BASE, 0),
        VersionSummary(2, None, TWINS[1], BASE, 0),
        VersionSummary(4, "2.0.0-rc.1+build", digest_of("four"), BASE, 0),
    ),
    aliases={"production": 2},
)


@pytest.mark.parametrize(
    ("selector", "number"),
    [
        ("1", 1),
        ("4", 4),
        ("1.0.0", 1),
        ("2.0.0-rc.1+build", 4),
        ("production", 2),
        (TWINS[0], 1),
        (TWINS[1], 2),
        (digest_of("four")[:11], 4),
    ],
)
def test_a_version_is_selected(selector: str, number: int) -> None:
    assert select_version(ADAPTER, selector).number == number


@pytest.mark.parametrize(
    "selector",
    [
        "3",
        "5",
        "0",
        "01",
        "-1",
        "99999999999999999999",
        "v1",
        "1.0",
        "2.0.0",
        "staging",
        "",
        "sha256:ffff",
        "sha256:",
        "٣",
    ],
)
def test_what_means_no_version_is_not_found(selector: str) -> None:
    with pytest.raises(ModelNotFound, match="acme/legal has no version or alias"):
        select_version(ADAPTER, selector)


@pytest.mark.parametrize(("selector", "words"), [("sha256:abcd", "more than one"), ("sha256:abc", "at least 4")])
def test_a_digest_prefix_must_be_plain(selector: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        select_version(ADAPTER, selector)


@pytest.mark.parametrize("alias", ["production", "a", "eu-west.blue_2", "v", "vv1", "a" * 63, "v1.2"])
def test_an_alias_may_be(alias: str) -> None:
    check_alias(alias)


@pytest.mark.parametrize(
    "alias",
    ["", "Production", "1", "v1", "v007", "1.0.0", "sha256", "sha256-x", "_a", "a@b", "a/b", "a b", "a\n", "a" * 64],
)
def test_an_alias_may_not_be(alias: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be an alias"):
        check_alias(alias)


@pytest.mark.parametrize(
    "text", ["0.0.0", "1.2.3", "10.20.30", "1.0.0-alpha.1", "1.0.0-0.3.7", "1.0.0-x-y--z", "1.0.0+001", "1.0.0-a+b.c"]
)
def test_a_semantic_version_may_be(text: str) -> None:
    check_semantic_version(text)


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3-a..b", "1.2.3+", "1.2.3 ", "1.2.3-" + "a" * 128],
)
def test_a_semantic_version_may_not_be(text: str) -> None:
    with pytest.raises(InvalidRequest, match="not a semantic version"):
        check_semantic_version(text)
