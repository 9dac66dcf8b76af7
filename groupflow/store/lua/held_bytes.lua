-- Behind the prelude, in every script: what is counted in bytes.

-- What Redis may hold for long is counted in bytes: `delayed_bytes` of tasks that wait for a message's delay, theirs or
-- one ahead; `dead_bytes` of dead letters that are here whole. A task state notes what the task adds, under the same
-- name; that is taken off again, once.
local function put_on(total, id, bytes)
  call('HSET', K.task_state .. id, total, bytes)
  call('HINCRBY', K.count, total, bytes)
end

local function take_off(total, id)
  local bytes = call('HGET', K.task_state .. id, total)
  if not bytes then return end
  call('HDEL', K.task_state .. id, total)
  call('HINCRBY', K.count, total, -bytes)
end

-- A tenant is an application and one of its tenants: 8 digits of scope (see `ids.lua`), and the tenant's name.
local NO_SCOPE = '--------' -- the scope of a task without one
local function tenant_named(name, scope) return (scope and scope ~= '' and scope or NO_SCOPE) .. (name or '') end

-- `carried_bytes` counts the stages, contexts, failed attempts and earlier bodies of tasks that wait or run, and
-- `carried` the same by tenant. A task state notes both; that is taken off again, once.
local CARRIED = { 'stage', 'context', 'errors', 'corrections' }

-- Nearly always no task carries anything: a script asks that once, and only for a task with a task state.
local may_carry
local function put_down(id)
  if may_carry == nil then may_carry = call('EXISTS', K.carried) == 1 end
  local whose = may_carry and call('HGET', K.task_state .. id, 'carried_for')
  if not whose then return end
  local bytes = call('HGET', K.task_state .. id, 'carried_bytes')
  call('HDEL', K.task_state .. id, 'carried_for')
  take_off('carried_bytes', id)
  if call('HINCRBY', K.carried, whose, -bytes) <= 0 then call('HDEL', K.carried, whose) end
end

-- Call it once the texts are written: it replaces what the task carried before.
local function carry(id, tenant)
  put_down(id)
  local bytes = 0
  for _, text in ipairs(CARRIED) do bytes = bytes + call('HSTRLEN', K.task_state .. id, text) end
  if bytes == 0 then return end
  put_on('carried_bytes', id, bytes)
  call('HSET', K.task_state .. id, 'carried_for', tenant)
  call('HINCRBY', K.carried, tenant, bytes)
  may_carry = true
end

-- Bytes that a delayed task takes in Redis beside its envelope, as measured: its task state, and its places in lists
-- and indexes.
local DELAY_COSTS = 768

-- A shard of a scan that found nothing sleeps: it is queued, but no work that waits. So `asleep` counts it until it is
-- due, by its time or an operator, or is gone.
local function rouse(id)
  if sub(id, 1, 5) == 'scan:' then take_off('asleep', id) end
end

-- A task waits for no delay any more: it is due, runs, or is gone.
local function remove_delay(id)
  call('ZREM', K.late, id)
  take_off('delayed_bytes', id)
  leave_unknown(id)
  rouse(id)
end

-- Bytes that a dead letter takes in Redis beside its texts, as measured: its task state, and its places in lists and
-- indexes. Its id stands in four of them.
local LETTER_COSTS = 1360
local LETTER_TEXTS = { 'group', 'type', 'tenant', 'reason', 'kind', 'errors', 'stage', 'context', 'corrections' }

-- An archived letter's reason stands in pieces: Redis keeps a hash of short values in half the memory.
local function reason_of(id)
  local pieces = call('HMGET', K.task_state .. id, 'reason', 'reason_2', 'reason_3', 'reason_4')
  return (pieces[1] or '') .. (pieces[2] or '') .. (pieces[3] or '') .. (pieces[4] or '')
end

local function remove_reason(id)
  call('HDEL', K.task_state .. id, 'reason', 'reason_2', 'reason_3', 'reason_4')
end

-- A dead letter begins, its task state written: all that it holds counts, and all but a stub may leave Redis.
local function add_letter(id, now)
  local bytes = LETTER_COSTS + 4 * #id + call('HSTRLEN', K.tasks, id)
  for _, text in ipairs(LETTER_TEXTS) do bytes = bytes + call('HSTRLEN', K.task_state .. id, text) end
  call('ZADD', K.dead, digits(now), id)
  call('ZADD', K.bodies, digits(now), id)
  put_on('dead_bytes', id, bytes)
end

-- The letter's body leaves, or the letter ends.
local function remove_body(id)
  call('ZREM', K.bodies, id)
  call('ZREM', K.staying, id)
  take_off('dead_bytes', id)
end
