"""Rules whose keys can meet are found, with a key that both make; others are never refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupflow.core.errors import ConfigError, Unroutable
from groupflow.settings.load import load_settings
from groupflow.settings.meetings.search import MOST_COMPARED, Meetings, find_meetings
from groupflow.settings.meetings.witnesses import STEPS
from groupflow.settings.model import Settings

CRM = {"app": "crm", "tenants": [42, 43], "key": "{meta_obj_name}:{tenant_id}"}


def meetings(*rules: dict[str, Any], **sections: Any) -> list[str]:
    checked = Settings.model_validate({"groups": list(rules), **sections})
    return [problem.remedy for problem in find_meetings(checked).problems]


MEETING: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (CRM, {"app": "a", "key": "{tenant_id}"}, "tenant_id = 'a:42'"),
    (CRM, {"app": "crm", "key": "{meta_obj_name}"}, ":42'"),
    (CRM, {"app": "*", "key": "{meta_obj_name}:{tenant_id}"}, "tenant_id = '42'"),
    (CRM, {**CRM, "app": "erp"}, "'erp'"),
    (CRM, {"app": "a", "key": "contact:{tenant_id}"}, "'contact'"),
    (CRM, {"app": "a", "key": "{x}-{y}"}, "'a-"),
    ({"app": "a", "key": "all"}, {"app": "b", "key": "all"}, "'all'"),
    ({"app": "a", "key": "a:{x}"}, {"app": "b", "key": "{y}"}, "y = 'a:"),
    ({"app": "a", "key": "{x}é{y}"}, {"app": "b", "key": "{z}-{z2.z}é{q}"}, ""),
    ({"app": "a", "key": "{header.x}"}, {"app": "b", "key": "{y}"}, "header.x"),
    ({"app": "a", "tenants": [1], "key": "{x}:{tenant_id}"}, {"key": "{app_name}:1"}, "'a:1'"),
]
APART: list[tuple[dict[str, Any], ...]] = [
    (CRM, {"app": "crm", "key": "{meta_obj_name}:{tenant_id}"}),
    (CRM, {**CRM, "tenants": [44]}, {**CRM, "tenants": "*"}),
    ({**CRM, "key": "crm:{x}:{tenant_id}"}, {"app": "a", "key": "a:{tenant_id}"}),
    ({"app": "a", "key": "{x}:{y}"}, {"app": "b", "key": "{x}:{y}:{z}"}),
    ({"app": "a", "key": "{x}:{y}.a"}, {"app": "b", "key": "{z}:{y}.b"}),
    ({"app": "a", "tenants": [1], "key": "t{tenant_id}"}, {"tenants": [2], "key": "t{tenant_id}"}),
    ({"app": "a", "key": "{app_name}:{x}"}, {"key": "{app_name}:{y}"}),
    ({"key": "{x}"}, {"app": "a", "key": "{x}"}),  # never reached
    (CRM, {**CRM, "key": "{x}"}),  # never reached
    (CRM, {"app": "a", "key": "{tenant_id}", "shares": True}),
    ({**CRM, "shares": True}, {"app": "a", "key": "{tenant_id}"}),
]


@pytest.mark.parametrize(("one", "other", "told"), MEETING)
def test_rules_that_can_meet_are_named(
    one: dict[str, Any], other: dict[str, Any], told: str
) -> None:
    (remedy,) = meetings(one, other)
    assert "groups[0]" in remedy
    assert told.strip("'") in remedy
    assert "shares = true" in remedy


@pytest.mark.parametrize("rules", APART)
def test_rules_that_can_not_meet_are_left_alone(rules: tuple[dict[str, Any], ...]) -> None:
    assert meetings(*rules) == []


def test_the_advice_holds() -> None:
    keys: list[dict[str, Any]] = [
        {**CRM, "key": "crm:{meta_obj_name}:{tenant_id}"},
        {"app": "a", "key": "a:{tenant_id}"},
    ]
    assert (
        '"crm:{meta_obj_name}:{tenant_id}" and "a:{tenant_id}"'
        in meetings(CRM, {"app": "a", "key": "{tenant_id}"})[0]
    )
    assert meetings(*keys) == []


def test_without_applications_or_tenants_nothing_is_imagined() -> None:
    assert meetings(CRM, {"key": "{x}"}, fields={"app": ""}) == []
    assert meetings(CRM, {"app": "a", "key": "{x}:42"}, fields={"tenant": ""}) == []


def test_they_are_refused_where_they_are_loaded(tmp_path: Path) -> None:
    file = tmp_path / "groupflow.toml"
    rules = '[[groups]]\napp = "crm"\nkey = "{o}:{tenant_id}"\n[[groups]]\napp = "a"\nkey = "{x}"\n'
    file.write_text(rules)
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    assert [problem.setting for problem in caught.value.problems] == ["groups[1].key"]
    file.write_text(rules + "shares = true\n")
    assert len(load_settings(file).groups) == 2


def examined(*rules: dict[str, Any]) -> Meetings:
    named = [{"name": str(n), **rule} for n, rule in enumerate(rules)]
    return find_meetings(Settings.model_validate({"groups": named}))


def many_any_and_own() -> list[dict[str, Any]]:
    """Tenants taken out for all applications, and applications with rules of their own."""
    keys = ("{x}:{tenant_id}", "all:{tenant_id}")
    return [
        *({"tenants": [f"t{n}"], "key": keys[n % 2]} for n in range(12)),
        *({"app": f"app{n}", "key": f"app{n}:{{e}}:{{tenant_id}}"} for n in range(48)),
    ]


def a_rule_for_each_tenant() -> list[dict[str, Any]]:
    keys = ("{meta}:{tenant_id}", "{entity}:{tenant_id}")
    return [{"app": "crm", "tenants": [f"t-{n}"], "key": keys[n % 2]} for n in range(100)]


def endings_of_their_own() -> list[dict[str, Any]]:
    return [{"app": f"app{n}", "key": f"{{m}}:{{tenant_id}}:app{n}"} for n in range(30)]


def thousands_of_tenants() -> list[dict[str, Any]]:
    tenants = [f"{n * 7919:032x}" for n in range(3000)]
    return [
        {"app": "a", "tenants": tenants, "key": "{e}:{tenant_id}"},
        {"app": "a", "key": "{f}:{tenant_id}"},
    ]


@pytest.mark.parametrize(
    "rules",
    [many_any_and_own, a_rule_for_each_tenant, endings_of_their_own, thousands_of_tenants],
)
def test_rules_that_are_plainly_apart_are_told_so_in_few_steps(
    rules: Callable[[], list[dict[str, Any]]],
) -> None:
    found = examined(*rules())
    assert (found.problems, found.doubts) == ([], [])
    assert found.steps < 1000


def test_a_check_has_an_end_and_says_what_it_left() -> None:
    found = examined(*({"app": f"a{n}", "key": f"{{x}}:{{y}}:a{n}"} for n in range(300)))
    assert found.steps > MOST_COMPARED
    assert found.problems == []
    assert "too many" in found.doubts[-1]


def test_walks_have_an_end_and_what_they_left_is_named() -> None:
    spread = [f"{n * 7919:08x}-{n:04x}" for n in range(2000)]
    found = examined(
        {"app": "a", "tenants": spread, "key": "{tenant_id}-{x}"},
        {"app": "b", "tenants": spread[::-1], "key": "{y}.{z}/{tenant_id}"},
        {"app": "c", "tenants": spread, "key": "{x}-{tenant_id}"},
    )
    assert found.steps < STEPS + MOST_COMPARED
    assert any("can't be shown apart" in doubt for doubt in found.doubts)


TWICE: list[tuple[dict[str, Any], str, str]] = [
    ({"app": "crm", "key": "{e}:{e}"}, "b{y}:{z}", "'ba:ba'"),
    ({"app": "crm", "key": "{e}:{e}"}, "b{y}:{z}c", "'baac:baac'"),
    ({"app": "crm", "tenants": [2, 10], "key": "{tenant_id}:{tenant_id}"}, "{y}:{z}0", "'10:10'"),
]


@pytest.mark.parametrize(("one", "key", "shared"), TWICE)
def test_a_field_that_stands_twice_hides_no_meeting(
    one: dict[str, Any], key: str, shared: str
) -> None:
    found = examined(one, {"app": "a", "key": key})
    assert [shared in problem.remedy for problem in found.problems] == [True]
    assert found.doubts == []


def test_what_can_not_be_decided_is_a_doubt() -> None:
    found = examined({"app": "crm", "key": "{e}:{e}"}, {"app": "a", "key": "b{y}:c{z}"})
    assert found.problems == []
    (doubt,) = found.doubts
    assert "groups[1].key, 'b{y}:c{z}', can't be shown apart from groups[0].key" in doubt
    assert "shares = true" in doubt


def test_a_field_that_stands_twice_with_few_names_leaves_no_doubt() -> None:
    twice = {"app": "crm", "tenants": [1, 2], "key": "{tenant_id}:{tenant_id}"}
    found = examined(twice, {"app": "a", "key": "1{y}:2{z}"}, {"app": "b", "key": "{o}:{o.x}"})
    assert (found.problems, found.doubts) == ([], [])


def test_hundreds_of_rules_that_are_apart_are_compared() -> None:
    rules = [{**CRM, "tenants": [n], "name": str(n)} for n in range(300)]
    others = [{"app": f"a{n}", "key": f"a{n}/{{x}}:{{tenant_id}}"} for n in range(300)]
    assert meetings(*rules) == []
    assert meetings(*others) == []


FIELDS = ("{tenant_id}", "{x}", "{y}", "{app_name}")
templates = st.lists(st.sampled_from([":", "%", "a", "a:", "-"]), min_size=1, max_size=3).flatmap(
    lambda between: st.tuples(*(st.sampled_from(("", *FIELDS)) for _ in between)).map(
        lambda fields: "".join(f + b for f, b in zip(fields, between, strict=True))
    )
)
rules = st.fixed_dictionaries(
    {
        "app": st.sampled_from(["a", "b", "*"]),
        "tenants": st.sampled_from([["1"], ["1", "a"], "*"]),
        "key": templates,
    }
)
texts = st.text(st.sampled_from("a:-%13A"), min_size=1, max_size=4)


@given(rules, rules, st.lists(st.tuples(texts, texts, texts, st.sampled_from("ab3")), max_size=60))
@settings(max_examples=150)
def test_what_is_left_alone_never_meets(
    one: dict[str, Any], other: dict[str, Any], messages: list[tuple[str, ...]]
) -> None:
    """Random messages never share a key between two rules that nothing was said of."""
    try:
        checked = Settings.model_validate({"groups": [one, other]})
    except ValueError:
        return  # a template that can't be
    found = find_meetings(checked)
    if found.problems or found.doubts:
        return
    router = checked.router()
    made: dict[str, str] = {}
    for x, y, tenant, app in messages:
        body = {"type": "t", "x": x, "y": y, "tenant_id": tenant, "app_name": app}
        try:
            route = router.route(orjson.dumps(body))
        except Unroutable:
            continue
        if route.group is not None and route.rule is not None:
            assert made.setdefault(route.group, route.rule) == route.rule, route.group


def test_a_tenant_that_names_another_s_group_is_not_among_them() -> None:
    """The two rules as they were seen: they routed two applications' messages to one group."""
    crm, a = CRM, {"app": "a", "key": "{tenant_id}", "on_dead": "park"}
    router = Settings.model_validate({"groups": [crm, a]}).router()
    bodies = [
        {"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact"},
        {"app_name": "a", "tenant_id": "contact:42"},
    ]
    routes = [router.route(orjson.dumps(body), type="t") for body in bodies]
    assert [route.group for route in routes] == ["contact:42", "contact:42"]
    assert meetings(crm, a) != []
