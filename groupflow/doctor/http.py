"""Which machines can reach `[http]`, and what it lets callers do."""

from __future__ import annotations

import os

from groupflow.core.checkup import Check
from groupflow.settings.model import Http
from groupflow.settings.transport import is_loopback

_IN_KUBERNETES = "KUBERNETES_SERVICE_HOST"  # set in each of its containers


def examine_http(http: Http) -> list[Check]:
    """Which machines can reach the page and the daemon's health, and what callers may do there.

    Raises:
        ConfigError: a token's file can't be used.
    """
    return [_examine_listen(http), _examine_health(http.health)]


def _examine_listen(http: Http) -> Check:
    name = "http.listen"
    acts = any("act" in each.rights for each in http.read_holders().values())
    actions = "actions by token" if acts else "no actions: http.token is not set"
    if not http.listen:
        return Check(name, "ok", "nothing listens")
    if is_loopback(http.listen):
        return Check(name, "ok", f"{http.listen}, this machine alone; {actions}")
    looking = "looking is open to all" if http.is_open else "looking needs the token"
    found = f"{http.listen}: plain HTTP beyond this machine; {looking}; {actions}"
    remedy = "Put a proxy with TLS in front, or listen on 127.0.0.1."
    return Check(name, "warn", found, remedy)


def _examine_health(health: str) -> Check:
    name = "http.health"
    if not health:
        return Check(name, "ok", "the daemon itself doesn't listen")
    if is_loopback(health):
        return Check(name, "ok", f"{health}, this machine alone")
    found = f"{health}: health and metrics beyond this machine, without a token"
    if _IN_KUBERNETES in os.environ:
        return Check(name, "ok", f"{found}, as the kubelet's probes need it")
    remedy = "Listen on 127.0.0.1, or let nobody but probes and Prometheus reach it."
    return Check(name, "warn", found, remedy)
