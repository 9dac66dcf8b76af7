"""What a new configuration would change, and what of that a running daemon can take over.

Values are shown as an operator may see them: passwords are hidden, and a changed one is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from groupflow.core.masking import mask_all
from groupflow.settings.model import Settings
from groupflow.settings.types import HandlerCommand, HandlerUrl

SECTIONS_AT_ONCE = frozenset(
    {"fields", "retry", "groups", "handlers", "schedules", "pools", "log", "tenants"}
)
SETTINGS_AT_ONCE = frozenset(
    {
        "workers.plain",
        "workers.grouped",
        "workers.drain",
        "workers.max_crashes",
        "workers.max_lost_leases",
        "rabbitmq.max_body",
        "rabbitmq.max_headers",
        "rabbitmq.max_values",
    }
)
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
        for setting, value in _values(settings)
        if isinstance(value, HandlerUrl | HandlerCommand)
    }
    return {**public_values(settings), _DIGESTS: digests}


def compare(old: Settings, new: Settings) -> list[SettingChange]:
    """All that differs, in the order of the file."""
    changes = _compare_values(public_values(old), public_values(new))
    before, after = dict(_values(old)), dict(_values(new))
    different = {name for name in before if name in after and before[name] != after[name]}
    return _with_hidden(changes, [name for name in before if name in different])


def compare_reports(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[SettingChange]:
    """The same for two that `report` gave; passwords of servers aren't compared."""
    before, after = old.get(_DIGESTS, {}), new.get(_DIGESTS, {})
    different = [name for name in before if name in after and before[name] != after[name]]
    return _with_hidden(_compare_values(old, new), different)


def _compare_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[SettingChange]:
    changes = []
    before, after = dict(_flat(old)), dict(_flat(new))
    for setting in dict.fromkeys([*before, *after]):
        # A missing setting and one that isn't set are shown alike, and are alike.
        values = before.get(setting), after.get(setting)
        if values[0] != values[1]:
            changes.append(_change(setting, *values))
    return changes


def _with_hidden(changes: list[SettingChange], different: Iterable[str]) -> list[SettingChange]:
    """The changes, and behind them settings that differ although they are shown alike."""
    named = {change.setting for change in changes}
    hidden = [
        _change(setting, "(hidden)", "(another, hidden)")
        for setting in different
        if setting not in named
    ]
    return changes + hidden


def _digest(setting: str, value: HandlerUrl | HandlerCommand) -> str:
    words = [value.get_secret_value()] if isinstance(value, HandlerUrl) else list(value)
    text = "\0".join([setting, *words])
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:_DIGEST_LENGTH]


def _change(setting: str, old: Any, new: Any) -> SettingChange:
    section = setting.partition(".")[0]
    at_once = section in SECTIONS_AT_ONCE or setting in SETTINGS_AT_ONCE
    return SettingChange(setting, old, new, needs_restart=not at_once)


def _flat(dump: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, values in dump.items():
        if section == "groups":
            yield "groups.order", [rule["name"] for rule in values]
            for rule in values:
                yield from _settings(f"groups.{rule['name']}", rule)
        elif section == "handlers":
            for type_, rule in values.items():
                yield from _settings(f'handlers."{type_}"', rule)
        elif section == "schedules":
            for rule in values:
                yield from _settings(f"schedules.{rule['name']}", rule)
        elif section == "pools":
            for name, rule in values.items():
                yield from _settings(f"pools.{name}", rule)
        elif section == "tenants":
            yield from _settings(section, {n: v for n, v in values.items() if n != "named"})
            for tenant, own in values.get("named", {}).items():
                yield from _settings(f'tenants."{tenant}"', own)
        elif section != _DIGESTS:
            yield from _settings(section, values)


def _settings(section: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        yield f"{section}.{name}", value


def _values(settings: Settings) -> Iterator[tuple[str, Any]]:
    """Each setting's value by the same names, with secrets: never to be shown."""
    return _flat(
        {
            "groups": [dict(rule) for rule in settings.groups],
            "handlers": {type_: dict(rule) for type_, rule in settings.handlers.items()},
            "schedules": [dict(rule) for rule in settings.schedules],
            "pools": {name: dict(rule) for name, rule in settings.pools.items()},
            **{
                name: dict(getattr(settings, name))
                for name in Settings.model_fields
                if name not in ("groups", "handlers", "schedules", "tenants", "pools")
            },
            "tenants": {
                **dict(settings.tenants),
                "named": {name: dict(own) for name, own in settings.tenants.named.items()},
            },
        }
    )
