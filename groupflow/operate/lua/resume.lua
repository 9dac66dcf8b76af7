#!lua flags=allow-oom
-- resume: let a paused group, or everything, go on. A group paused by name stays so when everything
-- is resumed.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 group, '' for everything
-- returns  1, or 0 if it was not paused
return resume(ARGV[1], clock())
