#!lua
-- redrive: a dead letter becomes a task again, at attempt 1 of its last stage, at its original place
-- in its group: first, if later tasks have gone on since. A park that its death laid on the group is
-- lifted. A letter that died since there was no room for delayed tasks gets the rest of its delay. Where its
-- body is corrected, a note of the old one goes to its `corrections`, a line each: when (16 digits, µs) and JSON.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 id · 2 group ('' = plain) · 3 its envelope and body, if it was routed again or its body
--          lies in RabbitMQ, else '' · 4 its priority (µs) if it was routed again, else '' · 5 its type
--          · 6 its tenant ('' = none) · 7 its scope
--          · 8 bytes that may wait for delays · 9 the message id under which what is given lay in
--          RabbitMQ, '' if it lay here · 10 its errors · 11 its context (both JSON) if they lay there
--          · 12 its pool, if it was routed again and comes to one, else '' · 13 random text, for a salt if there is
--          none yet, where its id is to stay known in the scope that it had, else '' · 14 its corrections if they
--          lay in RabbitMQ · 15 where what is given has another body: the note of the old one (JSON), else ''
--          · 16 if ARGV 3 is given: when it died (µs), since another death may be of another body · 17 by rule, how
--          many tasks may wait in one of its groups (JSON), '' for no bounds · 18 its rule · 19 its origin (JSON),
--          '' for none, both if ARGV 3 is given
-- returns  1; 0 if there is no such dead letter; -1 if its body lies in RabbitMQ, and was not given;
--          -2 if it would wait for the rest of a delay, and there is no room for that; -3 if its group is full
local refusal = other_layout()
if refusal then return refusal end
local id, group = ARGV[1], ARGV[2]
local now = clock()
local CORRECTIONS = 4 -- of a task, that are kept: the latest

local function note_correction(note)
  local lines = {}
  for line in string.gmatch(call('HGET', K.task_state .. id, 'corrections') or '', '[^\n]+') do
    lines[#lines + 1] = line
  end
  lines[#lines + 1] = digits(now) .. note
  local kept = table.concat(lines, '\n', math.max(1, #lines - CORRECTIONS + 1))
  call('HSET', K.task_state .. id, 'corrections', kept)
end

local task_state = K.task_state .. id
local died = call('ZSCORE', K.dead, id)
if not died or (ARGV[3] ~= '' and digits(died) ~= digits(ARGV[16])) then return 0 end
local archived = call('HGET', task_state, 'archived_as')
if archived and archived ~= ARGV[9] then return -1 end
local entry = (call('HGET', task_state, 'sequence') or digits(now)) .. '+' .. id

-- A group that is parked behind this letter waits for it: no bound keeps it out.
local function finds_group_full()
  if group == '' or ARGV[17] == '' or is_parked_behind(group, id) then return false end
  if call('HEXISTS', task_state, 'drained') == 1 then return false end
  local rule = ARGV[3] ~= '' and ARGV[18] or limits().facts_of(entry)
  local bound = cjson.decode(ARGV[17])[rule]
  return bound and call('LLEN', K.lane .. group) >= bound
end

if finds_group_full() then return -3 end
local kept = call('HMGET', task_state, 'standing', 'due')
local due = kept[1] and tonumber(kept[2] or nil)
local bytes = ARGV[3] ~= '' and #ARGV[3] or call('HSTRLEN', K.tasks, id)
if due and due > now and has_no_room(bytes, tonumber(ARGV[8])) then return -2 end
call('ZREM', K.dead, id)
remove_body(id)
if ARGV[13] ~= '' and scope_of(id) ~= ARGV[7] then stay_known(id, now, ARGV[13]) end
if ARGV[3] ~= '' then
  call('HSET', K.tasks, id, ARGV[3])
  call('HDEL', task_state, 'offset', 'archived_as')
  if archived and ARGV[10] ~= '' then call('HSET', task_state, 'errors', ARGV[10]) end
  if archived and ARGV[11] ~= '' then call('HSET', task_state, 'context', ARGV[11]) end
  if archived and ARGV[14] ~= '' then call('HSET', task_state, 'corrections', ARGV[14]) end
  if ARGV[15] ~= '' then note_correction(ARGV[15]) end
  call('HSET', task_state, 'type', ARGV[5], 'tenant', ARGV[6], 'scope', ARGV[7])
end
if ARGV[4] ~= '' then
  call('HSET', task_state, 'priority', ARGV[4])
  call('HDEL', task_state, 'rule', 'pool', 'origin')
  if ARGV[18] ~= '' then call('HSET', task_state, 'rule', ARGV[18]) end
  if ARGV[19] ~= '' then call('HSET', task_state, 'origin', ARGV[19]) end
  if ARGV[12] ~= '' then
    call('HSET', task_state, 'pool', ARGV[12])
    call('HSETNX', K.pools, ARGV[12], digits(now))
  end
end
unpark(call('HGET', task_state, 'group') or '', id)
remove_reason(id)
call('HDEL', task_state, 'attempts', 'lost_leases', 'kind', 'door', 'standing')
call('HSET', task_state, 'group', group, 'attempt', 1, 'crashes', 0)
call('HINCRBY', task_state, 'redriven', 1)
local whose = call('HMGET', task_state, 'tenant', 'scope')
carry(id, tenant_named(whose[1], whose[2]))
if due and due > now then
  add_delay(id, bytes, id, due)
  if group == '' or kept[1] == 'aside' then
    stand_aside(entry, group, due)
  else
    insert(K.lane .. group, entry)
    place(group, now)
  end
else
  call('HDEL', task_state, 'due', 'order')
  put_back(entry, group, now)
end
call('HINCRBY', K.count, group == '' and 'queued_plain' or 'queued_grouped', 1)
call('HINCRBY', K.count, 'redriven', 1)
wake()
if group ~= '' then hold_back(group) end
return 1
