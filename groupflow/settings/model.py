"""Every setting, with its default, its unit and its limits. Values are checked here, once.

`load_settings` in `load` fills these from files and the environment; what it hands out
is frozen, and every URL in it shows its password masked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from groupflow.core.errors import ConfigError, Problem
from groupflow.core.headers import MAX_HEADERS
from groupflow.core.limits import Debounce, Limits, Rate, TenantLimit
from groupflow.core.policy import OWN_RULES, Policies, RetryPolicy
from groupflow.core.routing import Paths, Router
from groupflow.core.template import FieldPath
from groupflow.settings.ends import Events, History
from groupflow.settings.rules import (
    MOST_SCHEDULES,
    GroupRule,
    HandlerRule,
    PoolRules,
    ScheduleRule,
    TenantRule,
    TypeRules,
    pool_by_type,
)
from groupflow.settings.tokens import ALL_RIGHTS, OPERATOR, HasToken, NamedToken, TokenHolder
from groupflow.settings.transport import is_loopback, stays_here
from groupflow.settings.types import (
    MOST_EXCHANGE,
    YEAR,
    BrokerName,
    DottedPath,
    HostNames,
    Listen,
    RateText,
    RetryInterval,
    Seconds,
    Section,
    TokenName,
    Whole,
    refuse_twins,
    refused_by,
)
from groupflow.settings.urls import AmqpUrl, ApiUrl, RedisUrl, SecretUrl, Server

_MAX_HEADERS_LIMIT = 16 * 1024 * 1024
# With headers and facts, what one Redis string can hold: 512 MiB.
_MAX_BODY_LIMIT = 512 * 1024 * 1024 - 2 * _MAX_HEADERS_LIMIT


class RabbitMQ(Server):
    """`[rabbitmq]`: where messages come from."""

    url: AmqpUrl = SecretUrl("amqp://guest:guest@localhost/")
    """The server: amqp:// or amqps://user:password@host:port/vhost; or a list, of the nodes of one
    cluster, which are tried in turn."""
    queue: BrokerName = Field(default="groupflow.jobs", min_length=1, max_length=255)
    """The queue that is consumed; declared durable, quorum, single active consumer."""
    partitions: Whole = Field(default=1, ge=1, le=256)
    """Over 1: so many queues, QUEUE.0 and on, behind a consistent-hash exchange QUEUE."""
    prefetch: Whole = Field(default=500, ge=1, le=65535)
    """Messages taken before the first is acked."""
    heartbeat: Whole = Field(default=10, ge=1, le=65535)
    """Seconds between heartbeats of the connection."""
    max_body: Whole = Field(default=16_777_216, ge=1, le=_MAX_BODY_LIMIT)
    """Bytes of the largest body that becomes a task; a larger one is a dead letter."""
    max_headers: Whole = Field(default=MAX_HEADERS, ge=1024, le=_MAX_HEADERS_LIMIT)
    """Bytes of the largest AMQP headers of a task; with larger ones: a dead letter."""
    max_values: Whole = Field(default=1_000_000, ge=1000)
    """JSON values of a body that becomes a task; one with more is a dead letter."""
    max_in_flight: Whole = Field(default=268_435_456, ge=1)
    """Bytes of messages held before they are written; beyond: fewer at once."""

    management: ApiUrl = SecretUrl("")
    """RabbitMQ's management API, http(s)://user:password@host:15672: only `doctor` asks it, how
    queues are bound and which node leads each. It trusts ca_file too. Empty: not asked."""

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        url = self.management.get_secret_value()
        if url.startswith("http://") and not (self.allow_plaintext or stays_here(url)):
            raise ValueError(
                "management is plaintext to another machine: use https://, or set allow_plaintext "
                "= true where the network itself is safe."
            )
        longest = MOST_EXCHANGE - len(".ring")
        if self.partitions > 1 and len(self.queue) > longest:
            raise ValueError(f"Shorten queue to {longest} bytes: partitions make exchanges of it.")
        return self


class Redis(Server):
    """`[redis]`: where tasks live."""

    url: RedisUrl = SecretUrl("redis://localhost:6379/0")
    """The server: redis:// or rediss://user:password@host:port/db, or unix://path; several:
    redis+cluster://host:port,host:port or redis+sentinel://host:port,host:port/name/db."""
    namespace: str = Field(default="groupflow", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
    """The prefix of all keys; daemons with the same one share their tasks."""
    partitions: Whole = Field(default=1, ge=1, le=1024)
    """Parts of the namespace, which may lie on different nodes; it keeps their number for life."""
    replicas: Whole = Field(default=0, ge=0, le=10)
    """Replicas that must hold a batch before its messages are acked."""
    dedup_window: Seconds = Field(default=3600.0, ge=1, le=YEAR)
    """Seconds in which a message id that came before is the same task, of an application and
    tenant."""
    max_waiting: Whole = Field(default=5_000_000, ge=1)
    """Waiting tasks at which intake pauses, not counting those that wait for delays."""
    max_memory: Whole = Field(default=0, ge=0)
    """Bytes that Redis uses at which intake pauses; 0: only when it is full."""
    delayed_memory: Whole = Field(default=268_435_456, ge=0)
    """Bytes of tasks that may wait for delays, 768 and its message each; half of Redis's memory at
    most."""
    carried_memory: Whole = Field(default=134_217_728, ge=0)
    """Bytes that tasks which wait or run may carry: stages, contexts, earlier bodies, and errors of
    failed attempts; a quarter of Redis's memory at most. An advance beyond is a failed attempt."""
    tenant_share: Seconds = Field(default=0.25, gt=0, le=1)
    """The part of carried_memory that the tasks of one tenant may carry."""
    timeout: Seconds = Field(default=5.0, gt=0, le=3600)
    """Seconds for a connection, and without a byte of an answer or of what goes out."""


class Workers(Section):
    """`[workers]`: how many run, and how they hold what they run."""

    plain: Whole = Field(default=8, ge=0, le=10_000)
    """Workers for tasks without a group."""
    grouped: Whole = Field(default=16, ge=0, le=10_000)
    """Workers for grouped tasks, one per group unless its rule's `concurrency` says more."""
    lease: Seconds = Field(default=8.0, ge=1, le=3600)
    """Seconds that a claim outlives its last renewal; then others take over."""
    max_block: Seconds = Field(default=60.0, ge=1)
    """Seconds that a handler may block the event loop and keep all tasks; at least lease, and
    lease where that is more than the default."""
    order: Literal["oldest", "fair", "tenants"] = "oldest"
    """Which free group goes first: the oldest head, or the one free for longest; or tenants share
    the workers by weight, each with its oldest first."""
    drain: Seconds = Field(default=30.0, ge=0)
    """Seconds that a stop waits for running tasks."""
    max_crashes: Whole = Field(default=3, ge=1)
    """Claims of a task that may end with the death of their daemon before it is a dead letter."""
    max_lost_leases: Whole = Field(default=20, ge=1)
    """Claims of a task that may end with a lost lease, of a daemon that isn't known to have died,
    or with a stop that can't end it, before it is a dead letter."""
    unknown_for: Seconds = Field(default=30.0, ge=0, le=86_400)
    """Seconds that a task waits while no living daemon has a handler for its type, before it is a
    dead letter; 0: it is one at once."""

    @model_validator(mode="after")
    def _blocks_outlast_leases(self) -> Self:
        if "max_block" in self.model_fields_set and self.max_block < self.lease:
            # The value would be too low: no task is taken over before the lease is over.
            raise ValueError(
                f"Give max_block ({self.max_block:g}) at least the seconds of lease "
                f"({self.lease:g}): no task is taken over sooner."
            )
        return self

    @property
    def longest_block(self) -> float:
        """`max_block`; the lease where that is longer, and `max_block` isn't set."""
        return max(self.max_block, self.lease)


class Tenants(Section):
    """`[tenants]`: what each tenant of an application may have; `[tenants.NAME]` for one."""

    concurrency: Whole = Field(default=0, ge=0, le=1_000_000)
    """Tasks of one tenant at once, grouped and plain alike; 0: no limit."""
    rate: RateText = ""
    """Starts of one tenant, as for groups; empty: as many as come."""
    weight: Whole = Field(default=1, ge=1, le=1000)
    """Its share of workers beside other tenants', with order = "tenants"."""
    named: dict[str, TenantRule] = Field(default_factory=dict)
    """[tenants.NAME] for one tenant: the same three."""

    @model_validator(mode="before")
    @classmethod
    def _tables_are_tenants(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        tables = {name: each for name, each in value.items() if isinstance(each, Mapping)}
        rest = {name: each for name, each in value.items() if name not in tables}
        named = {**tables.pop("named", {}), **tables}
        return {**rest, "named": named} if named else rest

    def limits(self) -> tuple[TenantLimit, dict[str, TenantLimit]]:
        """The limit for every tenant, and those of tenants with their own."""
        named = {name: self._limit(rule) for name, rule in self.named.items()}
        return self._limit(TenantRule()), named

    def _limit(self, rule: TenantRule) -> TenantLimit:
        facts = {name: getattr(self, name) if own is None else own for name, own in rule}
        return TenantLimit(**facts | {"rate": Rate.parse(facts["rate"])})


class Fields(Section):
    """`[fields]`: where routing finds its facts, as dotted paths into the JSON body.

    ``header.NAME`` reads an AMQP header instead; an empty path reads nothing.
    """

    app: DottedPath = "app_name"
    """The application's name."""
    tenant: DottedPath = "tenant_id"
    """The tenant, text or number."""
    type: DottedPath = "type"
    """The task's type; the AMQP `type` property wins where set."""
    priority: DottedPath = ""
    """The priority in seconds; empty: none."""
    delay: DottedPath = ""
    """The delay in seconds; empty: none."""

    def paths(self) -> Paths:
        """The same, read; ``None`` where one is empty."""
        return Paths(**{name: FieldPath.parse(text) if text else None for name, text in self})


class Http(HasToken):
    """`[http]`: health, metrics, the API and the page."""

    listen: Listen = "127.0.0.1:9464"
    """Address and port of the page's process, which hands health and metrics on; empty: there is
    none."""
    health: Listen = ""
    """Address and port at which the daemon itself answers for health and metrics, even without the
    page; empty: it doesn't."""
    read: Literal["auto", "open", "token"] = "auto"
    """Whether looking needs the token too; auto: where others reach the address."""
    hosts: HostNames = ()
    """Names, beside localhost and addresses, by which browsers may call the page."""
    tokens: dict[TokenName, NamedToken] = Field(default_factory=dict)
    """Tokens with fewer rights: see `[http.tokens.NAME]`. That of `[http]` has all."""

    def read_holders(self) -> dict[str, TokenHolder]:
        """Every token and its holder; that of `[http]` itself has all rights.

        Raises:
            ConfigError: a file can't be used, or two names have one token.
        """
        operator = TokenHolder(OPERATOR, ALL_RIGHTS)
        found = dict.fromkeys(self.read_tokens("http"), operator)
        for name, table in self.tokens.items():
            holder = TokenHolder(name, frozenset(table.rights), frozenset(table.pools))
            for token in table.read_tokens(f"http.tokens.{name}"):
                if (other := found.setdefault(token, holder)) is not holder:
                    remedy = f"It is the token of {other.name!r} too: give each its own."
                    raise ConfigError([Problem(f"http.tokens.{name}", "***", remedy)])
        return found

    @property
    def is_open(self) -> bool:
        """Whether looking needs no token."""
        return self.read == "open" or (self.read == "auto" and is_loopback(self.listen))

    @model_validator(mode="after")
    def _two_addresses(self) -> Self:
        if self.health and self.health == self.listen and not self.health.endswith(":0"):
            raise ValueError("Give listen and health two addresses: each has its own process.")
        return self


class RetryDefaults(Section):
    """`[retry]`: what happens after a failure; rules and handlers may override it."""

    max_attempts: Whole = Field(default=5, ge=1)
    """Attempts before a dead letter."""
    interval: RetryInterval = Field(default=10.0, ge=-YEAR, le=YEAR)
    """Seconds. Below 0: evenly spaced; above 0: 1, 2, 4 … up to it."""
    jitter: Seconds = Field(default=0.0, ge=0, le=1)
    """Share of each delay that is random, 0 to 1."""


class Log(Section):
    """`[log]`: what goes to stderr."""

    level: Literal["debug", "info", "warning", "error", "critical"] = "info"
    """The least severe events that are written."""
    format: Literal["auto", "json", "console"] = "auto"
    """JSON lines or readable ones; auto: readable on a terminal."""


class Traces(Section):
    """`[traces]`: OpenTelemetry's spans; where they go is OpenTelemetry's own configuration."""

    enabled: bool = False
    """Whether to make spans; takes groupflow[traces], see docs/tracing.md."""


class Settings(Section):
    """All settings. ``Settings(...)`` takes its arguments; `load_settings` reads the sources."""

    rabbitmq: RabbitMQ = RabbitMQ()
    redis: Redis = Redis()
    workers: Workers = Workers()
    fields: Fields = Fields()
    http: Http = Http()
    retry: RetryDefaults = RetryDefaults()
    history: History = History()
    log: Log = Log()
    traces: Traces = Traces()
    events: Events = Events()
    tenants: Tenants = Tenants()
    types: TypeRules = Field(default_factory=dict)
    groups: tuple[GroupRule, ...] = ()
    handlers: dict[str, HandlerRule] = Field(default_factory=dict)
    schedules: Annotated[
        tuple[ScheduleRule, ...], refused_by(lambda rules: refuse_twins(rules, "schedules"))
    ] = Field(default=(), max_length=MOST_SCHEDULES)
    pools: PoolRules = Field(default_factory=dict)

    @field_validator("groups", mode="after")
    @classmethod
    def _name_rules(cls, rules: tuple[GroupRule, ...]) -> tuple[GroupRule, ...]:
        """Name each rule without a name by its place, and refuse a name that is taken."""
        named = tuple(
            rule if rule.name else rule.model_copy(update={"name": f"groups[{index}]"})
            for index, rule in enumerate(rules)
        )
        if any(rule.name.startswith(OWN_RULES) for rule in named):
            raise ValueError(f"Names that begin with {OWN_RULES!r} are groupflow's own.")
        refuse_twins(named, "rules")
        return named

    @field_validator("handlers", mode="after")
    @classmethod
    def _types_are_named(cls, handlers: dict[str, HandlerRule]) -> dict[str, HandlerRule]:
        if "" in handlers:
            raise ValueError('Name the task type: [handlers."import.orders"].')
        return handlers

    @model_validator(mode="after")
    def _tokens_name_pools(self) -> Self:
        for name, token in self.http.tokens.items():
            for pool in token.pools:
                if pool not in self.pools:
                    raise ValueError(
                        f"[http.tokens.{name}] names the pool {pool!r}, which there is not: "
                        f"add [pools.{pool}], or take it out."
                    )
        return self

    def router(self) -> Router:
        """What decides where messages go."""
        rules, pools = [rule.rule() for rule in self.groups], pool_by_type(self.pools)
        return Router(self.fields.paths(), rules, self.rabbitmq.max_values, pools)

    @property
    def shortest_lease(self) -> float:
        """The shortest lease (s) of daemons and pools."""
        return min([self.workers.lease, *(pool.lease for pool in self.pools.values())])

    def policies(self) -> Policies:
        """What decides how tasks are settled."""
        default = RetryPolicy(**dict(self.retry))
        return Policies(default, {rule.name: rule.policy() for rule in self.groups})

    def limits(self) -> Limits:
        """What scripts hold groups, tenants and types to."""
        rules = {rule.name: of for rule in self.groups if not (of := rule.limit()).is_none}
        types = {pattern: rule.limit() for pattern, rule in self.types.items()}
        pools, told = pool_by_type(self.pools), {r.name: r.on_drained for r in self.groups}
        # The task that says that a group is drained: its pool (empty: none), and its type.
        drained = {name: (pools.get(type_, ""), type_) for name, type_ in told.items() if type_}
        return Limits(rules, *self.tenants.limits(), types, drained)

    def debounces(self) -> dict[str, Debounce]:
        """By rule, how long a task waits for a newer one that replaces it."""
        return {rule.name: each for rule in self.groups if (each := rule.debouncing())}

    def max_queued(self) -> dict[str, int]:
        """By rule, how many tasks may wait in one of its groups; only rules that bound that."""
        return {rule.name: rule.max_queued for rule in self.groups if rule.max_queued}

    def rabbitmq_url(self) -> str:
        """Where and how to connect to RabbitMQ, its password and TLS files included.

        Raises:
            ConfigError: that way isn't safe, or a TLS file can't be used.
        """
        return self.rabbitmq.connection_url("rabbitmq")

    def redis_url(self) -> str:
        """Where and how to connect to Redis, its password and TLS files included.

        Raises:
            ConfigError: that way isn't safe, or a TLS file can't be used.
        """
        return self.redis.connection_url("redis")
