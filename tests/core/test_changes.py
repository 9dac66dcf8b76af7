"""What a new configuration changes, and which of it needs a restart."""

from __future__ import annotations

from typing import Any

import orjson

from groupflow.core.changes import compare, compare_shown, shown
from groupflow.core.settings import Settings

RULE: dict[str, Any] = {"name": "crm", "app": "crm", "key": "{entity}"}


def changed(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any, bool]]:
    changes = compare(Settings(**old), Settings(**new))
    return {c.setting: (c.old, c.new, c.needs_restart) for c in changes}


def test_nothing_changes() -> None:
    assert changed({"groups": [RULE]}, {"groups": [RULE]}) == {}


def test_settings() -> None:
    assert changed({}, {"workers": {"grouped": 4, "lease": 9.0}, "retry": {"jitter": 0.5}}) == {
        "workers.grouped": (16, 4, False),
        "workers.lease": (8.0, 9.0, True),
        "retry.jitter": (0.0, 0.5, False),
    }


def test_every_setting_is_at_once_or_needs_a_restart() -> None:
    """The sections whose settings all hold at once, and those of the others that do."""
    at_once = {"fields", "retry", "log"}
    for section, model in Settings.model_fields.items():
        default = getattr(Settings(), section)
        if section in ("groups", "handlers"):
            continue
        for name in type(default).model_fields:
            old = {section: {name: None}}
            new = {section: {name: "other"}}
            (change,) = compare_shown(_as_dump(old), _as_dump(new))
            allowed = section in at_once or f"{section}.{name}" in {
                "workers.plain",
                "workers.grouped",
                "workers.drain",
                "workers.max_crashes",
                "rabbitmq.max_body",
                "rabbitmq.max_headers",
            }
            assert change.needs_restart is not allowed, change
        assert model is not None


def _as_dump(some: dict[str, Any]) -> dict[str, Any]:
    return {"groups": [], "handlers": {}, **some}


def test_rules_go_by_their_names() -> None:
    """A new one, one that is gone, one that moved, one whose key is another."""
    second = {"name": "all", "key": "{tenant_id}"}
    moved = changed({"groups": [RULE, second]}, {"groups": [second, RULE]})
    assert moved == {"groups.order": (["crm", "all"], ["all", "crm"], False)}
    other = changed({"groups": [RULE]}, {"groups": [{**RULE, "key": "x"}]})
    assert other == {"groups.crm.key": ("{entity}", "x", False)}
    gone = changed({"groups": [RULE, second]}, {"groups": [RULE]})
    assert gone["groups.order"] == (["crm", "all"], ["crm"], False)
    assert gone["groups.all.key"] == ("{tenant_id}", None, False)


def test_passwords_are_compared_and_never_shown() -> None:
    found = changed(
        {
            "redis": {"url": "redis://:one@h/0"},
            "handlers": {"t": {"exec": ["x", "http://u:three@h/"]}},
        },
        {
            "redis": {"url": "redis://:two@h/0"},
            "handlers": {"t": {"exec": ["x", "http://u:four@h/"]}},
        },
    )
    assert set(found) == {"redis.url", 'handlers."t".exec'}
    assert found["redis.url"][2] is True
    for secret in ("one", "two", "three", "four"):
        assert secret not in str(found)


def test_what_is_shown_survives_the_store() -> None:
    """A daemon's word, packed and read again, is the same as the configuration's own."""
    settings = Settings(groups=[RULE], handlers={"t": {"http": "http://u:p@h/"}})
    told = orjson.loads(orjson.dumps(shown(settings)))
    assert compare_shown(told, shown(settings)) == []
    assert "u:p@" not in str(told)
