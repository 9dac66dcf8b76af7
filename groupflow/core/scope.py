"""Whose a message id is: ids are known apart for each application and tenant."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

UNKNOWN = ""  # of a message that names neither; all such messages of a queue share their ids

_DIGEST = 4  # bytes. A collision matters only between scopes that share a message id too


@lru_cache(maxsize=4096)
def scope_of(app: str | None, tenant: str | None) -> str:
    """A short digest of an application and a tenant, in hexadecimal."""
    if app is None and tenant is None:
        return UNKNOWN
    digest = blake2b(digest_size=_DIGEST)
    for part in (app, tenant):
        text = b"" if part is None else part.encode(errors="surrogatepass")
        length = -1 if part is None else len(text)
        digest.update(length.to_bytes(4, "big", signed=True) + text)
    return digest.hexdigest()
