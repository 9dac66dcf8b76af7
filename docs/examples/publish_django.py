"""A project in one file, which publishes behind the commit. Run: publish_django.py runserver."""

import os
import sys
from functools import partial
from secrets import token_hex

import django
from django.conf import settings
from django.core.management import execute_from_command_line
from django.core.wsgi import get_wsgi_application
from django.db import connection, transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path

from groupflow import Publisher

settings.configure(
    SECRET_KEY=token_hex(),
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    GROUPFLOW_URL=os.environ.get("AMQP_URL", "amqp://guest:guest@localhost/"),
    GROUPFLOW_QUEUE=os.environ.get("AMQP_QUEUE", "groupflow.jobs"),
)
django.setup()

publisher = Publisher(settings.GROUPFLOW_URL, settings.GROUPFLOW_QUEUE, timeout=5).sync()


def import_contact(_: HttpRequest, contact: int) -> JsonResponse:
    body = {"app_name": "crm", "tenant_id": 42, "meta_obj_name": "contact", "id": contact}
    task = f"contact-{contact}"
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS contact (id INTEGER PRIMARY KEY)")
            cursor.execute("INSERT INTO contact VALUES (%s)", [contact])
        transaction.on_commit(partial(publisher.publish, body, type="import.contacts", id=task))
    return JsonResponse({"task": task}, status=202)


urlpatterns = [path("contacts/<int:contact>/import", import_contact)]
application = get_wsgi_application()

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
