"""What the sections of the settings are built of: one table each, and what both servers' share."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from groupflow.settings.transport import TLS_SCHEMES
from groupflow.settings.types import FileName, SecretUrl


class Section(BaseModel):
    """One table of the file: frozen, and unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Server(Section):
    """What both servers' sections share: where it is, and how the way there is secured."""

    url: SecretUrl
    ca_file: FileName = Field(
        default="",
        description="PEM file of the CA to trust alone; empty: those of the system. SECURITY.md "
        "says what it needs.",
    )
    cert_file: FileName = Field(
        default="", description="PEM file of our own certificate, where the server asks for one."
    )
    key_file: FileName = Field(
        default="", description="PEM file of its key; empty: it is in cert_file."
    )
    allow_plaintext: bool = Field(
        default=False, description="Whether a connection to another machine may go without TLS."
    )

    @model_validator(mode="after")
    def _files_are_used(self) -> Self:
        if self.key_file and not self.cert_file:
            raise ValueError("Give key_file its cert_file.")
        files = (self.ca_file, self.cert_file, self.key_file)
        scheme = self.url.get_secret_value().partition("://")[0]
        if scheme not in TLS_SCHEMES and any(files):
            raise ValueError(
                f"ca_file, cert_file and key_file are for TLS, and url is {scheme}://: change the "
                "one or leave out the others."
            )
        return self
