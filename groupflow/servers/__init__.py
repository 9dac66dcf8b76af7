"""Private Redis, Valkey and RabbitMQ servers for the demo and the tests."""
