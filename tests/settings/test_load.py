"""Settings: their sources and order, what is refused and how that is said, and no secret shown."""

from __future__ import annotations

import errno
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupflow.core.errors import ConfigError, Problem
from groupflow.core.limits import Rate
from groupflow.settings import load as loading
from groupflow.settings.load import find_sources, load_settings
from groupflow.settings.model import Settings
from groupflow.settings.rules import GroupRule, PoolRule, ScheduleRule, TypeRule
from groupflow.store.limits import pack

CONFIG = Path(__file__).parents[2] / "config"
Load = Callable[[str], Settings]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.upper().startswith("GROUPFLOW_") or name == "CREDENTIALS_DIRECTORY":
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load_text(text: str) -> Settings:
        file = tmp_path / "test.toml"
        file.write_text(text, encoding="utf-8")
        return load_settings(file)

    return load_text


def problems(load: Load, text: str) -> dict[str, Problem]:
    with pytest.raises(ConfigError) as caught:
        load(text)
    return {problem.setting: problem for problem in caught.value.problems}


class TestSources:
    def test_the_defaults_need_no_file_and_one_here_is_found(self, tmp_path: Path) -> None:
        assert load_settings() == Settings()
        assert find_sources().file is None
        (tmp_path / "groupflow.toml").write_text("[workers]\nplain = 3\nlease = 3600\n")
        workers = load_settings().workers
        assert workers.plain == 3
        assert (workers.longest_block, Settings().workers.longest_block) == (3600.0, 60.0)

    def test_variables_are_settings_where_they_are_named_so(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Lists as JSON, and tables that have names; a handler's own variables are left alone."""
        monkeypatch.setenv("GROUPFLOW_TASK_ID", "1")
        monkeypatch.setenv("GROUPFLOW_GROUP", "contact:42")
        assert load_settings() == Settings()
        for name, value in {
            "GROUPS": '[{"key": "{a}"}]',
            "HANDLERS__ORDERS__EXEC": '["./orders"]',
            "POOLS__COURIERS__TYPES": '["deliver"]',
            "HTTP__TOKENS__COURIERS__TOKEN": "a-token-of-the-tests",
            "HTTP__TOKENS__COURIERS__RIGHTS": '["pull"]',
            "TENANTS__42__CONCURRENCY": "3",
        }.items():
            monkeypatch.setenv(f"GROUPFLOW_{name}", value)
        settings = load_settings()
        assert settings.groups[0].key == "{a}"
        assert settings.handlers["orders"].exec == ("./orders",)
        assert settings.tenants.named["42"].concurrency == 3
        assert settings.pools["couriers"].types == ("deliver",)
        assert settings.http.tokens["couriers"].rights == ("pull",)
        assert Settings() == Settings.model_validate({}), "built directly, it reads none of them"
        assert Settings().groups == ()

    def test_the_environment_goes_before_secrets_before_the_file(
        self, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        secrets = tmp_path / "secrets"
        secrets.mkdir()
        (secrets / "groupflow_redis__url").write_text("redis://:from-secret@h/1\n")
        (secrets / "GROUPFLOW_REDIS__NAMESPACE").write_text("from-secret")
        (secrets / "somebody-elses").write_text("x")
        monkeypatch.setenv("GROUPFLOW_SECRETS_DIR", str(secrets))
        monkeypatch.setenv("GROUPFLOW_REDIS__NAMESPACE", "from-environment")
        settings = load('[redis]\nurl = "redis://file/0"\nnamespace = "file"\ntimeout = 1.5\n')
        assert settings.redis.url.get_secret_value() == "redis://:from-secret@h/1"
        assert settings.redis.namespace == "from-environment"
        assert settings.redis.timeout == 1.5

    def test_secret_files_of_others_are_not_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Ours may be elsewhere, behind a link."""
        secrets, elsewhere = tmp_path / "secrets", tmp_path / "elsewhere"
        secrets.mkdir()
        (secrets / "key.der").write_bytes(b"\xff\xfe")
        elsewhere.write_text("redis://:from-secret@h/1")
        (secrets / "GROUPFLOW_REDIS__URL").symlink_to(elsewhere)
        monkeypatch.setenv("GROUPFLOW_SECRETS_DIR", str(secrets))
        assert load_settings().redis.url.get_secret_value() == "redis://:from-secret@h/1"
        elsewhere.write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigError, match=r"GROUPFLOW_REDIS__URL: It is not UTF-8"):
            load_settings()
        elsewhere.unlink()
        with pytest.raises(ConfigError, match=r"GROUPFLOW_REDIS__URL: It can't be read \(No such"):
            load_settings()

    def test_what_can_not_be_seen_is_said(
        self, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In a folder without the right to enter it."""
        stat, closed = Path.stat, tmp_path / "closed"

        def denied(path: Path, **how: Any) -> Any:
            if path.is_relative_to(closed):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return stat(path, **how)

        def refused(path: Path, *_: Any, **__: Any) -> Any:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        monkeypatch.setattr(Path, "stat", denied)
        monkeypatch.setattr(Path, "iterdir", refused)
        monkeypatch.setattr(loading, "SEARCHED", (closed / "groupflow.toml",))
        with pytest.raises(ConfigError, match=r"groupflow\.toml: It can't be read \(Permission"):
            load_settings()
        monkeypatch.setenv("GROUPFLOW_SECRETS_DIR", str(closed))
        with pytest.raises(ConfigError, match=r"closed: It can't be read \(Permission"):
            load_settings(Path("/dev/null"))
        monkeypatch.delenv("GROUPFLOW_SECRETS_DIR")
        settings = load(f'[redis]\nurl = "rediss://h/0"\nca_file = "{closed}/x.crt"\n')
        with pytest.raises(ConfigError, match="the rights on the way to it"):
            settings.redis_url()

    def test_systemd_credentials_are_secrets(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "groupflow_rabbitmq__url").write_text("amqps://u:p@h/v")
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
        assert load_settings().rabbitmq.url.get_secret_value() == "amqps://u:p@h/v"
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "gone"))
        assert load_settings() == Settings()


