"""One publisher for the application. Run: uvicorn publish_fastapi:app."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request

from groupflow import BrokerUnavailable, Publisher, PublishFailed, Unroutable

AMQP = os.environ.get("AMQP_URL", "amqp://guest:guest@localhost/")
QUEUE = os.environ.get("AMQP_QUEUE", "groupflow.jobs")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.publisher = Publisher(AMQP, QUEUE, timeout=5)
    yield
    await app.state.publisher.close()


app = FastAPI(lifespan=lifespan)


def publisher_of(request: Request) -> Publisher:
    return request.app.state.publisher


@app.post("/contacts/{contact}/import", status_code=202)
async def import_contact(
    contact: int, rows: list[dict[str, Any]], publisher: Annotated[Publisher, Depends(publisher_of)]
) -> dict[str, str]:
    body = {"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact", "id": contact}
    try:
        task = await publisher.publish({**body, "rows": rows}, type="import.contacts")
    except Unroutable as error:
        raise HTTPException(422, str(error)) from error
    except (BrokerUnavailable, PublishFailed) as error:
        raise HTTPException(503, "not taken, try again") from error
    return {"task": task}
