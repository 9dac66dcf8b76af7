"""Publish with groupflow's own publisher: confirms, ids, order, reconnects.

python publish.py amqp://guest:guest@localhost/ groupflow.jobs
"""

import asyncio
import sys

from groupflow import Message, Publisher, QueueMissing


async def main(url: str, queue: str) -> None:
    """Publish one message, then many in order."""
    contact = {"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact"}
    async with Publisher(url, queue) as publisher:
        try:
            id_ = await publisher.publish({**contact, "id": 7}, type="import.contacts")
        except QueueMissing:
            sys.exit("No queue yet: start a daemon, which declares it.")
        print("published", id_)

        messages = [
            Message({**contact, "id": n}, type="import.contacts", id=f"contact-{n}")
            for n in range(1000)
        ]
        ids = await publisher.publish_many(messages)
        print("published", len(ids), "in order")


asyncio.run(main(*sys.argv[1:]))