NAMED = '[http.tokens.a]\ntoken = "0123456789abcdef"\n'
REFUSED: list[tuple[str, str, str, str]] = [
    ('[http.tokens.a]\nrights = ["look"]', "http.tokens.a", "", "Give it token or token_file"),
    (f"{NAMED}rights = []", "http.tokens.a.rights", "[]", "at least 1 item"),
    (f'{NAMED}rights = ["look", "fly"]', "http.tokens.a.rights[1]", "'fly'", '"look", "act"'),
    (f'{NAMED}token_file = "x"\nrights = ["look"]', "http.tokens.a", "", "not both"),
    ('[http.tokens.a]\ntoken = "short"\nrights = ["look"]', "http.tokens.a.token", "***", "16"),
    ('[[groups]]\napp = "crm"\nkey = "{o}:{tenant_id}"\n[[groups]]\napp = "a"\nkey = "{x}"\n',
     "groups[1].key", "'{x}'", "shares = true"),
    ("[workers]\nlease = 0.2", "workers.lease", "0.2", "at least 1"),
    ("[workers]\nlease = 90\nmax_block = 60", "workers", "",
     "max_block (60) at least the seconds of lease (90)"),
    ("[workers]\nplain = -1", "workers.plain", "-1", "at least 0"),
    ("[workers]\ngrouped = true", "workers.grouped", "true", "number"),
    ('[pools.a]\ntypes = ["t"]\nmax_workers = true', "pools.a.max_workers", "true", "number"),
    ('[workers]\norder = "random"', "workers.order", "'random'", '"fair" or "tenants"'),
    ("[workers]\ndrain = inf", "workers.drain", "inf", "finite"),
    (f"[redis]\nmax_waiting = {1 << 63}", "redis.max_waiting", f"{1 << 63}", "within 64 bits"),
    ("[workers]\nleese = 3", "workers.leese", "", "workers.lease"),
    ("[redis]\nlease = 3", "redis.lease", "", "workers.lease"),
    ("[redsi]\n", "redsi", "", "Did you mean redis?"),
    ("redis = 3", "redis", "3", "[redis]"),
    ("[rabbitmq]\nprefetch = 65536", "rabbitmq.prefetch", "65536", "at most 65535"),
    ('[rabbitmq]\nprefetch = "many"', "rabbitmq.prefetch", "'many'", "whole number"),
    ('[redis]\nnamespace = "a b"', "redis.namespace", "'a b'", "letters"),
    ('[redis]\nnamespace = "a\\n"', "redis.namespace", "'a\\n'", "letters"),
    ("[retry]\ninterval = 0", "retry.interval", "0", "other than 0"),
    ("[retry]\njitter = 1.5", "retry.jitter", "1.5", "at most 1"),
    ('[http]\nlisten = "9464"', "http.listen", "'9464'", "address:port"),
    ('[http]\nlisten = "h:99999"', "http.listen", "'h:99999'", "address:port"),
    ('[http]\ntoken = "hushhush"', "http.token", "***", "at least 16"),
    ('[http]\ntoken = "hush hush hush hush"', "http.token", "***", "spaces"),
    ('[http]\nhosts = ["http://a"]', "http.hosts[0]", "'http://a'", "without scheme"),
    ('[http]\ntoken = "0123456789abcdef"\ntoken_file = "x"', "http", "", "not both"),
    ('[log]\nlevel = "loud"', "log.level", "'loud'", '"debug"'),
    ('[fields]\ntenant = "a..b"', "fields.tenant", "'a..b'", "step"),
    ("[[groups]]\n", "groups[0].key", "", "required"),
    ('[[groups]]\nkey = "{a"', "groups[0].key", "'{a'", "At character 1"),
    ('[[groups]]\nkey = "a"\ntenants = [true]', "groups[0].tenants", "[True]", "whole numbers"),
    ('[[groups]]\nkey = "a"\ntenants = "acme"', "groups[0].tenants", "'acme'", '"*"'),
    ('[[groups]]\nkey = "a"\nkeyy = 1', "groups[0].keyy", "", "groups[0].key"),
    ('[[groups]]\nkey = "a"\nconcurrency = 0', "groups[0].concurrency", "0", "at least 1"),
    ('[[groups]]\nkey = "a"\nrate = "fast"', "groups[0].rate", "'fast'", '"600/min"'),
    ('[[groups]]\nname = "same"\nkey = "a"\n' * 2, "groups", "", "'same'"),
    ("[tenants]\nconcurrency = -1", "tenants.concurrency", "-1", "at least 0"),
    ('[tenants]\nrate = "quick"', "tenants.rate", "'quick'", '"600/min"'),
    ("[tenants]\nweight = 0", "tenants.weight", "0", "at least 1"),
    ("[tenants.42]\nconcurrency = -1", "tenants.42.concurrency", "-1", "at least 0"),
    ('[tenants."a.b"]\nrate = "x"', 'tenants."a.b".rate', "'x'", '"10/s"'),
    ("[tenants.42]\nkoncurrency = 1", "tenants.42.koncurrency", "", "tenants.42.concurrency"),
    ("[tenants]\nkoncurrency = 1", "tenants.koncurrency", "", "tenants.concurrency"),
    ('[types."a.b"]\nconcurrency = -1', 'types."a.b".concurrency', "-1", "at least 0"),
    ('[types.a]\nrate = "quick"', "types.a.rate", "'quick'", '"600/min"'),
    ("[types.a]\nconcurrency = 0", "types.a", "", "Give it a concurrency, a rate, or both"),
    ("[types.a]\nkoncurrency = 1", "types.a.koncurrency", "", "types.a.concurrency"),
    ('[types."*.a"]\nconcurrency = 1', 'types."*.a"', "'*.a'", "a * at its end"),
    ('[types."a.*"]\nconcurrency = 1\n[types."a.b"]\nrate = "1/s"', "types", "",
     '[types."a.b"] never holds, since [types."a.*"] stands before it'),
    ('[types."*"]\nconcurrency = 1\n[types."a*"]\nrate = "1/s"', "types", "", "put it in front"),
    ('[handlers.a]\nexec = ["ls"]\nscope = "group"', "handlers.a", "", "scope"),
    ('[handlers."a.b"]\n', 'handlers."a.b"', "", "exactly one"),
    ('[handlers.a]\nexec = "ls"', "handlers.a.exec", "***", "list"),
    ("[handlers.a]\nexec = []", "handlers.a.exec", "[]", "command"),
    ('[[groups]]\nkey = "a"\ndebounce = nan', "groups[0].debounce", "nan", "at most 31536000"),
    ('[[groups]]\nkey = "a"\nnewest = "all"', "groups[0].newest", "'all'", '"waiting"'),
    *((f'[[groups]]\nkey = "a"\nnewest = "running"\nnewest_max = {most}',
       "groups[0].newest_max", most, said)
      for most, said in (("-1", "at least 0.001"), ("0", "at least 0.001"),
                         ("inf", "at most 31536000"))),
    ('[[groups]]\nkey = "a"\nexpires = -1', "groups[0].expires", "-1", "at least 0"),
    ('[[groups]]\nkey = "a"\nexpires = 1e9', "groups[0].expires", "1000000000.0", "at most 31536"),
    ('[[groups]]\nkey = "a"\nmax_queued = -1', "groups[0].max_queued", "-1", "at least 0"),
    ('[[groups]]\nkey = "a"\nmax_queued = 1000001', "groups[0].max_queued", "1000001",
     "at most 1000000"),
    ("[[groups]]\nmax_queued = 5", "groups[0].key", "", "add it"),
    ('[[groups]]\nkey = "a"\non_drained = "a\\n"', "groups[0].on_drained", "'a\\n'", "control"),
    ('[[groups]]\nkey = "a"\nrun = 501', "groups[0].run", "501", "at most 500"),
    *((f'[[groups]]\nkey = "a"\n{facts}', "groups[0]", "", said) for facts, said in (
        ("debounce = 5\ndebounce_max = 4.9",
         "Give debounce_max (4.9) at least the seconds of debounce (5)"),
        ("debounce_max = 5", "give debounce its seconds"),
        ("batch = 4\nbatch_wait = 1.0\nmax_queued = 3",
         "Give max_queued (3) at least the tasks of batch (4)"),
        ("debounce = 1e-7", "a millisecond at least"),
        ("expires = 1e-7", "Give expires a millisecond at least"),
        ("expires = 5\nrun = 2", "Leave out run, or expires"),
        ("expires = 5\ndebounce = 5", "Give expires (5) more seconds than debounce (5)"),
        ("debounce = 5\nrun = 2", "Leave out run, or debounce"),
        ("debounce = 5\nbatch = 2", "Leave out batch, or debounce"),
        *((f'newest = "waiting"\n{other} = 2', f"Leave out {other}, or newest")
          for other in ("run", "batch", "concurrency")),
        ('newest = "running"\ndebounce = 1', "Leave out newest, or debounce"),
        ('newest = "waiting"\nnewest_max = 5', 'give newest = "running"'),
        ("run = 2\nconcurrency = 2", "Leave out run, or concurrency"),
        ('run = 2\nrate = "10/s"', "Leave out run, or concurrency"),
        ("batch = 2\nconcurrency = 2", "Leave out batch, or concurrency"),
        ('batch = 2\nrate = "1/s"', "Leave out batch, or concurrency"),
        ("batch = 2\nrun = 2", "Leave out run or batch"),
        ("batch_wait = 2.0", "give the batch that is waited for"),
    )),
    *((f'[redis]\nurl = "{url}"', "redis.url", url, said) for url, said in (
        ("redis+clusters://h", "redis+cluster:// or redis+sentinel://"),
        ("redis://h:6379,i:6379/0", "the port a number"),
        ("redis://h/0/groupflow", "the database by its number: redis://host:6379/0"),
        ("redis://h/0?db=abc", "but these: username, password, db, a number."),
        ("redis://h/0?socket_timeout=1", "but these: username, password, db, a number."),
        ("unix://", "Name the socket: unix:///run/redis.sock."),
        ("redis+sentinel://h/mymaster?db=1", "but these: username, password."),
        ("redis+cluster://h/1", "Leave the database out: a cluster has only 0."),
        ("redis+cluster://h:0", "each port between 1 and 65535"),
        ("redis+sentinel://h", "Name the primary as Sentinel does"),
        ("redis+sentinel://h/mymaster/x", "Name the primary as Sentinel does"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("text", "setting", "value", "remedy"), REFUSED)
def test_what_is_wrong_is_named_with_its_value_and_remedy(
    load: Load, text: str, setting: str, value: str, remedy: str
) -> None:
    (problem,) = problems(load, text).values()
    assert (problem.setting, problem.value) == (setting, value)
    assert remedy in problem.remedy


def test_all_problems_are_said_at_once(load: Load) -> None:
    found = problems(load, "[workers]\nplain = -1\n[redis]\ntimeout = 0\n[colour]\n")
    assert set(found) == {"workers.plain", "redis.timeout", "colour"}


@pytest.mark.parametrize(
    ("name", "setting", "remedy"),
    [
        ("GROUPFLOW_REDSI__URL", "redsi.url", "Did you mean redis.url?"),
        ("GROUPFLOW_WORKERS__GRUPED", "workers.gruped", "workers.grouped"),
        ("GROUPFLOW_REDIS_URL", "GROUPFLOW_REDIS_URL", "GROUPFLOW_REDIS__URL"),
        ("GROUPFLOW_GROUPS__0__KEY", "groups.0.key", "JSON"),
        ("GROUPFLOW_HANDLERS__A__EXE", "handlers.a.exe", "handlers.a.exec"),
        ("GROUPFLOW_POOLS__A__LEAS", "pools.a.leas", "pools.a.lease"),
        ("GROUPFLOW_TENANTS__42__RAT", "tenants.42.rat", "tenants.42"),
        ("GROUPFLOW_HTTP__TOKENS__A__TOKE", "http.tokens.a.toke", "http.tokens.a.token"),
        ("GROUPFLOW_WORKERS__DRAIN", "workers.drain", "the variable GROUPFLOW_WORKERS__DRAIN"),
        ("GROUPFLOW_HTTP__TOKEN__A", "http.token", "the variable GROUPFLOW_HTTP__TOKEN__A"),
        ("GROUPFLOW_REDIS", "redis", "JSON"),
    ],
)
def test_variables_are_refused_by_their_names(
    monkeypatch: pytest.MonkeyPatch, name: str, setting: str, remedy: str
) -> None:
    monkeypatch.setenv(name, "redis://:hunter2@h/")
    with pytest.raises(ConfigError) as caught:
        load_settings()
    found = {problem.setting: str(problem) for problem in caught.value.problems}
    assert remedy in found[setting]
    assert "hunter2" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    latin, broken = tmp_path / "latin.toml", tmp_path / "broken.toml"
    latin.write_bytes(b'a = "\xff"')
    broken.write_text("[redis]\nurl = \n")
    for path, said in (
        (broken, "line 2, column 7"),
        (tmp_path / "gone", "gone: It can't be read"),
        (tmp_path, "It can't be read"),
        (latin, "not UTF-8"),
    ):
        with pytest.raises(ConfigError, match=said):
            load_settings(path)
    monkeypatch.setenv("GROUPFLOW_SECRETS_DIR", "/nowhere/at/all")
    with pytest.raises(ConfigError, match="no such directory"):
        load_settings()


class TestSecrets:
    @pytest.mark.parametrize(
        "toml",
        [
            *(f'[redis]\nurl = "{url}"' for url in ("T0KEN", "redis://:T0KEN@h:zz/0")),
            *(f'[redis]\nurl = "{url}"' for url in ("redis://:x/T0KEN@h/0", "amqp://u:T0KEN@h/")),
            *(f'[redis]\nurl = "redis://{url}/0"' for url in (":x@T0KEN@h:x", "u:T0KEN @h")),
            *('[redis]\nurl = "redis://:T0KEN@/0"', '[redis]\npassword = "T0KEN"'),
            '[handlers.t]\nexec = "curl -u me:T0KEN https://h/"',
            '[handlers.t]\nexec = ["x", "--password=T0KEN\\u0000"]',
            '[handlers.t]\nexec = [["T0KEN"]]',
            '[handlers.t]\nhttp = "hooks.h/T0KEN"',
            '[handlers.t]\nhttp = "http://h:0/T0KEN"',
            '[handlers.t]\nhttp = ["http://h/T0KEN"]',
            '[handlers.t]\nexec = ["x"]\nhttp = "http://h/T0KEN"',
            '[handlers.t]\nexec = ["x"]\nhttps = "T0KEN"',
            '[http.tokens]\nci = "T0KEN"',
            '[http]\ntokens = "T0KEN"',
            '[rabbitmq]\nmanagement = "admin:T0KEN@rabbit:15672"',
        ],
    )
    def test_masked_in_errors(self, load: Load, toml: str) -> None:
        with pytest.raises(ConfigError) as caught:
            load(toml)
        assert "T0KEN" not in "".join(str(problem) for problem in caught.value.problems)
        assert caught.value.__cause__ is None

    def test_masked_in_every_shown_form(self, load: Load) -> None:
        settings = load(
            '[redis]\nurl = "rediss://me:hunter2@h:6379/0?password=hunter2"\n'
            '[rabbitmq]\nurl = "amqp://u:hunter2@h/"\n'
            '[handlers.hook]\nhttp = "http://u:hunter2@hooks.h/T/hunter2?access_token=hunter2"\n'
            '[handlers.command]\nexec = ["/opt/hunter2/import", "--password=hunter2", "hunter2"]\n'
        )
        assert settings.redis.url.get_secret_value().count("hunter2") == 2
        command = ("/opt/hunter2/import", "--password=hunter2", "hunter2")
        assert settings.handlers["command"].exec == command
        dump = settings.model_dump(mode="json")
        shown = [settings, repr(settings), settings.redis.url, settings.model_dump(), dump]
        for text in map(str, (*shown, settings.model_dump_json(), repr(settings.handlers))):
            assert "hunter2" not in text
        assert str(settings.redis.url) == "rediss://me:***@h:6379/0?password=***"
        assert dump["handlers"]["hook"]["http"] == "http://hooks.h"
        assert dump["handlers"]["command"]["exec"] == ["import"]


def test_a_tenants_limit_is_its_own_where_it_says_so(load: Load) -> None:
    settings = load('[tenants]\nconcurrency = 8\nrate = "5/s"\n[tenants.42]\nconcurrency = 2\n')
    every, named = settings.tenants.limits()
    assert (every.concurrency, named["42"].concurrency) == (8, 2)
    assert every.rate == named["42"].rate == Rate.parse("5/s")
    assert (every.weight, named["42"].weight) == (1, 1)


def test_a_types_limit_is_shared_by_partitions(load: Load) -> None:
    limits = load('[types."b*"]\nconcurrency = 5\nrate = "8/s"\n[types.a]\nrate = "1/s"').limits()
    assert pack(limits, 4) == b'["yb*","0 1 500000.000 20000 8/s","ya","1 0 4000000.000 20000 1/s"]'


def test_the_example_shows_every_setting_with_its_default() -> None:
    written = tomllib.loads((CONFIG / "groupflow.toml").read_text())
    settings = load_settings(CONFIG / "groupflow.toml")
    for name in Settings.model_fields:
        if name in ("types", "groups", "handlers", "schedules", "pools"):
            continue
        assert getattr(settings, name) == getattr(Settings(), name), name
        # Shown as comments: none by default.
        tables = {"tokens"} if name == "http" else {"named"}
        fields = set(type(getattr(settings, name)).model_fields)
        assert set(written[name]) == fields - tables, name
    overrides = {"max_attempts", "interval", "jitter"}
    assert set(written["groups"][0]) == set(GroupRule.model_fields) - overrides
    assert set(written["schedules"][0]) == set(ScheduleRule.model_fields) - {"every"}
    assert set(written["types"]["transcode"]) == set(TypeRule.model_fields)
    assert set(written["pools"]["couriers"]) == set(PoolRule.model_fields)


def test_all_that_is_handed_out_loads() -> None:
    files = [*CONFIG.rglob("*.toml"), *CONFIG.with_name("deploy").rglob("*.toml")]
    assert len(files) >= 5
    for file in files:
        assert load_settings(file).groups or "base" in file.parts, file
