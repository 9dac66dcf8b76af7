"""The bases of the settings' sections: a table each, and what both servers' share."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from groupflow.core.errors import ConfigError, Problem
from groupflow.core.masking import mask_url
from groupflow.core.urls import split_url
from groupflow.settings.transport import TLS_FILES, TLS_SCHEMES, stays_here, with_tls
from groupflow.settings.types import FileName, SecretUrl


class Section(BaseModel):
    """One table of the file: frozen, and unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Server(Section):
    """What both servers' sections share: where it is, and how the way there is secured."""

    url: SecretUrl
    ca_file: FileName = ""
    """PEM file of the CA to trust alone; empty: those of the system. SECURITY.md says what it
    needs."""
    cert_file: FileName = ""
    """PEM file of our own certificate, where the server asks for one."""
    key_file: FileName = ""
    """PEM file of its key; empty: it is in cert_file."""
    allow_plaintext: bool = False
    """Whether a connection to another machine may go without TLS."""

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

    def connection_url(self, section: str) -> str:
        """Where and how to connect, with the TLS files in the URL's query.

        Raises:
            ConfigError: it is plaintext to another machine, or a TLS file can't be used; `section`
                is named in it.
        """
        url = self.url.get_secret_value()
        scheme = split_url(url).scheme
        if scheme not in TLS_SCHEMES:
            if self.allow_plaintext or stays_here(url):
                return url
            secure = scheme.replace("amqp", "amqps").replace("redis", "rediss")
            remedy = (
                "It is plaintext to another machine: anyone on the way can read and change "
                f"jobs and passwords. Use {secure}://, or set {section}.allow_plaintext = true "
                "where the network itself is safe."
            )
            raise ConfigError([Problem(f"{section}.url", mask_url(url), remedy)])
        files = {name: path for name in TLS_FILES if (path := getattr(self, name))}
        for name, path in files.items():
            if not Path(path).is_file():
                remedy = "There is no such file: correct the path, or the rights on the way to it."
                raise ConfigError([Problem(f"{section}.{name}", path, remedy)])
        try:
            return with_tls(url, files)
        except (OSError, ValueError) as error:
            remedy = (
                f"They can't be used for TLS ({error}): each must be PEM, without a passphrase."
            )
            settings = ", ".join(f"{section}.{name}" for name in files) or f"{section}.url"
            raise ConfigError([Problem(settings, "", remedy)]) from None
