#!lua flags=allow-oom
-- follow: the same as `enqueue` (see there) with a batch of follow-up tasks, in full memory too: they take the place of
-- what waits to be told, and as many bytes.
return take_batch()
