#!lua flags=allow-oom
-- cancel: a task is to be cancelled. It is noted, and daemons hear of it: one that is claimed ends with its attempt, or
-- before it begins. The caller ends one that waits right behind this (`drop_waiting`); if it is claimed before that, the
-- claim ends it.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 id · 2 who wants that, and why (JSON)
-- returns  1, or 0 if no such task waits or runs
local refusal = other_layout()
if refusal then return refusal end
local id = ARGV[1]
if call('HEXISTS', K.tasks, id) == 0 or call('ZSCORE', K.dead, id) then return 0 end
request_cancel(id, ARGV[2], clock())
return 1
