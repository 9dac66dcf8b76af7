"""What an application says of the server and its queue, checked as a configuration is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groupflow.settings.model import Settings


def checked(
    section: dict[str, Any],
    groups: Sequence[Mapping[str, Any]],
    fields: Mapping[str, str] | None,
) -> Settings:
    """The settings that `[rabbitmq]`, `[[groups]]` and `[fields]` make.

    Raises:
        ConfigError: one of them can't be used.
    """
    from pydantic import ValidationError  # noqa: PLC0415  the settings take their time to import

    from groupflow.core.errors import ConfigError  # noqa: PLC0415
    from groupflow.settings.model import Settings  # noqa: PLC0415
    from groupflow.settings.problems import problems_of  # noqa: PLC0415

    found = {"rabbitmq": section, "groups": list(groups), "fields": dict(fields or {})}
    try:
        return Settings.model_validate(found)
    except ValidationError as error:
        raise ConfigError(problems_of(error, {})) from None
