#!lua flags=allow-oom
-- move_end: remove the keys of a partition that is to be none any more, unless something lies in it that could not be
-- moved.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     the keys to remove, none to only look
-- returns  how many tasks, dead letters, entries of the history and of the outbox are left
local left = call('LLEN', K.outbox) + call('HLEN', K.tasks) + call('HLEN', K.history_new) + call('HLEN', K.history_old)
if left == 0 and #ARGV > 0 then call('UNLINK', unpack(ARGV)) end
return left
