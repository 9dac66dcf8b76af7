#!lua flags=allow-oom
-- run_now: make a task due that is delayed by its message or for its next attempt. A task that holds its group
-- stays its head; one that stands aside goes back to its place. If its rule debounces, its burst is over: a
-- task that replaces it before it is claimed is due at once too.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 id · 2 group ('' = plain)
-- returns  1, or 0 if no such task is delayed (any more)
local refusal = other_layout()
if refusal then return refusal end
local id, group, now = ARGV[1], ARGV[2], clock()
local task_state = K.task_state .. id
local facts = call('HMGET', task_state, 'due', 'sequence')
if not facts[1] or not facts[2] or tonumber(facts[1]) <= now then return 0 end
if call('HEXISTS', K.tasks, id) == 0 or call('ZSCORE', K.dead, id) then return 0 end
call('HSET', task_state, 'due', digits(now), 'order', digits(now))
remove_delay(id)
local entry = facts[2] .. '+' .. id
local _, burst = burst_of(entry)
if burst then bursts().enter(burst, bursts().OVER, entry) end
if leave_aside(entry, group) then
  put_back(entry, group, now)
else
  place(group, now)
end
wake()
return 1
