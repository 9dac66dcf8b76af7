"""The only code that knows RabbitMQ: the queue's shape, its consumer, its publisher."""
