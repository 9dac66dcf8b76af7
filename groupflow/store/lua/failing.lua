-- Behind the session and debouncing rules in the scripts that settle one claim: `retry`, `bury`, and `advance`, which
-- is a failed attempt where there is no room for what the stage hands on.

-- Settles a claim by `write`, which gets its entry, its group and the clock, and may return a verdict; only as long as
-- the slot has the claim. Returns what the script answers.
--   ARGV: 1 daemon · 2 session · 3 slot · 4 fence · 5 entry · 6 group
local function settle(write)
  local daemon, slot, fence, entry, group = ARGV[1], ARGV[3], digits(ARGV[4]), ARGV[5], ARGV[6]
  local state, now = session_state(daemon, ARGV[2]), clock()
  if state ~= 'OK' then return { state, {} } end
  local checkpoint = call('HGET', K.worker .. daemon, slot)
  local is_live = checkpoint and byte(checkpoint) == LIVE and sub(checkpoint, 2, 17) == fence
  if not is_live then return { 'OK', { settled_before(checkpoint) == fence and 1 or 0 } } end
  call('HSET', K.worker .. daemon, slot, 'S' .. fence)
  unlock(group, fence, now)
  if group ~= '' then call('HDEL', K.runs, group) end
  end_quarantine_of(daemon, fence)
  count_held(daemon, -1)
  return { 'OK', { write(entry, group, now) or 1 } }
end

-- Ends a task that would wait again, if it is to be cancelled. Returns the verdict then.
local function cancel_instead(entry, group, now)
  local verdict = end_if_cancelled(id_of(entry), group, now)
  if not verdict then return nil end
  count_ends(group, 1)
  if group ~= '' and place(group, now) then wake_for(group) end
  return verdict
end

-- Writes the state of a task: its place, and what has changed.
local function keep_state(entry, group, ...)
  call('HSET', K.task_state .. id_of(entry), 'sequence', sub(entry, 1, 16), 'group', group, ...)
end

-- Counts an attempt by its field in `tally`, and of a shard of a scan the rows that it has done, and those that failed and
-- come again. The script was told all three from the place `at` of its arguments on.
local function tally(at)
  call('HINCRBY', K.tally, ARGV[at], 1)
  for n, how in ipairs({ 'd', 'f' }) do
    if ARGV[at + n] ~= '0' then call('HINCRBY', K.tally, how .. '--' .. sub(ARGV[at], 4), ARGV[at + n]) end
  end
end

-- Of a failed attempt the script was told from the place `at` of its arguments on.

-- There will be another attempt; or none, where the task's rule debounces, and a newer one of its group and type waits:
-- that one replaces it. Returns whether it did.
--   at: next attempt's number · delay (µs) · 'hold' or 'step-aside' · the errors of its attempts (JSON) · 'group' or
--   'tenant' where nothing of that may start until then either, else 'task' · tenant · scope, '' where there is none
--   · its field in `tally`
local function try_again(entry, group, at, now)
  local id, due, waiting = id_of(entry), digits(now + ARGV[at + 1]), with_state(entry)
  local name = group ~= '' and bursts().name_of(id)
  local newest = name and call('HGET', K.debouncing, name)
  local other = newest and sub(newest, 17)
  local is_replaced = other and sequence_of(other) > sequence_of(entry)
  if is_replaced then
    bursts().supersede(entry, group, id_of(other), now)
  else
    if other then bursts().supersede_waiting(other, group, id, now) end
    keep_state(entry, group, 'attempt', ARGV[at], 'errors', ARGV[at + 3], 'due', due, 'order', due)
    carry(id, tenant_named(ARGV[at + 5], ARGV[at + 6]))
    if name then
      call('HDEL', K.task_state .. id, 'latest')
      bursts().enter(name, bursts().NONE, waiting)
    end
    if group ~= '' and ARGV[at + 2] == 'hold' then
      insert(K.lane .. group, waiting)
    else
      stand_aside(waiting, group, due)
    end
  end
  if group ~= '' and ARGV[at + 4] == 'group' then limits().close('g' .. group, due) end
  if ARGV[at + 4] == 'tenant' then
    local tenant = tenants().tenant_of(entry)
    if #tenant > 8 then tenants().close(tenant, due, now) end
  end
  if group ~= '' and place(group, now) then wake_for(group) end
  if not is_replaced then
    call('HINCRBY', K.count, 'retried', 1)
    call('HINCRBY', K.tally, ARGV[at + 7], 1)
  end
  count_ends(group, 1, not is_replaced)
  return is_replaced
end

-- There will be none: the task becomes a dead letter, body and all. Its group goes on, or is parked behind the death
-- until an operator redrives or drops it.
--   at: reason · the errors of its attempts (JSON) · 'park' or 'skip' · how many attempts failed · type · tenant
--   ('' = none) · kind: what the last attempt failed of, without its words · scope · what `tally`
--   takes, three of them · context (JSON) that it is to begin with when it is redriven, where that is another
local function give_up(entry, group, at, now)
  local id, reason = id_of(entry), ARGV[at]
  put_down(id)
  keep_state(entry, group, 'reason', reason, 'errors', ARGV[at + 1], 'attempts', ARGV[at + 3],
    'type', ARGV[at + 4], 'tenant', ARGV[at + 5], 'kind', ARGV[at + 6], 'scope', ARGV[at + 7])
  if ARGV[at + 11] then call('HSET', K.task_state .. id, 'context', ARGV[at + 11]) end
  add_letter(id, now)
  forget_cancel(id)
  note_end('dead', id, group, now, function()
    local errors = cjson.decode(ARGV[at + 1])
    local last = errors[#errors] or {}
    return { reason = reason, seconds = last.seconds, daemon = last.daemon }
  end)
  call('HINCRBY', K.count, 'buried', 1)
  tally(at + 8)
  if group ~= '' then
    if ARGV[at + 2] == 'park' then call('HSET', K.parked, group, cjson.encode({ id, digits(now), reason })) end
    if place(group, now) then wake_for(group) end
  end
  count_ends(group, 1)
end
