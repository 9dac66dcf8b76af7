"""What the log is told of Redis by all clients and threads of a daemon."""

from __future__ import annotations

from threading import Thread

from structlog.testing import capture_logs

from groupflow.flow.hearing import StoreHearing


def test_many_threads_tell_of_it_once() -> None:
    hearing = StoreHearing()
    with capture_logs() as logs:
        threads = [Thread(target=hearing.failed, args=("a", "no answer")) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [log["event"] for log in logs] == ["store.unavailable"]
    assert hearing.is_away
