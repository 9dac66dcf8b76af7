#!lua
-- redrive: a dead letter becomes a task again, at attempt 1 of its last stage, at its original place
-- in its group: where others have gone on since, that is first. A park that its death laid on the
-- group is lifted.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 id · 2 group ('' = plain) · 3 its envelope and body, where it was routed anew, else ''
--          · 4 its priority then (µs) · 5 its type · 6 its tenant ('' = none) · 7 its scope
-- returns  1, or 0 where no such dead letter is there
local id, group = ARGV[1], ARGV[2]
if call('ZREM', K.dead, id) == 0 then return 0 end
local now = clock()
local life = K.life .. id
local element = (call('HGET', life, 'arrival') or digits(now)) .. '+' .. id
if ARGV[3] ~= '' then
  call('HSET', K.tasks, id, ARGV[3])
  call('HSET', life, 'priority', ARGV[4], 'type', ARGV[5], 'tenant', ARGV[6], 'scope', ARGV[7])
end
unpark(call('HGET', life, 'group') or '', id)
call('HDEL', life, 'reason', 'due', 'order', 'attempts', 'door')
call('HSET', life, 'group', group, 'attempt', 1, 'crashes', 0)
call('HINCRBY', life, 'redriven', 1)
put_back(element, group, now)
call('HINCRBY', K.count, group == '' and 'queued_plain' or 'queued_grouped', 1)
call('HINCRBY', K.count, 'redriven', 1)
wake()
return 1
