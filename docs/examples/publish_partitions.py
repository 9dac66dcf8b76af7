"""Publish by plain AMQP where the queue has several partitions: the exchange, and a routing key.

python publish_partitions.py amqp://guest:guest@localhost/ groupflow.jobs
"""

import asyncio
import json
import sys
from uuid import uuid4

import aio_pika


async def main(url: str, queue: str) -> None:
    """Publish two messages of a group, which so come by one queue, in order."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        exchange = await channel.get_exchange(queue, ensure=False)
        for id_ in (7, 8):
            body = {"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact", "id": id_}
            message = aio_pika.Message(
                json.dumps(body).encode(),
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                message_id=uuid4().hex,
                type="import.contacts",
            )
            key = f"{body['meta_obj_name']}:{body['tenant_id']}"  # the group, as its rule makes it
            await exchange.publish(message, key, mandatory=True, timeout=30)
        print("published", message.message_id)


asyncio.run(main(*sys.argv[1:]))
