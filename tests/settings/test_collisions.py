"""Key collisions are refused, and no accepted rules collide."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from itertools import product
from typing import Any
from urllib.parse import unquote

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupflow.core.errors import Unroutable
from groupflow.core.routing import Router
from groupflow.core.template import FieldPath, Template
from groupflow.settings.collisions import find_collisions
from groupflow.settings.model import Settings

KEYS = ("{x}:{tenant_id}", "all:{tenant_id}")
CRM = {"app": "crm", "tenants": [42, 43], "key": "{meta_obj_name}:{tenant_id}"}


def collisions(*rules: dict[str, Any], **sections: Any) -> list[str]:
    checked = Settings.model_validate({"groups": list(rules), **sections})
    return [problem.remedy for problem in find_collisions(checked)]


NOTHING = "Nothing tells its keys from those of groups[0], "
COLLIDING: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (CRM, {"app": "a", "key": "{tenant_id}"}, "tenant_id = 'x:42'"),
    (CRM, {"app": "crm", "key": "{meta_obj_name}"}, ":42'"),
    (CRM, {"app": "*", "key": "{meta_obj_name}:{tenant_id}"}, "tenant_id = '42'"),
    (CRM, {**CRM, "app": "erp"}, "'erp'"),
    (CRM, {"app": "a", "key": "contact:{tenant_id}"}, "'contact:42'"),
    (CRM, {"app": "a", "key": "{x}-{y}"}, "'x-"),
    ({"app": "a", "key": "all"}, {"app": "b", "key": "all"}, "'all'"),
    ({"app": "a", "key": "a:{x}"}, {"app": "b", "key": "{y}"}, "y = 'a:x'"),
    ({"app": "a", "key": "{x}é{y}"}, {"app": "b", "key": "{z}-{z2.z}é{q}"}, ""),
    ({"app": "a", "key": "{header.x}"}, {"app": "b", "key": "{y}"}, "header.x"),
    ({"app": "a", "tenants": [1], "key": "{x}:{tenant_id}"}, {"key": "{app_name}:1"}, "'x:1'"),
    ({"app": "a", "key": "o:{x}:{y}"}, {"key": "{app_name}:{x}:{y}"}, "'o:x:x'"),
    ({"tenants": ["a:b", "c"], "key": "o:{tenant_id}"}, {"key": "{x}:{y}:{z}"}, "'o:a:b'"),
    ({"tenants": [12, 34], "key": "{x}-{tenant_id}"}, {"key": "{y}2"}, "-12'"),
    ({"tenants": ["a:b", "c"], "key": "{x}:{tenant_id}"}, {"key": "{y}:a%3Ab"}, "a%3Ab'"),
    ({**CRM, "app": "a:b"}, {"app": "a", "key": "{x}"}, '"rule0:'),
    # … and without one, where nothing tells them apart.
    ({"app": "crm", "key": "{e}:{e}"}, {"app": "a", "key": "b{y}:c{z}"}, NOTHING),
    ({"app": "a", "key": "{x}A{y}"}, {"app": "b", "key": "{x}A{y}A{z}"}, NOTHING),
    ({"app": "crm", "key": "crm:{x}"}, {"key": "{app_name}:{x}:{tenant_id}"}, NOTHING),
]
APART: list[tuple[dict[str, Any], ...]] = [
    (CRM, {"app": "crm", "key": "{meta_obj_name}:{tenant_id}"}),
    (CRM, {**CRM, "app": "erp", "tenants": [44], "key": "{entity}:{tenant_id}"}),
    (CRM, {**CRM, "tenants": [44]}, {**CRM, "tenants": "*"}),
    ({**CRM, "key": "crm:{x}:{tenant_id}"}, {"app": "a", "key": "a:{tenant_id}"}),
    ({"app": "a", "key": "{x}:{y}"}, {"app": "b", "key": "{x}:{y}:{z}"}),
    ({"app": "a", "key": "{x}:{y}.a"}, {"app": "b", "key": "{z}:{y}.b"}),
    ({"app": "a", "tenants": [1], "key": "t{tenant_id}"}, {"tenants": [2], "key": "t{tenant_id}"}),
    ({**CRM, "key": "{tenant_id}:order:{x}"}, {"app": "a", "key": "{tenant_id}:invoice:{x}"}),
    ({"app": "a", "key": "{app_name}:{x}"}, {"key": "{app_name}:{y}"}),
    ({**CRM, "key": "crm:{x}:{tenant_id}"}, {"key": "{app_name}:{x}:{tenant_id}"}),
    (CRM, {"tenants": ["small", "tiny"], "key": "all:{tenant_id}"}),
    ({**CRM, "key": "{tenant_id}"}, {"app": "a", "key": "ledger:{account}"}),
    ({**CRM, "key": "{tenant_id}-{x}"}, {"app": "a", "key": "ledger:{account}"}),
    ({"key": "{x}"}, {"app": "a", "key": "{x}"}),  # never reached
    (CRM, {**CRM, "key": "{x}"}),  # never reached
    (CRM, {"app": "a", "key": "{tenant_id}", "shares": True}),
    ({**CRM, "shares": True}, {"app": "a", "key": "{tenant_id}"}),
    # Tenants taken out for all applications, and applications with rules of their own.
    (*({"tenants": [f"t{n}"], "key": KEYS[n % 2]} for n in range(12)),
     *({"app": f"app{n}", "key": f"app{n}:{{e}}:{{tenant_id}}"} for n in range(48))),
    # Many: a rule a tenant, endings or beginnings of their own, thousands of tenants.
    (*({"app": "crm", "tenants": [f"t-{n}"], "key": KEYS[n % 2]} for n in range(100)),),
    (*({"app": f"app{n}", "key": f"{{m}}:{{tenant_id}}:app{n}"} for n in range(30)),),
    (*({"app": f"a{n}", "key": f"a{n}/{{x}}:{{tenant_id}}"} for n in range(300)),),
    ({"app": "a", "tenants": [f"{n * 7919:032x}" for n in range(3000)], "key": "{e}:{tenant_id}"},
     {"app": "a", "key": "{f}:{tenant_id}"}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "told"), COLLIDING)
def test_a_collision_is_refused_with_a_counterexample_and_a_remedy(
    one: dict[str, Any], other: dict[str, Any], told: str
) -> None:
    """Either remedy holds."""
    (remedy,) = collisions(one, other)
    assert "groups[0]" in remedy
    assert told in remedy
    assert told is NOTHING or "is made of" in remedy
    keys = re.search('such as "(.*)" and "(.*)"; or say shares = true in one', remedy)
    assert keys is not None
    assert collisions({**one, "key": keys[1]}, {**other, "key": keys[2]}) == []
    assert collisions(one, {**other, "shares": True}) == []


@pytest.mark.parametrize("rules", APART)
def test_rules_that_are_apart_are_accepted(rules: tuple[dict[str, Any], ...]) -> None:
    assert collisions(*rules) == []


def test_ten_are_named_and_none_of_rules_that_no_message_reaches() -> None:
    rules = [{"app": f"a{n}", "key": "{x}"} for n in range(300)]
    assert len(collisions(*rules)) == 10
    assert collisions(CRM, {"key": "{x}"}, fields={"app": ""}) == []
    assert collisions(CRM, {"app": "a", "key": "{x}:42"}, fields={"tenant": ""}) == []


FIELDS = ("{tenant_id}", "{x}", "{y}", "{app_name}", "{header.h}")
TEXTS = (":", "-", "%", "a", "a:", "A", "2", "é", ":c:")
keys = st.lists(
    st.tuples(st.sampled_from(("", *TEXTS)), st.sampled_from(("", *FIELDS))), min_size=1, max_size=4
).map(lambda parts: "".join(text + field for text, field in parts))
rules = st.fixed_dictionaries(
    {
        "app": st.sampled_from(["a", "b", "*"]),
        "tenants": st.sampled_from([["1"], ["1", "a"], ["2", ":"], "*"]),
        "key": keys,
    }
)
values = st.text(st.sampled_from("a:-%2Ac3é"), min_size=1, max_size=4)


@given(
    st.lists(rules, min_size=2, max_size=3),
    st.lists(st.fixed_dictionaries(dict.fromkeys(FIELDS, values)), min_size=1, max_size=8),
)
@settings(max_examples=400)
def test_accepted_rules_never_make_one_key(
    configured: list[dict[str, str]], messages: list[dict[str, str]]
) -> None:
    """Read each key that one rule makes as a key of the others, in all ways."""
    try:
        checked = Settings.model_validate({"groups": configured})
    except ValueError:
        return  # a template that can't be
    if find_collisions(checked):
        return
    router = checked.router()
    templates = [Template.parse(rule.key) for rule in checked.groups]
    for owner, fields in product(owners(), messages):
        made = route({**fields, **owner}, router)
        if made is None:
            continue
        for template in templates:
            for read in readings(template.parts, made[0]):
                texts = [unquote(text) if template.escapes else text for text in read]
                again = dict(zip(map(str, template.fields), texts, strict=True))
                for another in owners(but=again):
                    other = route({**fields, **another, **again}, router)
                    assert other is None or other[0] != made[0] or other == made, (made, other)


def owners(but: Container[str] = ()) -> list[dict[str, str]]:
    """Applications and tenants of messages, without the fields that are given."""
    texts = {"{app_name}": "abo", "{tenant_id}": "12a:t"}
    left = {name: each for name, each in texts.items() if name not in but}
    return [dict(zip(left, each, strict=True)) for each in product(*left.values())]


def readings(parts: Sequence[str | FieldPath], key: str) -> Iterator[list[str]]:
    """All texts of fields with which these parts may be this key."""
    if not parts:
        if not key:
            yield []
        return
    first, rest = parts[0], parts[1:]
    if isinstance(first, str):
        if key.startswith(first):
            yield from readings(rest, key.removeprefix(first))
        return
    for end in range(1, len(key) + 1):
        for others in readings(rest, key[end:]):
            yield [key[:end], *others]


def route(fields: dict[str, str], router: Router) -> tuple[str, str] | None:
    """The key and the rule of a message with these fields."""
    body = {name.strip("{}"): text for name, text in fields.items() if name != "{header.h}"}
    try:
        made = router.route(orjson.dumps(body), {"h": fields["{header.h}"]}, type="t")
    except Unroutable:
        return None
    return (made.group, made.rule) if made.group is not None and made.rule is not None else None
