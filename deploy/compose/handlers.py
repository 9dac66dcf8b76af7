"""A handler to begin with; yours go into an image on top of groupflow's."""

from groupflow import App, Task

app = App()


@app.handler("import.contacts", timeout=60)
async def import_contacts(task: Task) -> None:
    """Say what came."""
    task.log.info("contacts.imported", rows=len(task.json()["rows"]))
