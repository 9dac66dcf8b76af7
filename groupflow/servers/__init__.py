"""Private Redis, Valkey and RabbitMQ servers for the demo and the tests."""

from groupflow.servers.errors import MissingServer, ServerFailed
from groupflow.servers.launch import PrivateServers, private_servers
from groupflow.servers.rabbitmq import RabbitmqServer
from groupflow.servers.redis import RedisServer
from groupflow.servers.valkey import ValkeyServer

__all__ = [
    "MissingServer",
    "PrivateServers",
    "RabbitmqServer",
    "RedisServer",
    "ServerFailed",
    "ValkeyServer",
    "private_servers",
]
