"""Publish by plain AMQP, here with aio-pika.

python publish_amqp.py amqp://guest:guest@localhost/ "" groupflow.jobs
"""

import asyncio
import json
import sys
from uuid import uuid4

import aio_pika


async def main(url: str, exchange: str, key: str) -> None:
    """Publish one message so that it can't be lost."""
    async with await aio_pika.connect(url) as connection:
        # With confirms; a message that no queue takes raises an error.
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        body = {"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact", "id": 7}
        message = aio_pika.Message(
            json.dumps(body).encode(),
            content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=uuid4().hex,  # published again under the same id, it is one task
            type="import.contacts",
        )
        to = channel.default_exchange
        if exchange:
            to = await channel.get_exchange(exchange, ensure=False)
        await to.publish(message, key, mandatory=True, timeout=30)
        print("published", message.message_id)


asyncio.run(main(*sys.argv[1:]))
