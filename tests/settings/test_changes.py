"""What a new configuration changes, and which of it needs a restart."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from groupflow.settings.changes import compare, compare_reports, public_values, report
from groupflow.settings.model import Settings

RULE: dict[str, Any] = {"name": "crm", "app": "crm", "key": "{entity}"}


def changed(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Any, Any, bool]]:
    changes = compare(Settings(**old), Settings(**new))
    return {c.setting: (c.old, c.new, c.needs_restart) for c in changes}


def test_settings() -> None:
    """Those that hold at once, and all others."""
    new: dict[str, Any] = {
        "workers": {"grouped": 4, "lease": 9.0},
        "rabbitmq": {"max_values": 5000, "prefetch": 8},
        **{"retry": {"jitter": 0.5}, "log": {"level": "debug"}, "redis": {"timeout": 3}},
    }
    found = changed({}, new)
    assert found["workers.grouped"] == (16, 4, False)
    restarts = {name for name, (*_, needs_restart) in found.items() if needs_restart}
    at_once = {"workers.grouped", "retry.jitter", "log.level", "rabbitmq.max_values"}
    assert found.keys() - restarts == at_once
    assert restarts >= {"workers.lease", "rabbitmq.prefetch", "redis.timeout"}


def test_a_tenants_limits_go_by_its_name() -> None:
    old = Settings.model_validate({"tenants": {"42": {"concurrency": 3}}})
    new = Settings.model_validate({"tenants": {"42": {"concurrency": 5}, "rate": "1/s"}})
    assert [(change.setting, change.old, change.new) for change in compare(old, new)] == [
        ("tenants.rate", "", "1/s"),
        ('tenants."42".concurrency', 3, 5),
    ]


def test_limits_of_types_go_by_their_patterns_and_their_order() -> None:
    one, two = {"concurrency": 3}, {"rate": "1/s"}
    assert changed({"types": {"a": one, "b*": two}}, {"types": {"b*": two, "a": one}}) == {
        "types.order": (["a", "b*"], ["b*", "a"], False)
    }
    assert changed({"types": {"a": one}}, {"types": {"a": {"concurrency": 4}}}) == {
        'types."a".concurrency': (3, 4, False)
    }


def test_rules_go_by_their_names() -> None:
    """A new one, one that is gone, one that moved, one whose key is another."""
    assert changed({"groups": [RULE]}, {"groups": [RULE]}) == {}
    new = changed({}, {"groups": [RULE]})
    assert new["groups.crm.key"] == (None, "{entity}", False)
    assert all(old != each for old, each, _ in new.values()), new
    second = {"name": "all", "key": "{tenant_id}"}
    moved = changed({"groups": [RULE, second]}, {"groups": [second, RULE]})
    assert moved == {"groups.order": (["crm", "all"], ["all", "crm"], False)}
    other = changed({"groups": [RULE]}, {"groups": [{**RULE, "key": "x"}]})
    assert other == {"groups.crm.key": ("{entity}", "x", False)}
    gone = changed({"groups": [RULE, second]}, {"groups": [RULE]})
    assert gone["groups.order"] == (["crm", "all"], ["crm"], False)
    assert gone["groups.all.key"] == ("{tenant_id}", None, False)


def test_what_is_told_survives_the_store() -> None:
    """A daemon's word, packed and read again, is the same as the configuration's own."""
    settings = Settings(groups=[RULE], handlers={"t": {"http": "http://u:p@h/"}})
    read = orjson.loads(orjson.dumps(report(settings)))
    assert compare_reports(read, report(settings)) == []
    assert "u:p@" not in str(read)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"exec": ["x", "http://u:T0KEN@h/"]}, {"exec": ["x", "http://u:two@h/"]}),
        ({"http": "https://hooks.h/T1/B1/T0KEN"}, {"http": "https://hooks.h/T1/B1/two"}),
        ({"http": "https://h/in?access_token=T0KEN"}, {"http": "https://h/in?access_token=two"}),
        ({"http": "https://T0KEN@h/in"}, {"http": "https://two@h/in"}),
        ({"exec": ["./in", "--password=T0KEN"]}, {"exec": ["./in", "--password=two"]}),
        ({"exec": ["./T0KEN/in"]}, {"exec": ["./two/in"]}),
    ],
)
def test_a_handlers_secret_that_changed_is_noticed_and_not_shown(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    """Between two files, and between a file and what a daemon tells: without telling it."""
    before, after = (Settings(handlers={"t": each}) for each in (old, new))
    (name,) = old
    for changes in (compare(before, after), compare_reports(report(before), report(after))):
        (change,) = changes
        assert change.setting == f'handlers."t".{name}'
        assert (change.old, change.new) == ("(hidden)", "(another, hidden)")
        assert "two" not in str(change)
    for dump in (
        str(report(before)),
        str(public_values(before)),
        repr(before),
        str(before.model_dump()),
    ):
        assert "T0KEN" not in dump


@pytest.mark.parametrize(
    ("section", "name", "old", "new"),
    [
        ("http", "token", "one-0123456789abcdef", "two-0123456789abcdef"),
        ("redis", "url", "redis://:one@h/0", "redis://:two@h/0"),
    ],
)
def test_a_secret_that_changed_needs_a_restart(section: str, name: str, old: str, new: str) -> None:
    found = changed({section: {name: old}}, {section: {name: new}})
    assert [*found] == [f"{section}.{name}"]
    assert found[f"{section}.{name}"][2] is True
    assert not any(secret in str(found) for secret in ("one", "two"))
