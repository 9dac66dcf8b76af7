"""What a new configuration would change, and what of that a running daemon can take over.

Values are shown as an operator may see them: passwords are hidden, and a changed one is named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from pydantic import BaseModel

from groupflow.core.masking import mask_all
from groupflow.settings.model import Settings
from groupflow.settings.types import HandlerCommand
from groupflow.settings.urls import HandlerUrl

SECTIONS_AT_ONCE = frozenset(
    {"fields", "retry", "groups", "handlers", "schedules", "pools", "log", "tenants", "types"}
)
SETTINGS_AT_ONCE = frozenset(
    {
        "workers.plain",
        "workers.grouped",
        "workers.drain",
        "workers.max_crashes",
        "workers.max_lost_leases",
        "workers.unknown_for",
        "rabbitmq.max_body",
        "rabbitmq.max_headers",
        "rabbitmq.max_values",
    }
)
_NAMED = {"groups": "%s", "schedules": "%s", "pools": "%s", "handlers": '"%s"', "types": '"%s"'}
"""How the names of a section's tables are written."""
_DIGESTS = "digests"
_DIGEST_LENGTH = 4  # hexadecimal digits: 65,536 values, too few to tell a guessed secret by


@dataclass(frozen=True, slots=True)
class SettingChange:
    setting: str  # its dotted name; a rule goes by its name: `groups.crm.key`
    old: Any  # its value now; None where it isn't set
    new: Any  # its value then; None where it isn't set
    needs_restart: bool  # whether a running daemon can't take it over

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def public_values(settings: Settings) -> dict[str, Any]:
    """A configuration without the secrets of its URLs and commands."""
    masked: dict[str, Any] = mask_all(settings.model_dump(mode="json"))
    return masked


def report(settings: Settings) -> dict[str, Any]:
    """What a daemon tells others of its configuration, for `compare_reports`.

    It has what may be shown, and a digest of each handler's secret part. The digest is so short
    that thousands of values share it: it tells that something differs, and not what it was.
    """
    digests = {
        setting: _digest(setting, value)
        for setting, value in _flat(_opened(settings))
        if isinstance(value, HandlerUrl | HandlerCommand)
    }
    return {**public_values(settings), _DIGESTS: digests}


def compare(old: Settings, new: Settings) -> list[SettingChange]:
    """All that differs, in the order of the file."""
    before, after = (dict(_flat(_opened(each))) for each in (old, new))
    return _compare(public_values(old), public_values(new), before, after)


def compare_reports(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[SettingChange]:
    """The same for two that `report` gave; passwords of servers aren't compared."""
    return _compare(old, new, old[_DIGESTS], new[_DIGESTS])


def _compare(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    hidden_before: Mapping[str, Any],
    hidden_after: Mapping[str, Any],
) -> list[SettingChange]:
    """The changes, and behind them settings that differ although they are shown alike."""
    before, after = dict(_flat(old)), dict(_flat(new))
    # A missing setting and one that isn't set are shown alike, and are alike.
    changes = [
        _change(setting, before.get(setting), after.get(setting))
        for setting in dict.fromkeys([*before, *after])
        if before.get(setting) != after.get(setting)
    ]
    shown = {change.setting for change in changes}
    return changes + [
        _change(setting, "(hidden)", "(another, hidden)")
        for setting, value in hidden_before.items()
        if setting not in shown and hidden_after.get(setting, value) != value
    ]


def _digest(setting: str, value: HandlerUrl | HandlerCommand) -> str:
    words = [value.get_secret_value()] if isinstance(value, HandlerUrl) else list(value)
    text = "\0".join([setting, *words])
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_LENGTH]


def _change(setting: str, old: Any, new: Any) -> SettingChange:
    section = setting.partition(".")[0]
    at_once = section in SECTIONS_AT_ONCE or setting in SETTINGS_AT_ONCE
    return SettingChange(setting, old, new, needs_restart=not at_once)


def _opened(value: Any) -> Any:
    """A section as a dump has it, but with its secrets: never to be shown."""
    if isinstance(value, BaseModel | dict):
        return {name: _opened(each) for name, each in dict(value).items()}
    if isinstance(value, tuple) and not isinstance(value, HandlerCommand):
        return [_opened(each) for each in value]
    return value


def _flat(dump: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Each setting by its dotted name."""
    for section, values in dump.items():
        for table, settings in _tables(section, values).items():
            for name, value in settings.items():
                yield f"{table}.{name}", value


def _tables(section: str, values: Any) -> dict[str, Mapping[str, Any]]:
    """The tables of a section by their names; the order of groups, and of types, is one too."""
    if section == "tenants":
        named = {f'tenants."{name}"': own for name, own in values["named"].items()}
        return {section: {n: v for n, v in values.items() if n != "named"}, **named}
    if section not in _NAMED:
        return {} if section == _DIGESTS else {section: values}
    rules = values if isinstance(values, Mapping) else {rule["name"]: rule for rule in values}
    is_ordered = section == "groups" or (section == "types" and rules)
    order = {section: {"order": [*rules]}} if is_ordered else {}
    return {**order, **{f"{section}.{_NAMED[section] % name}": rules[name] for name in rules}}
