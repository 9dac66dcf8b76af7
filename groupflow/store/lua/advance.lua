#!lua flags=allow-oom
-- advance: this stage is done; the task waits again, for its next stage, at attempt 1. In a group it stays the head, or
-- lines up at the back, so that others get their turn. With a delay it waits as after a failure, as the head or aside;
-- but not at all where `hasten` met it while it ran. Where there is no room for what it then carries, the attempt has
-- failed instead: this one call decides which.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 slot · 4 fence · 5 entry · 6 group · 7 stage
--          · 8 context (JSON) · 9 'hold' or 'step-aside' · 10 delay of the next stage (µs), 0 for none
--          · 11 'forget-crashes' for a shard of a scan whose turn went well: its crashes so far don't count any more,
--          and with a delay it sleeps; else '' · 12 tenant · 13 scope, '' each where there is none
--          · 14 to 16 what `tally` takes (`failing.lua`)
--          · 17 'retry' or 'bury', what the failed attempt comes to; '' where there always is room
--          · 18 bytes that tasks may carry · 19 the same of one tenant · 20 and on: what `try_again` or
--          `give_up` takes (`failing.lua`)
-- returns  { state, { 1 (accepted, also a repeat), 4 (there was no room: the attempt has failed), 3 (the same, and
--          superseded), 5 (accepted, and cancelled), 6 (the same, since a newer task came) or 0 (the fence is stale) } }
local id, tenant = id_of(ARGV[5]), tenant_named(ARGV[12], ARGV[13])

-- The room counts what a task carries already: so a task that grows no larger always finds some.
local function finds_room()
  if ARGV[17] == '' then return true end
  local before = tonumber(call('HGET', K.task_state .. id, 'carried_bytes') or nil) or 0
  local more = #ARGV[7] + #ARGV[8] - before
  for _, text in ipairs({ 'errors', 'corrections' }) do more = more + call('HSTRLEN', K.task_state .. id, text) end
  if more <= 0 then return true end
  local all = tonumber(call('HGET', K.count, 'carried_bytes') or nil) or 0
  local own = tonumber(call('HGET', K.carried, tenant) or nil) or 0
  return all + more <= tonumber(ARGV[18]) and own + more <= tonumber(ARGV[19])
end

local function go_on(entry, group, now)
  local priority = tonumber(call('HGET', K.task_state .. id, 'priority') or 0)
  local waiting = with_state(entry)
  if group ~= '' and ARGV[9] == 'step-aside' then
    -- A new place in line needs a new arrival; the task state keeps the first one.
    call('HSETNX', K.task_state .. id, 'enqueued', string.sub(entry, 1, 16))
    local sequence = digits(next_sequence(now))
    call('HSET', K.count, 'sequence', sequence)
    waiting = sequence .. '+' .. id
  end
  local delay = tonumber(ARGV[10])
  if call('HDEL', K.task_state .. id, 'hastened') == 1 then delay = 0 end
  local due = delay > 0 and digits(now + delay)
  local order = due or digits(now - priority)
  keep_state(waiting, group, 'stage', ARGV[7], 'context', ARGV[8], 'attempt', 1, 'order', order)
  carry(id, tenant)
  if ARGV[11] == 'forget-crashes' then call('HDEL', K.task_state .. id, 'crashes', 'lost_leases') end
  if due then call('HSET', K.task_state .. id, 'due', due) else call('HDEL', K.task_state .. id, 'due') end
  if due and (group == '' or ARGV[9] == 'step-aside') then
    stand_aside(waiting, group, due)
    if ARGV[11] == 'forget-crashes' then put_on('asleep', id, 1) end
    if group ~= '' then place(group, now) end
  else
    put_back(waiting, group, now)
  end
  call('HINCRBY', K.count, 'advanced', 1)
  tally(14)
  count_ends(group, 1, true)
  wake_for(group)
end

return settle(function(entry, group, now)
  local cancelled = cancel_instead(entry, group, now)
  if cancelled then return cancelled end
  if finds_room() then return go_on(entry, group, now) end
  if ARGV[17] == 'retry' then return try_again(entry, group, 20, now) and 3 or 4 end
  give_up(entry, group, 20, now)
  return 4
end)
