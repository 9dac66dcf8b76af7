#!lua flags=allow-oom
-- archive: a dead letter's body lies in RabbitMQ's stream, and was read back from there: only then it goes
-- from here. Only while it is the same death, and its body is still here.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 id · 2 died at (µs) · 3 offset in the stream · 4 message id there · 5 what stays of its
--          envelope
-- returns  1, or 0 where there is nothing to be removed (any more)
local id = ARGV[1]
local died = call('ZSCORE', K.bodies, id)
if not died or digits(died) ~= digits(ARGV[2]) then return 0 end
remove_body(id)
call('HSET', K.tasks, id, ARGV[5])
call('HSET', K.life .. id, 'offset', ARGV[3], 'archived_as', ARGV[4])
call('HINCRBY', K.count, 'archived', 1)
return 1
