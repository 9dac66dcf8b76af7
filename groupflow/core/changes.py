"""What a new configuration would change, and which of it a running daemon can take over.

Values are shown as an operator may see them: passwords are hidden, and one that changed says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from groupflow.core.masking import mask_all
from groupflow.core.settings import Settings

SECTIONS_AT_ONCE = frozenset({"fields", "retry", "groups", "handlers", "log"})
SETTINGS_AT_ONCE = frozenset(
    {
        "workers.plain",
        "workers.grouped",
        "workers.drain",
        "workers.max_crashes",
        "rabbitmq.max_body",
        "rabbitmq.max_headers",
    }
)
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that differs.

    Attributes:
        setting: its dotted name; a rule goes by its name: ``groups.crm.key``.
        old: its value now; ``None`` where it isn't set.
        new: its value then, likewise.
        needs_restart: whether a running daemon can't take it over.
    """

    setting: str
    old: Any
    new: Any
    needs_restart: bool

    def as_json(self) -> dict[str, Any]:
        """The public shape."""
        return {
            "setting": self.setting,
            "old": self.old,
            "new": self.new,
            "needs_restart": self.needs_restart,
        }


def shown(settings: Settings) -> dict[str, Any]:
    """A configuration as it may be shown: passwords hidden, in every text."""
    masked: dict[str, Any] = mask_all(settings.model_dump(mode="json"))
    return masked


def compare(old: Settings, new: Settings) -> list[Change]:
    """All that differs, in the order of the file."""
    changes = compare_shown(shown(old), shown(new))
    named = {change.setting for change in changes}
    for setting in _hidden_changes(old, new):
        if setting not in named:
            changes.append(_change(setting, "(hidden)", "(another, hidden)"))
    return changes


def compare_shown(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """The same for two configurations as `shown` gave them; hidden passwords aren't compared."""
    changes = []
    before, after = dict(_flat(old)), dict(_flat(new))
    for setting in dict.fromkeys([*before, *after]):
        values = before.get(setting, _ABSENT), after.get(setting, _ABSENT)
        if values[0] != values[1]:
            changes.append(_change(setting, *(None if v is _ABSENT else v for v in values)))
    return changes


def _change(setting: str, old: Any, new: Any) -> Change:
    section = setting.partition(".")[0]
    at_once = section in SECTIONS_AT_ONCE or setting in SETTINGS_AT_ONCE
    return Change(setting, old, new, needs_restart=not at_once)


def _flat(dump: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, values in dump.items():
        if section == "groups":
            yield "groups.order", [rule["name"] for rule in values]
            for rule in values:
                for name, value in rule.items():
                    yield f"groups.{rule['name']}.{name}", value
        elif section == "handlers":
            for type_, rule in values.items():
                for name, value in rule.items():
                    yield f'handlers."{type_}".{name}', value
        else:
            for name, value in values.items():
                yield f"{section}.{name}", value


def _hidden_changes(old: Settings, new: Settings) -> Iterator[str]:
    """Where a secret differs that looks the same as shown."""
    for section in ("rabbitmq", "redis"):
        if getattr(old, section).url != getattr(new, section).url:
            yield f"{section}.url"
    for type_, rule in old.handlers.items():
        other = new.handlers.get(type_)
        if other is not None:
            for name in ("http", "exec"):
                if getattr(rule, name) != getattr(other, name):
                    yield f'handlers."{type_}".{name}'
