-- Behind the session rules in `exchange` and `holdings`: what handing tasks to slots means.

-- Where tasks are claimed from: a puller claims from the indexes of its pool, a daemon from those of all. No pool has a
-- list in order of arrival.
local pool_asked = pool_of(ARGV[1])
local FROM = {
  ready = index_of('ready', pool_asked), quarantined_groups = index_of('quarantined_groups', pool_asked),
  ordered = index_of('ordered', pool_asked), quarantined_plain = index_of('quarantined_plain', pool_asked),
  plain = pool_asked and TAG or K.plain,
}

-- Bytes of envelopes and contexts that this script may still read. The caller fetches what goes beyond, by a command
-- each: Lua copies what it reads three times, and a claim may be of hundreds of tasks. A task without a task state is
-- small (`READ_WHOLE` in `enqueue.py`), as is what is not counted.
local may_read, SMALL = 4194304, 4096

local function lies_apart(bytes)
  if bytes > may_read then return true end
  may_read = may_read - bytes
  return false
end

-- The state of a task, without a context that the caller has to fetch; and the bytes of that context.
local function task_state_of(id)
  local key = K.task_state .. id
  local apart = call('HSTRLEN', key, 'context')
  if apart <= SMALL or not lies_apart(apart) then return call('HGETALL', key), 0 end
  local flat = {}
  for _, name in ipairs(call('HKEYS', key)) do
    if name ~= 'context' then
      flat[#flat + 1], flat[#flat + 2] = name, call('HGET', key, name)
    end
  end
  return flat, apart
end

-- How many bytes of an envelope the caller has to fetch: all of them, or none.
local function bytes_apart(entry, id)
  if not has_state(entry) then return 0 end
  local bytes = call('HSTRLEN', K.tasks, id)
  return bytes > SMALL and lies_apart(bytes) and bytes or 0
end

-- Appends what the caller has to know of a claim: seven values. The last is the rest of its run, which `running.lua`
-- fills in. Where the caller has to fetch the envelope or the context, the envelope is a number: the bytes of both.
local last = 0
local function add_row(rows, slot, fence, entry, group, id, envelope)
  local task_state, apart = '', 0
  if has_state(entry) then task_state, apart = task_state_of(id) end
  if type(envelope) == 'number' or apart > 0 then
    envelope = (type(envelope) == 'number' and envelope or #envelope) + apart
  end
  rows[last + 1], rows[last + 2], rows[last + 3] = slot, fence, entry
  rows[last + 4], rows[last + 5] = group, envelope
  rows[last + 6], rows[last + 7] = task_state, ''
  last = last + 7
end

-- The envelope of a task, or its bytes where the caller has to fetch it; '' where it is gone.
local function envelope_of(entry, id)
  local apart = bytes_apart(entry, id)
  return apart > 0 and apart or call('HGET', K.tasks, id) or ''
end

-- Splits the slots. A slot that holds a claim already, since the first reply was lost on the way, gets that claim
-- again. A claim that an earlier server gave goes back, for a new fence: its settle may be lost, and a later claim of
-- its group with it. The rest is idle, unless nothing may be claimed, or the lease is over: then a new claim might be
-- taken away at once. Returns the rows of the first, the idle slots, and by slot what its checkpoint says.
local function split_slots(daemon, slots, now)
  local rows, idle, before, count, found = {}, {}, {}, 0, nil
  local checkpoints = call('HMGET', K.worker .. daemon, unpack(slots))
  for i = 1, #slots do
    local slot, checkpoint = slots[i], checkpoints[i]
    local claim = checkpoint and claim_of(checkpoint)
    found = found or (claim and tonumber(call('HGET', K.epoch, 'fence') or 0))
    if claim and tonumber(claim.fence) <= found then
      checkpoint = 'S' .. settled_before(checkpoint)
      call('HSET', K.worker .. daemon, slot, checkpoint)
      end_quarantine_of(daemon, claim.fence)
      take_back(claim, now)
      count_held(daemon, -1)
      claim = nil
    end
    if claim then
      local id = id_of(claim.entry)
      add_row(rows, slot, claim.fence, claim.entry, claim.group, id, envelope_of(claim.entry, id))
      if claim.group ~= '' then call('HDEL', K.runs, claim.group) end -- no caller knows its rest
    else
      count = count + 1
      idle[count], before[slot] = slot, checkpoint
    end
  end
  local lease = tonumber(call('ZSCORE', leases_of(daemon), daemon) or 0)
  if lease < now or call('EXISTS', K.paused_all, K.recovering) > 0 then idle = {} end
  return rows, idle, before
end

-- The same of many, in one command where this script reads all.
local function envelopes_of(entries, ids)
  local apart
  for i = 1, #entries do
    local bytes = bytes_apart(entries[i], ids[i])
    if bytes > 0 then
      apart = apart or {}
      apart[i] = bytes
    end
  end
  if not apart then return call('HMGET', K.tasks, unpack(ids)) end
  for i = 1, #entries do apart[i] = apart[i] or call('HGET', K.tasks, ids[i]) end
  return apart
end

-- Writes the checkpoints of new claims and appends their rows. Passes over a task whose envelope is gone (an operator
-- deleted keys): there is nothing to run, and nothing to hold. `claims` has four lists: slots, fences (16 digits),
-- entries, groups; `before` has by slot what its checkpoint says. Returns the places in the lists of those passed
-- over.
local function give(daemon, claims, before, rows, now)
  if #claims.entries == 0 then return {} end
  local slots, fences, entries, groups = claims.slots, claims.fences, claims.entries, claims.groups
  local ids, checkpoints, passed, set = {}, {}, {}, 0
  for i = 1, #entries do ids[i] = id_of(entries[i]) end
  local envelopes, since = envelopes_of(entries, ids), digits(now)
  for i = 1, #entries do
    local slot, fence, entry, group = slots[i], fences[i], entries[i], groups[i]
    if has_state(entry) then
      remove_delay(ids[i])
      leave_burst(entry)
    end
    if envelopes[i] then
      checkpoints[set + 1] = slot
      checkpoints[set + 2] = live(fence, before[slot], since, entry, group)
      set = set + 2
      add_row(rows, slot, fence, entry, group, ids[i], envelopes[i])
    else
      passed[#passed + 1] = i
      if has_state(entry) then put_down(ids[i]) end
    end
  end
  if set > 0 then call('HSET', K.worker .. daemon, unpack(checkpoints)) end
  count_held(daemon, set / 2)
  if #passed > 0 then
    call('HINCRBY', K.count, 'missing', #passed)
    wake_for(groups[1]) -- their slots are still idle
  end
  return passed
end

-- Takes the best quarantined task out of its index, unless the daemon runs one. A quarantined task is claimed alone: of
-- other claims, some may only lie ready for a while, and would end in its crash.
local function take_quarantined(index)
  if quarantine then return nil end
  local best = call('ZRANGE', index, 0, 0)[1]
  if best then call('ZREM', index, best) end
  return best
end

-- Marks the first of some claims (as `give` takes them) as the daemon's quarantined task.
local function note_quarantined(daemon, claims, now)
  local crashes = tonumber(call('HGET', K.task_state .. id_of(claims.entries[1]), 'crashes') or nil)
  quarantine = claims.fences[1] .. (crashes == 1 and digits(now) or '')
  call('HSET', K.daemon .. daemon, 'quarantined', quarantine)
end

local function count_claims(pool, claimed, passed)
  if claimed > passed then call('HINCRBY', K.count, 'running_' .. pool, claimed - passed) end
  if claimed > 0 then call('HINCRBY', K.count, 'queued_' .. pool, -claimed) end
end

-- Which groups the idle slots get.

-- Gives the heads of the ready groups `best`, the best first, to as many slots, each under its group's lock.
local function take_heads(daemon, best, idle, claims)
  local first, holder, lane = take_fences(#best), ' ' .. daemon .. ' ', K.lane
  local locks, told, count = {}, {}, 0
  for i = 1, #best do
    local fence = digits(first + i - 1)
    told[i], locks[2 * i - 1], locks[2 * i] = fence, K.lock .. best[i], fence .. holder .. idle[i]
  end
  local slots, fences, entries, groups = claims.slots, claims.fences, claims.entries, claims.groups
  -- No ready group has a lock. If one has, the script sets each lock by itself.
  local all_locked = call('MSETNX', unpack(locks)) == 1
  for i = 1, #best do
    if all_locked or call('SETNX', locks[2 * i - 1], locks[2 * i]) == 1 then
      local entry = call('RPOP', lane .. best[i])
      if entry then
        count = count + 1
        slots[count], fences[count], entries[count], groups[count] = idle[i], told[i], entry, best[i]
      else
        call('DEL', locks[2 * i - 1])
      end
    end
  end
end

-- The same where there are limits, one by one: a start may end another's turn, or leave its group ready. Places a group
-- that may not start. Returns whether it gave the quarantined task.
local function take_limited_heads(daemon, idle, quarantined, claims, now)
  local looks, count, lane = 2 * #idle + 100, 0, K.lane
  repeat
    local group = quarantined or call('ZRANGE', FROM.ready, 0, 0)[1]
    if not group then return false end
    call('ZREM', FROM.ready, group)
    tenants().leave(group, now)
    local head, may_start, tenant = call('LINDEX', lane .. group, -1), false, nil
    if head then
      local free = limits().free_at(group, head, now)
      tenant = tenants().of(head)
      may_start = free and free <= now and (not tenant or tenants().may_start(tenant, now))
    end
    if may_start then
      local fence = digits(take_fences(1))
      if limits().hold(group, head, fence .. ' ' .. daemon .. ' ' .. idle[count + 1], now) then
        if tenant then tenants().start(tenant, fence, 'g', now) end
        call('RPOP', lane .. group)
        count = count + 1
        claims.slots[count], claims.fences[count] = idle[count], fence
        claims.entries[count], claims.groups[count] = head, group
      end
    end
    place(group, now)
    if count == 0 then quarantined = nil end
    looks = looks - 1
  until quarantined or count == #idle or looks == 0
  if looks == 0 then tell('grouped') end -- there may be more
  return quarantined ~= nil
end

-- The claims, as `give` takes them: of the quarantined task, if any, or of as many groups as there are slots. Also
-- whether it is the quarantined task's.
local function claim_groups(daemon, idle, quarantined, now)
  local claims = { slots = {}, fences = {}, entries = {}, groups = {} }
  if is_limiting() then
    return claims, take_limited_heads(daemon, idle, quarantined, claims, now)
  end
  local best = quarantined and { quarantined } or call('ZRANGE', FROM.ready, 0, #idle - 1)
  if #best > 0 then
    if not quarantined then call('ZREMRANGEBYRANK', FROM.ready, 0, #best - 1) end
    take_heads(daemon, best, idle, claims)
  end
  return claims, quarantined ~= nil
end

-- Which plain tasks the idle slots get.

-- The list is in order of arrival; the zset holds the other tasks. The smaller of the two heads goes first.
local function next_entry()
  local best = call('ZRANGE', FROM.ordered, 0, 0, 'WITHSCORES')
  local oldest = call('LINDEX', FROM.plain, -1)
  if best[1] and (not oldest or tonumber(best[2]) <= sequence_of(oldest)) then
    call('ZREM', FROM.ordered, best[1])
    return best[1]
  end
  return call('RPOP', FROM.plain)
end

local function next_entries(number)
  if call('ZCARD', FROM.ordered) == 0 then return call('RPOP', FROM.plain, number) or {} end
  local entries = {}
  while #entries < number do
    local entry = next_entry()
    if not entry then break end
    entries[#entries + 1] = entry
  end
  return entries
end

-- Where tenants have limits: one by one. A task that its tenant may not start now waits for the tenant's turn. Returns
-- the tasks, their fences, and whether the quarantined task is among them.
local function next_limited_entries(number, quarantined, now)
  local entries, starts, looks = {}, {}, 2 * number + 100
  repeat
    local entry = quarantined or next_entry()
    if not entry then break end
    local order, _, _, is_quarantined = order_of(entry)
    tenants().leave_plain(entry, now)
    local tenant = tenants().of(entry)
    if not tenant or tenants().may_start(tenant, now) then
      local fence = digits(take_fences(1))
      entries[#entries + 1], starts[#entries + 1] = entry, fence
      if tenant then tenants().start(tenant, fence, 'p', now) end
    else
      tenants().line_up_plain(entry, digits(order), is_quarantined, now)
      quarantined = nil
    end
    looks = looks - 1
  until quarantined or #entries == number or looks == 0
  if looks == 0 then tell('plain') end -- there may be more
  return entries, starts, quarantined ~= nil
end

-- The claims, as `give` takes them: of the quarantined task, if any, or of as many tasks as there are slots. Also
-- whether it is the quarantined task's.
local function claim_plain(_, idle, quarantined, now)
  local entries, fences, are_quarantined, groups
  if is_limiting() then
    entries, fences, are_quarantined = next_limited_entries(#idle, quarantined, now)
  else
    entries, fences, are_quarantined = quarantined and { quarantined } or next_entries(#idle), {}, quarantined ~= nil
    local first = #entries > 0 and take_fences(#entries)
    for i = 1, #entries do fences[i] = digits(first + i - 1) end
  end
  groups = {}
  for i = 1, #entries do groups[i] = '' end
  return { slots = idle, fences = fences, entries = entries, groups = groups }, are_quarantined
end
