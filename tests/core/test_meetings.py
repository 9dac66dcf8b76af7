"""Rules whose keys can meet are found, with a key that both make; others are never refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupflow.core.errors import ConfigError, Unroutable
from groupflow.core.meetings import problems_of_meetings
from groupflow.core.routing import Message, Router
from groupflow.core.settings import Settings
from groupflow.core.settings_load import load_settings

CRM = {"app": "crm", "tenants": [42, 43], "key": "{meta_obj_name}:{tenant_id}"}


def meetings(*rules: dict[str, Any], **sections: Any) -> list[str]:
    checked = Settings.model_validate({"groups": list(rules), **sections})
    return [problem.remedy for problem in problems_of_meetings(checked)]


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
@settings(max_examples=150, deadline=None)
def test_what_is_left_alone_never_meets(
    one: dict[str, Any], other: dict[str, Any], messages: list[tuple[str, ...]]
) -> None:
    """Random messages never share a key between two rules that nothing was said of."""
    try:
        checked = Settings.model_validate({"groups": [one, other]})
    except ValueError:
        return  # a template that can't be
    if problems_of_meetings(checked):
        return
    router = Router(checked)
    made: dict[str, str] = {}
    for x, y, tenant, app in messages:
        body = {"type": "t", "x": x, "y": y, "tenant_id": tenant, "app_name": app}
        try:
            route = router.route(Message(orjson.dumps(body)))
        except Unroutable:
            continue
        if route.group is not None and route.rule is not None:
            assert made.setdefault(route.group, route.rule) == route.rule, route.group


def test_a_tenant_that_names_another_s_group_is_not_among_them() -> None:
    """The two rules as they were seen: they routed two applications' messages to one group."""
    crm, a = CRM, {"app": "a", "key": "{tenant_id}", "on_dead": "park"}
    router = Router(Settings.model_validate({"groups": [crm, a]}))
    bodies = [
        {"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact"},
        {"app_name": "a", "tenant_id": "contact:42"},
    ]
    routes = [router.route(Message(orjson.dumps(body), type="t")) for body in bodies]
    assert [route.group for route in routes] == ["contact:42", "contact:42"]
    assert meetings(crm, a) != []
