#!lua flags=allow-oom
-- bury_row: a row of a table that a shard works through has failed for good, and becomes a dead letter of the shard's
-- group. Only the holder of that group may bury it.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 group · 2 fence of the claim that holds it · 3 id · 4 envelope and body · 5 type · 6 scope
--          · 7 reason · 8 kind · 9 the errors of its attempts (JSON) · 10 how many attempts failed
-- returns  1 (it is a dead letter, or was one before), or 0 where the fence is stale
local group, id = ARGV[1], ARGV[3]
local is_held = false
local holders = is_limiting() and limits().holders(group) or {} -- an operator may let more run in the group
holders[#holders + 1] = call('GET', K.lock .. group) or nil
for _, holder in ipairs(holders) do is_held = is_held or sub(holder, 1, 16) == digits(ARGV[2]) end
if not is_held then return 0 end
if has_ended(id) or call('HSETNX', K.tasks, id, ARGV[4]) == 0 then return 1 end
local now = clock()
local sequence = digits(next_sequence(now))
call('HSET', K.count, 'sequence', sequence)
call('HSET', K.task_state .. id, 'sequence', sequence, 'group', group, 'priority', 0, 'type', ARGV[5],
  'tenant', '', 'scope', ARGV[6], 'reason', ARGV[7], 'kind', ARGV[8], 'errors', ARGV[9], 'attempts', ARGV[10])
add_letter(id, now)
call('HINCRBY', K.count, 'taken', 1)
call('HINCRBY', K.count, 'buried', 1)
call('HINCRBY', K.tally, 'x--' .. ARGV[5], 1)
return 1
