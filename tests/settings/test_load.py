"""Settings: their sources and order, what is refused and how that is said, and no secret shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from groupflow.core.errors import ConfigError, Problem
from groupflow.core.limits import Rate
from groupflow.settings.load import find_sources, load_settings
from groupflow.settings.model import Settings
from groupflow.settings.rules import GroupRule, PoolRule
from groupflow.settings.schedules import ScheduleRule
from groupflow.settings.types import SecretUrl

CONFIG = Path(__file__).parents[2] / "config"
Load = Callable[[str], Settings]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

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
    def test_the_defaults_need_no_file(self) -> None:
        assert load_settings() == Settings()
        assert find_sources().file is None

    def test_a_file_here_is_found(self, tmp_path: Path) -> None:
        (tmp_path / "groupflow.toml").write_text("[workers]\nplain = 3\n")
        assert load_settings().workers.plain == 3

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

    def test_systemd_credentials_are_secrets(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "groupflow_rabbitmq__url").write_text("amqps://u:p@h/v")
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
        assert load_settings().rabbitmq.url.get_secret_value() == "amqps://u:p@h/v"
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "gone"))
        assert load_settings() == Settings()

    def test_lists_come_as_json_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GROUPFLOW_GROUPS", '[{"key": "{a}"}]')
        monkeypatch.setenv("GROUPFLOW_HANDLERS__ORDERS__EXEC", '["./orders"]')
        settings = load_settings()
        assert settings.groups[0].key == "{a}"
        assert settings.handlers["orders"].exec == ("./orders",)

    def test_tables_that_have_names_come_from_the_environment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GROUPFLOW_POOLS__COURIERS__TYPES", '["deliver"]')
        monkeypatch.setenv("GROUPFLOW_HTTP__TOKENS__COURIERS__TOKEN", "a-token-of-the-tests")
        monkeypatch.setenv("GROUPFLOW_HTTP__TOKENS__COURIERS__RIGHTS", '["pull"]')
        monkeypatch.setenv("GROUPFLOW_TENANTS__42__CONCURRENCY", "3")
        settings = load_settings()
        assert settings.tenants.named["42"].concurrency == 3
        assert settings.pools["couriers"].types == ("deliver",)
        assert settings.http.tokens["couriers"].rights == ("pull",)

    def test_variables_that_are_not_settings_are_left_alone(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GROUPFLOW_TASK_ID", "1")
        monkeypatch.setenv("GROUPFLOW_GROUP", "contact:42")
        assert load_settings() == Settings()

    def test_direct_construction_reads_no_environment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GROUPFLOW_WORKERS__PLAIN", "3")
        assert Settings().workers.plain == 8

    def test_a_long_lease_needs_no_word_on_blocks(self, tmp_path: Path) -> None:
        file = tmp_path / "groupflow.toml"
        file.write_text("[workers]\nlease = 3600\n")
        assert load_settings(file).workers.longest_block == 3600.0
        assert Settings().workers.longest_block == Settings().workers.max_block == 60.0


REFUSED: list[tuple[str, str, str, str]] = [
    ("[workers]\nlease = 0.2", "workers.lease", "0.2", "at least 1"),
    (
        "[workers]\nlease = 90\nmax_block = 60",
        "workers",
        "",
        "max_block (60) at least the seconds of lease (90)",
    ),
    ("[workers]\nplain = -1", "workers.plain", "-1", "at least 0"),
    ("[workers]\ngrouped = true", "workers.grouped", "true", "number"),
    ('[workers]\norder = "random"', "workers.order", "'random'", '"fair" or "tenants"'),
    ("[workers]\ndrain = inf", "workers.drain", "inf", "finite"),
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
    ('[[groups]]\nkey = "a"\nrate = "0/s"', "groups[0].rate", "'0/s'", "1 start at least"),
    ('[[groups]]\nkey = "a"\nrate = "200000/s"', "groups[0].rate", "'200000/s'", "100000"),
    ('[[groups]]\nkey = "a"\nrate = "1/s burst 0"', "groups[0].rate", "'1/s burst 0'", "burst"),
    ("[tenants]\nconcurrency = -1", "tenants.concurrency", "-1", "at least 0"),
    ('[tenants]\nrate = "quick"', "tenants.rate", "'quick'", '"600/min"'),
    ("[tenants]\nweight = 0", "tenants.weight", "0", "at least 1"),
    ("[tenants.42]\nconcurrency = -1", "tenants.42.concurrency", "-1", "at least 0"),
    ('[tenants."a.b"]\nrate = "x"', 'tenants."a.b".rate', "'x'", '"10/s"'),
    ("[tenants.42]\nkoncurrency = 1", "tenants.42.koncurrency", "", "tenants.42.concurrency"),
    ("[tenants]\nkoncurrency = 1", "tenants.koncurrency", "", "tenants.concurrency"),
    ('[handlers.a]\nexec = ["ls"]\nscope = "group"', "handlers.a", "", "scope"),
    ('[handlers."a.b"]\n', 'handlers."a.b"', "", "exactly one"),
    ('[handlers.a]\nexec = "ls"', "handlers.a.exec", "***", "list"),
    ("[handlers.a]\nexec = []", "handlers.a.exec", "[]", "command"),
]


@pytest.mark.parametrize(("text", "setting", "value", "remedy"), REFUSED)
def test_what_is_wrong_is_named_with_its_value_and_remedy(
    load: Load, text: str, setting: str, value: str, remedy: str
) -> None:
    found = problems(load, text)
    assert list(found) == [setting]
    assert found[setting].value == value
    assert remedy in found[setting].remedy


def test_all_problems_are_said_at_once(load: Load) -> None:
    found = problems(load, "[workers]\nplain = -1\n[redis]\ntimeout = 0\n[colour]\n")
    assert set(found) == {"workers.plain", "redis.timeout", "colour"}


def test_rules_need_names_of_their_own(load: Load) -> None:
    rule = '[[groups]]\nname = "same"\nkey = "a"\n'
    assert "'same'" in problems(load, rule * 2)["groups"].remedy
    assert [rule.name for rule in load('[[groups]]\nkey="a"\n' * 2).groups] == [
        "groups[0]",
        "groups[1]",
    ]


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
    ],
)
def test_unknown_variables_are_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, setting: str, remedy: str
) -> None:
    monkeypatch.setenv(name, "3")
    with pytest.raises(ConfigError) as caught:
        load_settings()
    found = {problem.setting: problem for problem in caught.value.problems}
    assert remedy in found[setting].remedy


def test_a_wrong_value_says_which_variable_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPFLOW_WORKERS__DRAIN", "soon")
    with pytest.raises(ConfigError, match="the variable GROUPFLOW_WORKERS__DRAIN"):
        load_settings()


class TestFilesThatCannotBeRead:
    def test_syntax_errors_say_where(self, load: Load) -> None:
        (problem,) = problems(load, "[redis]\nurl = \n").values()
        assert "line 2, column 7" in problem.remedy

    @pytest.mark.parametrize("make", [lambda p: None, lambda p: p.mkdir()])
    def test_missing_or_a_directory(self, tmp_path: Path, make: Callable[[Path], Any]) -> None:
        path = tmp_path / "gone.toml"
        make(path)
        with pytest.raises(ConfigError, match=r"gone\.toml: It can't be read"):
            load_settings(path)

    def test_not_utf8(self, tmp_path: Path) -> None:
        path = tmp_path / "latin.toml"
        path.write_bytes(b'a = "\xff"')
        with pytest.raises(ConfigError, match="not UTF-8"):
            load_settings(path)

    def test_a_secrets_directory_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("GROUPFLOW_SECRETS_DIR", "/nowhere/at/all")
        with pytest.raises(ConfigError, match="no such directory"):
            load_settings()

    def test_a_section_in_the_environment_that_is_not_json(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GROUPFLOW_REDIS", "redis://:hunter2@h/")
        with pytest.raises(ConfigError, match="JSON") as caught:
            load_settings()
        assert "hunter2" not in str(caught.value)


class TestSecrets:
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

    @pytest.mark.parametrize(
        "url",
        [
            "hunter2",
            "redis://:hunter2@h:zz/0",
            "redis://:hun/ter2@h/0",
            "redis://:hun@ter2@h:x/0",
            "amqp://u:hunter2@h/",
            "redis://u:hunter2 @h/",
            "redis://:hunter2@/0",
        ],
    )
    def test_masked_in_errors(self, load: Load, url: str) -> None:
        with pytest.raises(ConfigError) as caught:
            load(f'[redis]\nurl = "{url}"\n')
        assert "ter2" not in "".join(str(problem) for problem in caught.value.problems)
        assert caught.value.__cause__ is None

    def test_an_unknown_setting_is_refused_without_its_value(self, load: Load) -> None:
        assert "hunter2" not in str(problems(load, '[redis]\npassword = "hunter2"'))


def test_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().workers.plain = 3  # type: ignore[misc]


def test_tenants_are_text() -> None:
    assert GroupRule(key="a", tenants=[42, "acme"]).tenants == ("42", "acme")
    assert GroupRule(key="a").tenants == ("*",)


def test_a_tenants_limit_is_its_own_where_it_says_so(load: Load) -> None:
    settings = load('[tenants]\nconcurrency = 8\nrate = "5/s"\n[tenants.42]\nconcurrency = 2\n')
    every, named = settings.tenants.limits()
    assert (every.concurrency, named["42"].concurrency) == (8, 2)
    assert every.rate == named["42"].rate == Rate.parse("5/s")
    assert (every.weight, named["42"].weight) == (1, 1)


class TestExamples:
    def test_the_example_shows_every_setting_with_its_default(self) -> None:
        import tomllib

        written = tomllib.loads((CONFIG / "groupflow.toml").read_text())
        settings = load_settings(CONFIG / "groupflow.toml")
        for name in Settings.model_fields:
            if name in ("groups", "handlers", "schedules", "pools"):
                continue
            assert getattr(settings, name) == getattr(Settings(), name), name
            tables = (
                {"tokens"} if name == "http" else {"named"}
            )  # shown as comments: none by default
            fields = set(type(getattr(settings, name)).model_fields)
            assert set(written[name]) == fields - tables, name
        overrides = {"max_attempts", "interval", "jitter"}
        assert set(written["groups"][0]) == set(GroupRule.model_fields) - overrides
        assert set(written["schedules"][0]) == set(ScheduleRule.model_fields) - {"every"}
        assert set(written["pools"]["couriers"]) == set(PoolRule.model_fields)

    def test_the_tenants_example_loads(self) -> None:
        assert len(load_settings(CONFIG / "tenants.toml").groups) > 3


def test_secret_urls_compare_by_value() -> None:
    assert SecretUrl("redis://a/") == SecretUrl("redis://a/")
