"""The parts of the reference that are written from the code: commands, settings, client options, APIs, rights.

`python -m deploy.docs_site.reference` writes each behind its marker `<!-- generated: NAME -->`, to the next marker
`<!-- end -->`. The text is committed, because the reference is read in the repository, too; a test compares it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import click

from fencepost.broker.config.broker_config import SETTINGS
from fencepost.broker.config.fields import Setting, Update, format_value
from fencepost.broker.config.group_settings import GROUP_SETTINGS
from fencepost.broker.config.topic_settings import TOPIC_SETTINGS
from fencepost.broker.config.without_effect import NO_EFFECT, WITHOUT_EFFECT
from fencepost.broker.security.rights import ANY_NAME, RIGHTS, VERSION_MAX, Effect, Right
from fencepost.cli.main import cli
from fencepost.client.config import ProducerConfig, TransactionalProducerConfig
from fencepost.client.config_names import keyword_of
from fencepost.client.config_parsing import NEEDED, ROLES, defaults_of, meanings_of, names_of
from fencepost.protocol.registry import API_BY_KEY, Api

HELP_WIDTH = 90
DOCS = Path(__file__).resolve().parents[2] / "docs"
PART = re.compile(r"^(<!-- generated: ([a-z-]+) -->\n).*?^(?=<!-- end -->$)", re.MULTILINE | re.DOTALL)


def commands() -> str:
    """Every command, with what `--help` prints."""
    return "\n".join(f"{heading} `{name}`\n\n```text\n{text}\n```\n" for heading, name, text in _helps(cli, None, 2))


def _helps(command: click.Command, parent: click.Context | None, level: int) -> Iterator[tuple[str, str, str]]:
    name = "fencepost" if parent is None else command.name
    context = click.Context(
        command, parent=parent, info_name=name, terminal_width=HELP_WIDTH, help_option_names=["-h", "--help"]
    )
    yield "#" * level, context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                yield from _helps(found, context, min(level + 1, 3))


def broker_settings() -> str:
    """The settings of the broker that have an effect, each under a heading, which the search of the site finds."""
    with_effect = (one for one in SETTINGS.values() if not one.doc.startswith(NO_EFFECT))
    return "\n\n".join(_meaning(one) for one in sorted(with_effect, key=lambda one: one.name))


def _meaning(setting: Setting, *notes: str) -> str:
    facts = [_cell(setting.expected), f"default {_default(setting)}", *notes]
    if setting.update is Update.CLUSTER_WIDE:
        facts.append("can change at run time")
    if setting.ours:
        facts.append("ours")
    return f"### `{setting.name}`\n\n{_cell(setting.doc)}\n<br>*{', '.join(facts)}*"


def settings_without_effect() -> str:
    """Kafka's settings that are accepted and do nothing."""
    idle = {name: one for name, one in SETTINGS.items() if one.doc.startswith(NO_EFFECT)} | dict(WITHOUT_EFFECT)
    rows = [f"| `{name}` | {idle[name].doc.removeprefix(NO_EFFECT)} |" for name in sorted(idle)]
    return "\n".join(["| setting | why it has no effect |", "|---|---|", *rows])


def topic_settings() -> str:
    """The settings of one topic, with the broker's setting that holds where a topic has none."""
    found = []
    for _, (setting, synonyms, internal) in sorted(TOPIC_SETTINGS.items()):
        behind = [f"behind it {' and '.join(f'`{one.name}`' for one in synonyms)}"] if synonyms else []
        if not internal:
            found.append(_meaning(setting, *behind))
    return "\n\n".join(found)


def group_settings() -> str:
    """The settings of one group, with the broker's setting that holds where a group has none."""
    return "\n\n".join(
        _meaning(setting, *(() if behind is None else (f"behind it `{behind}`",)))
        for setting, behind in GROUP_SETTINGS.values()
    )


