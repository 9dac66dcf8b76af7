"""Loading settings: environment, then secrets, then the TOML file, then the defaults."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)
from pydantic_settings import PydanticBaseSettingsSource as _Source

from groupflow.core.errors import ConfigError, Problem
from groupflow.settings.collisions import find_collisions
from groupflow.settings.model import Settings
from groupflow.settings.planning import plan
from groupflow.settings.problems import dotted, known_names, problems_of, unknown_remedy

PREFIX = "GROUPFLOW_"
DELIMITER = "__"
SEARCHED = (Path("groupflow.toml"), Path("/etc/groupflow/groupflow.toml"))


@dataclass(frozen=True, slots=True)
class Sources:
    file: Path | None = None  # the TOML file; None where none exists and none was asked for
    secrets: Path | None = None  # the secrets directory
    variables: list[str] = field(default_factory=list)  # names of those that set something, sorted
    secret_files: list[str] = field(default_factory=list)  # names, sorted


def load_settings(path: Path | None = None) -> Settings:
    """Load and check the configuration.

    Without a path it is ``groupflow.toml`` here or in ``/etc/groupflow``, and the defaults where
    neither is there.

    Raises:
        ConfigError: something is wrong; each problem names the setting, the value and the remedy.
    """
    sources = find_sources(path)
    problems = [
        *_unknown(sources.variables, "the variable"),
        *_unknown(sources.secret_files, "the secret file"),
    ]
    try:
        settings = _read(sources)
    except ValidationError as error:
        problems += problems_of(error, _origins(sources))
    except SettingsError as error:
        raise _not_json(error) from None
    else:
        problems += find_collisions(settings)
        try:
            plan(settings)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems, source=str(sources.file) if sources.file else "")
    return settings


def _read(sources: Sources) -> Settings:
    """Read the sources: the environment wins over secrets, and these over the file."""
    files = [sources.secrets / name for name in sources.secret_files] if sources.secrets else []

    class FromSources(Settings, BaseSettings):
        model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter=DELIMITER)

        @classmethod
        def settings_customise_sources(  # type: ignore[override]
            cls, settings_cls: type[BaseSettings], env_settings: _Source, **_others: _Source
        ) -> tuple[_Source, ...]:
            secrets = _SecretFiles(settings_cls, files)
            return (env_settings, secrets, *_file(settings_cls, sources.file))

    return Settings(**dict(FromSources()))


def find_sources(path: Path | None = None) -> Sources:
    """Where `load_settings` would read from.

    Raises:
        ConfigError: the secrets directory that was named can't be read.
    """
    file = path or next((each for each in SEARCHED if may_be(each)), None)
    secrets = _secrets_directory()
    names = (name for name in os.environ if name != f"{PREFIX}SECRETS_DIR")
    return Sources(
        file=file,
        secrets=secrets,
        variables=_ours(names),
        secret_files=_ours(_names_in(secrets)) if secrets else [],
    )


def _secrets_directory() -> Path | None:
    """The directory that our variable names, or else systemd's, which may not exist."""
    named = os.environ.get(f"{PREFIX}SECRETS_DIR")
    if named:
        directory = Path(named)
        if not may_be(directory, stat.S_IFDIR):
            remedy = "There is no such directory: create it, or unset the variable."
            raise ConfigError([Problem(f"{PREFIX}SECRETS_DIR", named, remedy)])
        return directory
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if credentials and may_be(Path(credentials), stat.S_IFDIR):
        return Path(credentials)
    return None


def may_be(path: Path, kind: int = stat.S_IFREG) -> bool:
    """Whether a file is there, or can't be seen: who reads it hears why."""
    try:
        return stat.S_IFMT(path.stat().st_mode) == kind
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False


def _names_in(directory: Path) -> list[str]:
    try:
        return [entry.name for entry in directory.iterdir()]
    except OSError as error:
        raise _unreadable(directory, error) from None


