#!lua flags=allow-oom
-- archive: remove from Redis what a dead letter holds, once it lies in RabbitMQ's stream and was read back.
-- Only while it is the same death, and its body is still here. What lists show and a redrive needs at once
-- stays.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 id · 2 died at (µs) · 3 offset in the stream · 4 message id there · 5 what stays of its
--          envelope · 6 '1' where its errors, its context and its corrections lie there too ·
--          then what stays of its
--          reason, in four pieces at most
-- returns  1, or 0 if there is nothing to remove (any more)
local id = ARGV[1]
local task_state = K.task_state .. id
local died = call('ZSCORE', K.bodies, id)
if not died or digits(died) ~= digits(ARGV[2]) then return 0 end
remove_body(id)
call('HSET', K.tasks, id, ARGV[5])
if ARGV[6] == '1' then call('HDEL', task_state, 'errors', 'context', 'corrections') end
remove_reason(id)
for i = 7, #ARGV do call('HSET', task_state, i == 7 and 'reason' or 'reason_' .. (i - 6), ARGV[i]) end
call('HSET', task_state, 'offset', ARGV[3], 'archived_as', ARGV[4])
-- Write the hash again: short values take half the memory, but Redis doesn't shrink a hash that was large.
local facts = call('HGETALL', task_state)
call('DEL', task_state)
call('HSET', task_state, unpack(facts))
call('HINCRBY', K.count, 'archived', 1)
return 1
