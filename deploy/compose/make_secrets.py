"""Makes up the passwords of compose.yaml: `python3 make_secrets.py`, once, before the first start.

Each file of `secrets/` is handed to the containers that need it. The folder is for its owner alone;
the files in it can be read by the users of the containers, whose numbers are not this one's. Files
that are there already stay; to change passwords remove the folder and start all containers anew.
"""

from __future__ import annotations

import base64
import hashlib
import json
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
    users = {
        "groupflow": (daemon, rf"^{QUEUE}(\.dead)?$", rf"^{QUEUE}\.dead$", rf"^{QUEUE}(\.dead)?$"),
        "groupflow-publisher": (publisher, "^$", r"^amq\.default$", "^$"),
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
    """Write every file that is missing; their names.

    Files that share a password are made together, or not at all.
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
    there = [name for name in files if (folder / name).exists()]
    if there:
        return []
    for name, text in files.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)
    return list(files)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "secrets"
    made = make(target)
    print(f"{target}: {', '.join(made) if made else 'there already, nothing was changed'}")