def _ours(names: Iterable[str]) -> list[str]:
    """The names that set something, or were meant to.

    Other names with our prefix don't count, such as ``GROUPFLOW_TASK_ID`` of a handler's
    environment; but a single underscore in place of two is refused.
    """
    return sorted(
        name
        for name in names
        if name.upper().startswith(PREFIX)
        and (
            DELIMITER in name
            or name[len(PREFIX) :].lower() in Settings.model_fields
            or _single_underscore(name)
        )
    )


def _single_underscore(name: str) -> str | None:
    """The right spelling of ``GROUPFLOW_REDIS_URL``."""
    section, _, setting = name[len(PREFIX) :].lower().partition("_")
    if setting and setting in known_names([section]):
        return f"{PREFIX}{section.upper()}{DELIMITER}{setting.upper()}"
    return None


def _unknown(names: list[str], kind: str) -> list[Problem]:
    """Refuse the names that set nothing and that pydantic doesn't see, or would say less of."""
    problems = []
    for name in names:
        section, *rest = location = _location(name)
        if DELIMITER not in name and (right := _single_underscore(name)):
            problems.append(Problem(name, "", f"It sets nothing. Did you mean {right}?"))
            continue
        if section in ("groups", "schedules") and rest:
            whole = PREFIX + section.upper()
            remedy = f"Give all of them as one JSON list in {whole}, or write them in a file."
        elif section not in Settings.model_fields:
            remedy = unknown_remedy([section], rest)
        else:
            continue
        problems.append(Problem(dotted(location), "", f"{remedy} It comes from {kind} {name}."))
    return problems


def _location(name: str) -> list[str]:
    return name[len(PREFIX) :].lower().split(DELIMITER)


def _origins(sources: Sources) -> dict[str, str]:
    """For each setting from a secret or a variable, which one; the variable goes before."""
    origins = {dotted(_location(name)): f"the secret file {name}" for name in sources.secret_files}
    origins |= {dotted(_location(name)): f"the variable {name}" for name in sources.variables}
    return origins


def _file(cls: type[BaseSettings], path: Path | None) -> Iterator[_Source]:
    if path is None:
        return
    try:
        if not path.is_file():
            path.read_bytes()  # raises what is wrong: the source below would skip the file
        yield TomlConfigSettingsSource(cls, toml_file=path)
    except OSError as error:
        raise _unreadable(path, error) from None
    except tomllib.TOMLDecodeError as error:
        remedy = f"The TOML can't be read: {error}. Correct it there."
        raise ConfigError([Problem(str(path), "", remedy)]) from None
    except UnicodeDecodeError as error:
        remedy = f"The file is not UTF-8 (byte {error.start}). Save it as UTF-8."
        raise ConfigError([Problem(str(path), "", remedy)]) from None
    except RecursionError:
        raise ConfigError([Problem(str(path), "", "The TOML is nested too deep.")]) from None


class _SecretFiles(EnvSettingsSource):
    """Our files of the secrets directory: each stands for the variable of its name."""

    def __init__(self, cls: type[BaseSettings], files: Iterable[Path]) -> None:
        self._files = files
        super().__init__(cls)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return {each.name.lower(): _secret(each) for each in self._files}


def _secret(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except OSError as error:
        raise _unreadable(file, error) from None
    except UnicodeDecodeError:
        raise ConfigError([Problem(str(file), "", "It is not UTF-8: write it as text.")]) from None


def _not_json(error: SettingsError) -> ConfigError:
    """A whole section or list that is not JSON; its text is not shown, it may hold a password."""
    said = str(error)
    where = "the environment" if "EnvSettingsSource" in said else "the secrets directory"
    name = said.partition('field "')[2].partition('"')[0] or "groupflow"
    remedy = f"Its value in {where} is not JSON. Write lists and whole sections as JSON."
    return ConfigError([Problem(name, "", remedy)])


def _unreadable(path: Path, error: OSError) -> ConfigError:
    remedy = f"It can't be read ({error.strerror}). Check the path and its permissions."
    return ConfigError([Problem(str(path), "", remedy)])
