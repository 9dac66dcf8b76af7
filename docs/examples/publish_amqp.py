"""Publish by plain AMQP, here with aio-pika: what every client in any language has to do.

python publish_amqp.py amqp://guest:guest@localhost/ groupflow.jobs
"""

import asyncio
import json
import sys
from uuid import uuid4

import aio_pika


async def main(url: str, queue: str) -> None:
    """Publish one message so that it can't be lost."""
    async with await aio_pika.connect(url) as connection:
        # With confirms, and with what can't be routed raised as an error.
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        body = {"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact", "id": 7}
        message = aio_pika.Message(
            json.dumps(body).encode(),
            content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=uuid4().hex,  # publish it again under the same one, and it is one task
            type="import.contacts",
            headers={"x-delay": 60_000},  # milliseconds
        )
        await channel.default_exchange.publish(message, queue, mandatory=True, timeout=30)
        print("published", message.message_id)


asyncio.run(main(*sys.argv[1:]))
