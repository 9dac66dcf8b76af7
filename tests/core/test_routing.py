"""Routing as a table: a message and the rules in, a queue and a group, or a reason, out."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
import pytest

from groupflow.core.errors import Unroutable
from groupflow.core.routing import Route, Router
from groupflow.settings.model import Settings

SETTINGS = Settings.model_validate(
    {
        "fields": {"priority": "meta.priority", "delay": "meta.delay"},
        "groups": [
            {"name": "strict", "app": "crm", "tenants": ["acme"], "key": "strict:{tenant_id}"},
            {"name": "crm", "app": "crm", "tenants": [42, 43], "key": "{obj}:{tenant_id}"},
            {"name": "ledger", "app": "billing", "key": "{ledger.id}", "priority": 60},
            {"name": "shop", "tenants": ["shop"], "key": "all:{tenant_id}"},
        ],
    }
)
ROUTER = SETTINGS.router()
NO_RULES = Settings().router()


def route(body: Any, *, router: Router = ROUTER, **message: Any) -> Route:
    raw = body if isinstance(body, bytes) else orjson.dumps({"type": "t", "tenant_id": "x"} | body)
    return router.route(body=raw, **message)


def reason(body: Any, *, router: Router = ROUTER, **message: Any) -> str:
    with pytest.raises(Unroutable) as caught:
        route(body, router=router, **message)
    return caught.value.reason


@pytest.mark.parametrize(
    ("body", "rule", "group"),
    [
        ({"app_name": "crm", "tenant_id": 42, "obj": "contact"}, "crm", "contact:42"),
        ({"app_name": "crm", "tenant_id": "42", "obj": "contact"}, "crm", "contact:42"),
        ({"app_name": "crm", "tenant_id": "acme"}, "strict", "strict:acme"),
        ({"app_name": "crm", "tenant_id": 7}, None, None),
        ({"app_name": "CRM", "tenant_id": 42}, None, None),
        ({"app_name": "billing", "ledger": {"id": 9}}, "ledger", "9"),
        ({"app_name": "crm", "tenant_id": "shop"}, "shop", "all:shop"),
        ({"app_name": "other", "tenant_id": "shop"}, "shop", "all:shop"),
        ({"tenant_id": "shop"}, "shop", "all:shop"),
        ({"tenant_id": 42}, None, None),
        ({"app_name": None, "tenant_id": 42}, None, None),
    ],
)
def test_the_first_matching_rule_groups(
    body: dict[str, Any], rule: str | None, group: str | None
) -> None:
    found = route(body)
    assert (found.rule, found.group) == (rule, group)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "empty body"),
        (b"not json", "not JSON: "),
        (b'{"type": "t"', "line 1 column"),
        (b'{"a": "\xff"}', "not UTF-8: byte 0xff at 7"),
        (b"[" * 100_000, "depth limit"),
        (b'{"a":' * 100_000, "depth limit"),
        (b"[1, 2]", "a list of 2"),
        (b'"text"', "'text'"),
        (b"null", "None"),
        (b"12", "12"),
        ({"app_name": True}, "{app_name} is true or false"),
        (b'{"type":"t","tenant_id":123456789012345678901234567890}', "beyond 64 bits"),
        ({"tenant_id": "a\x00"}, "U+0000"),
        ({"tenant_id": "x" * 256}, "over 255 bytes"),
        ({"app_name": "crm", "tenant_id": None}, "no tenant: {tenant_id}"),
        # A rule for any application that lists tenants asks every message for its tenant.
        ({"tenant_id": None}, "rule 'shop' lists tenants"),
        ({"app_name": "crm", "tenant_id": ""}, "rule 'strict'"),
        ({"app_name": "crm", "tenant_id": 42}, "the key field {obj} of rule 'crm' is missing"),
        ({"app_name": "billing", "ledger": 4}, "{ledger.id}"),
        ({"type": ""}, "no type"),
        ({"type": None}, "no type"),
        ({"type": 5, "tenant_id": "x"}, "the type field {type} is 5"),
        ({"type": "a\nb", "tenant_id": "x"}, "U+000A"),
        ({"type": "x" * 256, "tenant_id": "x"}, "over 255 bytes"),
        ({"tenant_id": "x", "meta": {"priority": "10"}}, "a number is needed"),
        ({"tenant_id": "x", "meta": {"priority": 4e7}}, "over a year"),
        ({"tenant_id": "x", "meta": {"delay": -1}}, "below 0"),
        ({"tenant_id": "x", "meta": {"delay": 4e7}}, "over a year"),
        ({"tenant_id": "x", "meta": {"delay": True}}, "a number is needed"),
    ],
)
def test_what_cannot_be_routed_says_why(body: Any, said: str) -> None:
    found = reason(body)
    assert said in found
    assert found.isprintable()
    assert len(found) < 300


def test_without_rules_bad_json_is_still_refused() -> None:
    assert "not JSON" in reason(b"x", router=NO_RULES)
    assert route({"tenant_id": None}, router=NO_RULES) == Route(
        "t", None, None, None, None, "", 0.0, 0.0
    )


def test_the_amqp_type_wins() -> None:
    assert route({"type": "body"}, type="amqp", headers={}).type == "amqp"
    assert route({"type": "body"}, type="").type == "body"
    assert "the AMQP type" in reason({}, type="a\x1bb")


@pytest.mark.parametrize(
    ("headers", "field", "amqp", "priority"),
    [
        ({"x-priority": 5}, 7, 3, 5.0),
        ({"x-priority": "-2.5"}, 7, 3, -2.5),
        ({"x-priority": Decimal("1.5")}, None, None, 1.5),
        ({"x-priority": 0}, 7, 3, 0.0),
        ({"x-priority": None}, 7, 3, 7.0),
        ({}, 7, 3, 7.0),
        ({}, None, 3, 3.0),
        ({}, None, 0, 60.0),
        ({}, None, None, 60.0),
    ],
)
def test_priority_sources_in_order(
    headers: dict[str, Any], field: float | None, amqp: int | None, priority: float
) -> None:
    body = {"app_name": "billing", "ledger": {"id": 1}, "meta": {"priority": field}}
    assert route(body, headers=headers, priority=amqp).priority == priority


@pytest.mark.parametrize(
    ("headers", "field", "delay"),
    [
        ({"x-delay": 1500}, 7, 1.5),
        ({"x-delay": "1500"}, None, 1.5),
        ({"x-delay": -1500}, None, 0.0),
        ({"x-delay": 18446744073709521616}, None, 0.0),
        ({}, 7, 7.0),
        ({}, None, 0.0),
    ],
)
def test_delays(headers: dict[str, Any], field: float | None, delay: float) -> None:
    assert route({"meta": {"delay": field}}, headers=headers).delay == delay


@pytest.mark.parametrize(
    ("headers", "expiration", "rule", "expires"),
    [
        ({}, None, 0.0, 0.0),
        ({}, None, 60.0, 60.0),
        ({"x-expires": 5}, None, 60.0, 5.0),
        ({"x-expires": "90.5"}, None, 60.0, 60.0),
        ({"x-expires": "90.5"}, None, 0.0, 90.5),
        ({"x-expires": 5}, "4000", 60.0, 4.0),
        ({}, "0", 60.0, 0.000001),
        ({}, "1e300", 0.0, 31_536_000.0),
    ],
)
def test_the_soonest_expiry_counts(
    headers: dict[str, Any], expiration: str | None, rule: float, expires: float
) -> None:
    settings = Settings.model_validate({"groups": [{"key": "k", "expires": rule}]})
    found = settings.router().route(b"{}", headers, type="t", expiration=expiration)
    assert found.expires == expires


PRIORITIES: list[Any] = ["nan", "inf", "", "soon", True, {}, 31_536_001, b"\xff"]
DELAYS: list[Any] = [31_536_000_001, "soon", float("nan"), []]
EXPIRIES: list[Any] = [0, -1, 31_536_001, "soon", float("nan"), []]
WRONG = [
    *(("x-priority", each) for each in PRIORITIES),
    *(("x-delay", each) for each in DELAYS),
    *(("x-expires", each) for each in EXPIRIES),
]


@pytest.mark.parametrize(("header", "value"), WRONG)
def test_wrong_headers_are_refused(header: str, value: Any) -> None:
    assert header in reason({}, headers={header: value})


def test_fields_can_be_headers() -> None:
    fields = {"app": "", "tenant": "header.x-tenant"}
    groups = [{"tenants": [1], "key": "{header.x-tenant}"}]
    settings = Settings.model_validate({"fields": fields, "groups": groups})
    assert route({}, router=settings.router(), headers={"x-tenant": 1}).group == "1"