def _default(setting: Setting) -> str:
    text = format_value(setting.default)
    return f"`{_cell(text)}`" if text else "none"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def client_options() -> str:
    """The options of the client, its producers and its consumers."""
    return "\n\n".join(f"## Options of {role}\n\n{_options(kind)}" for kind, role in _roles().items())


def _roles() -> Mapping[type, str]:
    return {kind: f"`{role}`" if "." in role else role for kind, role in ROLES.items()}


def _options(kind: type) -> str:
    defaults, meanings = defaults_of(kind), meanings_of(kind)
    rows = []
    for name in names_of(kind):
        keyword = keyword_of(name)
        only = " (transactional)" if kind is TransactionalProducerConfig and name not in _PRODUCER else ""
        default = defaults[keyword] if defaults[keyword] == NEEDED else f"`{defaults[keyword]}`"
        rows.append(f"| `{keyword}`{only} | {_cell(meanings[keyword])} | {default} | `{name.replace('_', '.')}` |")
    return "\n".join(["| option | meaning | default | name in properties |", "|---|---|---|---|", *rows])


_PRODUCER = names_of(ProducerConfig)


def apis() -> str:
    """The APIs that the broker serves, with their versions."""
    rows = [
        f"| {int(key)} | {api.name} | {_versions(api.advertised)} | {_versions(api.served)} | {_unstable(api)} |"
        for key, api in sorted(API_BY_KEY.items())
    ]
    return "\n".join(["| key | API | advertised | answered | unstable |", "|---:|---|---|---|---|", *rows])


def _versions(both: tuple[int, int]) -> str:
    low, high = both
    if high < low:
        return "none"
    return str(low) if low == high else f"{low} to {high}"


def _unstable(api: Api) -> str:
    return "" if api.unstable is None else str(api.unstable)


EFFECTS = {
    Effect.REQUEST: "the request is refused",
    Effect.ENTRY: "the entry is refused",
    Effect.HIDDEN: "left out",
    Effect.FIELD: "the field is 0",
    Effect.OTHER: "instead of the next",
}


def rights() -> str:
    """The rights that each version of each API needs."""
    rows = []
    for key, needed in sorted(RIGHTS.items()):
        for right in needed:
            cells = [key.api_name, _versions_with(right), right.operation.name, _resource(right)]
            rows.append(f"| {' | '.join([*cells, _refusal(right)])} |")
        if not needed:
            rows.append(f"| {key.api_name} | all | none | | |")
    return "\n".join(["| API | versions | operation | resource | without it |", "|---|---|---|---|---|", *rows])


def _versions_with(right: Right) -> str:
    if right.until < VERSION_MAX:
        return _versions((right.since, right.until))
    return f"{right.since} and later" if right.since else "all"


def _resource(right: Right) -> str:
    name = f" in `{right.of}`" if right.of and right.of.isidentifier() and right.of != ANY_NAME else ""
    name = name or (f" ({right.of})" if right.of else "")
    condition = f"; if `{right.if_set}` is set" if right.if_set else ""
    condition = f"; if `{right.if_null}` is null" if right.if_null else condition
    return f"{right.kind.name}{name}{condition}"


def _refusal(right: Right) -> str:
    error = f": {right.error.name}" if right.error else ""
    note = f" ({right.note})" if right.note else ""
    return f"{EFFECTS[right.effect]}{error}{note}"


GENERATED: dict[str, Callable[[], str]] = {
    "commands": commands,
    "broker-settings": broker_settings,
    "settings-without-effect": settings_without_effect,
    "topic-settings": topic_settings,
    "group-settings": group_settings,
    "client-options": client_options,
    "apis": apis,
    "rights": rights,
}
"""Each by the name that a page gives in its marker."""


def written(page: str) -> str:
    """A page of the reference with its parts as the code gives them now."""
    return PART.sub(lambda part: f"{part[1]}\n{GENERATED[part[2]]().strip()}\n\n", page)


if __name__ == "__main__":
    for path in sorted((DOCS / "reference").glob("*.md")):
        path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
