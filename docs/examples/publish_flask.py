"""One publisher for all threads and worker processes. Run: flask --app publish_flask run."""

import os

from flask import Flask, request

from groupflow import BrokerUnavailable, Publisher, PublishFailed, Unroutable

AMQP = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost/")
QUEUE = os.environ.get("AMQP_QUEUE", "groupflow.jobs")

app = Flask(__name__)
publisher = Publisher(AMQP, QUEUE, timeout=5).sync()


@app.post("/contacts/<int:contact>/import")
def import_contact(contact: int) -> tuple[dict[str, str], int]:
    body = {"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact", "id": contact}
    try:
        task = publisher.publish({**body, "rows": request.get_json()}, type="import.contacts")
    except Unroutable as error:
        return {"error": str(error)}, 422
    except (BrokerUnavailable, PublishFailed):
        return {"error": "not taken, try again"}, 503
    return {"task": task}, 202
