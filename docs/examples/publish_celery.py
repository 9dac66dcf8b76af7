"""Celery hands over what must run in order. Run: celery --app publish_celery worker."""

import os
from typing import Any

from celery import Celery, Task

from groupflow import BrokerUnavailable, Message, Publisher, PublishFailed

AMQP = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost/")
QUEUE = os.environ.get("AMQP_QUEUE", "groupflow.jobs")

app = Celery(__name__, broker=os.environ.get("CELERY_BROKER", AMQP))
publisher = Publisher(AMQP, QUEUE, timeout=5).sync()


@app.task(bind=True, acks_late=True, max_retries=None)
def import_contacts(self: Task, rows: list[dict[str, Any]]) -> list[str]:
    body = {"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact"}
    messages = [
        Message({**body, **row}, type="import.contacts", id=f"{self.request.id}-{n}")
        for n, row in enumerate(rows)
    ]
    try:
        return publisher.publish_many(messages)
    except (BrokerUnavailable, PublishFailed) as error:
        raise self.retry(exc=error, countdown=10) from error
