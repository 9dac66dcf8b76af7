"""Private Redis, Valkey and RabbitMQ servers for the demo and the tests."""

from groupflow.servers.launch import PrivateServers, private_servers
from groupflow.servers.process import ServerFailed
from groupflow.servers.rabbitmq import RabbitmqServer
from groupflow.servers.redis import RedisServer, ValkeyServer
from groupflow.servers.server import MissingServer

__all__ = [
    "MissingServer",
    "PrivateServers",
    "RabbitmqServer",
    "RedisServer",
    "ServerFailed",
    "ValkeyServer",
    "private_servers",
]
