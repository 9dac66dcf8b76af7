"""The whole demo as a user starts it, on private servers, to its end."""

import re

import httpx

from tests.deadlines import deadline
from tests.demo.test_demo import interrupted, said_until, started
from tests.endtoend.process import until


def test_demo_ends_equal() -> None:
    """Its page is there, and lives, until the user ends the demo."""
    with started("demo", "--keep") as demo:
        said = said_until(demo, "Ctrl-C ends it")
        page = re.search(r"page is at (http://\S+/) and http://", said)
        assert page is not None
        overview = httpx.get(f"{page[1]}api/overview", trust_env=False, timeout=deadline()).json()
        assert overview["done_total"] >= 3095
        token = re.search(r"With the token (\S+) it may act", said)
        assert token is not None
        client = httpx.Client(base_url=page[1], trust_env=False, timeout=deadline())
        key = {"authorization": f"Bearer {token[1]}"}
        assert client.post("api/pause", json={"group": "a"}, headers=key).json()["changed"]
        until(lambda: client.get("api/overview").json()["done_total"] > 3100)
        assert client.get("api/overview").json()["dead"] == 0
        said += interrupted(demo)
    assert demo.returncode == 0, said
    for words in (
        "3,095 import tasks for 9 tenants: 2,381 in 240 groups, 714 plain",
        "Starting a private RabbitMQ and Redis",
        "3,095 of 3,095 imported",
        "times as fast",
        "0 tasks out of order",
        "demo-2 killed with -9, and started again",
        "0 lost, 0 run again without a crash, 0 failed, 0 in a wrong group",
        "planes 240, flights 2,141, weather 714 rows: 0 differ",
        "Equal to a serial import",
    ):
        assert words in said
