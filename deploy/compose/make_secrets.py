"""Makes up the passwords of compose.yaml: `python3 make_secrets.py`, once, before the first start.

Each file of `secrets/` is for its owner alone (0600), whatever the folder's mode and the umask are;
compose.yaml's service `secrets` hands each to the containers that need it. Files that are there
already stay, but for a mode that lets others read them, which is tightened. To change passwords
remove the folder and start all containers anew.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import sys
from pathlib import Path

HERE = Path(__file__).parent
ACL = HERE.parent / "redis" / "groupflow.acl"
VHOST = "/groupflow"
QUEUE = r"groupflow\.jobs"


def redis_users(daemon: str, admin: str) -> str:
    """The ACL file: the daemons, an operator, and a health check that may only ask for a PONG."""
    return "\n".join(
        [
            "user default off",
            f"{ACL.read_text().strip()} #{hashlib.sha256(daemon.encode()).hexdigest()}",
            f"user admin on #{hashlib.sha256(admin.encode()).hexdigest()} ~* &* +@all",
            "user health on nopass resetkeys resetchannels -@all +ping",
            "",
        ]
    )


def rabbitmq_definitions(daemon: str, publisher: str) -> str:
    """The virtual host, its users, and rights as deploy/rabbitmq/permissions.sh gives them."""
    ours = rf"^{QUEUE}(\.dead)?$"
    users = {
        "groupflow": (daemon, ours, rf"^({QUEUE}\.dead|amq\.default)$", ours),
        "groupflow-publisher": (publisher, r"^amq\.gen-", r"^amq\.default$", r"^amq\.gen-"),
    }
    definitions = {
        "vhosts": [{"name": VHOST}],
        "users": [
            {
                "name": name,
                "password_hash": _rabbitmq_hash(password),
                "hashing_algorithm": "rabbit_password_hashing_sha256",
                "tags": "",
            }
            for name, (password, *_) in users.items()
        ],
        "permissions": [
            {"user": name, "vhost": VHOST, "configure": configure, "write": write, "read": read}
            for name, (_, configure, write, read) in users.items()
        ],
    }
    return json.dumps(definitions, indent=2) + "\n"


def _rabbitmq_hash(password: str) -> str:
    salt = secrets.token_bytes(4)
    return base64.b64encode(salt + hashlib.sha256(salt + password.encode()).digest()).decode()


def make(folder: Path) -> list[str]:
    """Write all files, where none is there yet; their names.

    Files share passwords: where only some are there, the program ends and says so.
    """
    redis, redis_admin, daemon, publisher = (secrets.token_urlsafe(24) for _ in range(4))
    vhost = VHOST.replace("/", "%2F")
    files = {
        "groupflow_redis__url": f"redis://groupflow:{redis}@redis:6379/0",
        "redis_admin_password": redis_admin,
        "redis_users.acl": redis_users(redis, redis_admin),
        "groupflow_rabbitmq__url": f"amqp://groupflow:{daemon}@rabbitmq:5672/{vhost}",
        "publisher_url": f"amqp://groupflow-publisher:{publisher}@localhost:5672/{vhost}",
        "rabbitmq_definitions.json": rabbitmq_definitions(daemon, publisher),
        "groupflow_http__token": secrets.token_urlsafe(24),
        "grafana_admin_password": secrets.token_urlsafe(24),
    }
    folder.mkdir(mode=0o700, exist_ok=True)
    there = [folder / name for name in files if os.path.lexists(folder / name)]
    if there:
        tighten(there)
        if missing := [name for name in files if folder / name not in there]:
            sys.exit(
                f"{folder}: {', '.join(missing)} missing, and the others may not fit to new ones. "
                "Remove the folder, run this again, and start all containers anew."
            )
        return []
    for name, text in files.items():
        write(folder / name, text)
    return list(files)


def write(file: Path, text: str) -> None:
    """Write a new file that is its owner's alone from its first moment on, never through a link."""
    number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w") as opened:
        os.fchmod(number, 0o600)  # a umask can only have taken from it
        opened.write(text)


def tighten(files: list[Path]) -> None:
    """Take from others the rights that an earlier version of this gave them."""
    for file in files:
        mode = file.stat().st_mode
        if mode & 0o077:
            file.chmod(mode & 0o700)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "secrets"
    made = make(target)
    print(f"{target}: {', '.join(made) if made else 'there already, nothing was changed'}")
