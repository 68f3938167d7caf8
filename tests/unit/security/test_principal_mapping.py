"""`ssl.principal.mapping.rules`, held to the examples of Kafka's SslPrincipalMapperTest (KIP-371)."""

import pytest

from fencepost.broker.security.principal_mapping import NoMatchingRule, PrincipalMapper


@pytest.mark.parametrize(
    "rules",
    [
        "DEFAULT",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
        "RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/U",
        "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
        "RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/",
    ],
)
def test_valid_rules(rules: str) -> None:
    assert str(PrincipalMapper(rules)).startswith(rules.partition("/")[0])


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
    ],
)
def test_invalid_rules(rules: str) -> None:
    with pytest.raises(ValueError, match="is not DEFAULT or RULE:pattern/replacement/"):
        PrincipalMapper(rules)


def test_a_pattern_that_only_java_compiles() -> None:
    with pytest.raises(ValueError, match="is not a regular expression"):
        PrincipalMapper(r"RULE:CN=(\p{Upper}+)/$1/")


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_decides(subject: str, name: str) -> None:
    rules = [
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    ]
    assert PrincipalMapper(", ".join(rules)).name(subject) == name


@pytest.mark.parametrize(
    ("expected", "rules"),
    [
        ("", ""),
        ("DEFAULT", "DEFAULT"),
        ("RULE:/", "RULE://"),
        ("RULE:/.*", "RULE:/.*/"),
        ("RULE:/.*/L", "RULE:/.*/L"),
        ("RULE:/, DEFAULT", "RULE://,DEFAULT"),
        ("RULE:/, DEFAULT", "  RULE:// ,  DEFAULT  "),
        ("RULE:   /     , DEFAULT", "  RULE:   /     / ,  DEFAULT  "),
        ("RULE:  /     /U, DEFAULT", "  RULE:  /     /U   ,DEFAULT  "),
        (
            "RULE:([A-Z]*)/$1/U, RULE:([a-z]+)/$1, DEFAULT",
            "  RULE:([A-Z]*)/$1/U   ,RULE:([a-z]+)/$1/,   DEFAULT  ",
        ),
        ("", ",   , , ,      , , ,   "),
        ("RULE:/, DEFAULT", ",,RULE://,,,DEFAULT,,"),
        ("RULE: /   , DEFAULT", ",  , RULE: /   /    ,,,   DEFAULT, ,   "),
        ("RULE:   /  /U, DEFAULT", "     ,  , RULE:   /  /U    ,,  ,DEFAULT, ,"),
        (r"RULE:\/\\\(\)\n\t/\/\/", r"RULE:\/\\\(\)\n\t/\/\//"),
        (r"RULE:\**\/+/*/L, RULE:\/*\**/**", r"RULE:\**\/+/*/L,RULE:\/*\**/**/"),
        (
            r"RULE:,RULE:,/,RULE:,\//U, RULE:,/RULE:,, RULE:,RULE:,/L,RULE:,/L, RULE:, DEFAULT, /DEFAULT, DEFAULT",
            r"RULE:,RULE:,/,RULE:,\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,RULE:, DEFAULT, /DEFAULT/,DEFAULT",
        ),
    ],
)
def test_where_one_rule_ends_and_the_next_begins(expected: str, rules: str) -> None:
    assert str(PrincipalMapper(rules)) == expected


def test_a_comma_within_a_name() -> None:
    mapper = PrincipalMapper(r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT")
    assert mapper.name(r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz") == r"Tkac\, Adam"


def test_references_to_groups() -> None:
    """A reference to a group that does not exist is text, and `$10` is group 1 and a 0 where there are fewer."""
    assert PrincipalMapper(r"RULE:CN=(\w+)/$1@$4/").name("CN=duke") == "duke@$4"
    assert PrincipalMapper(r"RULE:CN=(\w+)/$10/").name("CN=duke") == "duke0"
    assert PrincipalMapper(r"RULE:CN=(\w+)/\$1/").name("CN=duke") == "$1"


def test_no_rule_matches() -> None:
    with pytest.raises(NoMatchingRule, match="matches the certificate's subject 'CN=duke'"):
        PrincipalMapper("RULE:^OU=.*$/x/").name("CN=duke")
