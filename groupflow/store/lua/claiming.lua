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

-- What the caller has to know of claims, seven values each. The last is the rest of its run, which `begin_runs` fills
-- in. Where the caller has to fetch the envelope or the context, the envelope is a number: the bytes of both.
local rows, last = {}, 0
local function add_row(slot, fence, entry, group, envelope)
  local task_state, apart = '', 0
  if has_state(entry) then task_state, apart = task_state_of(id_of(entry)) end
  if type(envelope) == 'number' or apart > 0 then
    envelope = (type(envelope) == 'number' and envelope or #envelope) + apart
  end
  rows[last + 1], rows[last + 2], rows[last + 3] = slot, fence, entry
  rows[last + 4], rows[last + 5] = group, envelope
  rows[last + 6], rows[last + 7] = task_state, ''
  last = last + 7
end

-- The envelope of a task, or its bytes where the caller has to fetch it; false where it is gone.
local function envelope_of(entry)
  local id = id_of(entry)
  local bytes = has_state(entry) and call('HSTRLEN', K.tasks, id) or 0
  return bytes > SMALL and lies_apart(bytes) and bytes or call('HGET', K.tasks, id)
end

-- Splits the slots. A slot that holds a claim already, since the first reply was lost on the way, gets that claim
-- again. A claim that an earlier server gave goes back, for a new fence: its settle may be lost, and a later claim of
-- its group with it. The rest is idle, unless nothing may be claimed, or the lease is over: then a new claim might be
-- taken away at once. Adds the rows of the first; returns the idle slots, and by slot what its checkpoint says.
local function split_slots(daemon, slots, now)
  local idle, before, found = {}, {}, nil
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
      add_row(slot, claim.fence, claim.entry, claim.group, envelope_of(claim.entry) or '')
      if claim.group ~= '' then call('HDEL', K.runs, claim.group) end -- no caller knows its rest
    else
      idle[#idle + 1], before[slot] = slot, checkpoint
    end
  end
  local lease = tonumber(call('ZSCORE', leases_of(daemon), daemon) or 0)
  if lease < now or call('EXISTS', K.paused_all, K.recovering, K.outbox_full) > 0 then idle = {} end
  return idle, before
end

-- Takes the best of an index out of it.
local function take_first(index, number)
  local best = call('ZRANGE', index, 0, number - 1)
  if #best > 0 then call('ZREMRANGEBYRANK', index, 0, #best - 1) end
  return best
end

local function take_ready(number) return take_first(FROM.ready, number) end

-- The list is in order of arrival; the zset holds the other tasks. The smaller of the two heads goes first.
local function take_plain(number)
  local best = call('ZRANGE', FROM.ordered, 0, 0, 'WITHSCORES')
  if not best[1] then return call('RPOP', FROM.plain, number) or {} end
  local oldest = call('LINDEX', FROM.plain, -1)
  if oldest and tonumber(best[2]) > sequence_of(oldest) then return call('RPOP', FROM.plain, 1) end
  return take_first(FROM.ordered, 1)
end

-- What one script gives to slots: `giving` has the daemon, its idle slots, by slot what its checkpoint says (`before`),
-- and the clock, as a number and as `since`; how many slots have got a task, and their new checkpoints; how many tasks
-- are passed over, as they are missing, and how many have ended; how many fences are taken, behind the `first`; for how
-- many slots workers wait (`waiting`), and whether a task is kept for one that will.

local function next_fence(giving)
  giving.fences = giving.fences + 1
  return digits(giving.first + giving.fences)
end

-- Writes the checkpoint of a claim and adds its row. Passes over a task whose envelope is gone (an operator deleted
-- keys): there is nothing to run, and nothing to hold. Returns whether a slot has it.
local function give(giving, fence, entry, group)
  local slot, envelope = giving.idle[giving.number + 1], envelope_of(entry)
  if has_state(entry) then
    remove_delay(id_of(entry))
    leave_burst(entry, fence)
    forget_expiry(id_of(entry))
  end
  if not envelope then
    if has_state(entry) then put_down(id_of(entry)) end
    giving.passed = giving.passed + 1
    unlock(group, fence, giving.now)
    return false
  end
  local checkpoints, number = giving.checkpoints, giving.number + 1
  checkpoints[2 * number - 1] = slot
  checkpoints[2 * number] = live(fence, giving.before[slot], giving.since, entry, group)
  add_row(slot, fence, entry, group, envelope)
  giving.number = number
  return true
end

-- Ends a task that was next and is not to begin: it takes no slot, no fence, and no start of a rate. Returns whether it
-- ended.
local function ends_before_start(giving, entry, group)
  local id, now = id_of(entry), giving.now
  local by = has_state(entry) and start_by(id)
  local is_late = by and by <= now
  if not is_late and not cancel_of(id) then return false end
  leave_burst(entry)
  if not end_if_cancelled(id, group, now) then
    end_as('expired', id, group, digits(by), now)
    call('HINCRBY', K.count, 'expired_unsaid', 1)
    tell('due')
  end
  giving.ended = giving.ended + 1
  return true
end

-- Whether a task may start, by the limit of its type. One that only lay ready for a worker would take the room of
-- another that could run.
local function may_start_capped(giving, cap)
  if not caps().may_start(cap, giving.now) then return false end
  giving.is_kept = giving.number >= giving.waiting
  return not giving.is_kept
end

-- Claims a group's head, under the group's lock; places a group that may not start, or of which more may.
local function claim_head(giving, group)
  local lane, now, head = K.lane .. group, giving.now, call('LINDEX', K.lane .. group, -1)
  if head and ends_before_start(giving, head, group) then
    call('RPOP', lane)
    place(group, now)
    return
  end
  local fence, is_held = next_fence(giving), false
  local holder = fence .. ' ' .. giving.daemon .. ' ' .. giving.idle[giving.number + 1]
  if is_limiting() then
    local left = is_capping() and caps().leave(group)
    tenants().leave(group, now)
    local free, tenant = head and limits().free_at(group, head, now), head and tenants().of(head)
    local cap = head and is_capping() and caps().of(head)
    local may_start = free and free <= now and (not tenant or tenants().may_start(tenant, now))
      and (not cap or may_start_capped(giving, cap))
    is_held = may_start and limits().hold(group, head, holder, now)
    if is_held and tenant then tenants().start(tenant, fence, 'g', now) end
    if is_held and cap then caps().start(cap, fence, now) end
    if left and not (is_held and left == cap) then caps().turn(left, now) end
  else
    is_held = head and call('SETNX', K.lock .. group, holder) == 1
  end
  if is_held then call('RPOP', lane) end
  local is_given = is_held and give(giving, fence, head, group)
  if is_limiting() or not is_given then place(group, now) end
end

-- Claims a plain task. One that its tenant, or the limit of its type, lets not start now waits for that.
local function claim_plain(giving, entry)
  local tenant, cap, left, now = nil, nil, nil, giving.now
  if is_limiting() then
    left = is_capping() and caps().leave_plain(entry)
    tenants().leave_plain(entry, now)
    tenant, cap = tenants().of(entry), is_capping() and caps().of(entry)
  end
  local has_ended = ends_before_start(giving, entry, '')
  local may_start = not has_ended and (not tenant or tenants().may_start(tenant, now))
    and (not cap or may_start_capped(giving, cap))
  if may_start then
    local fence = next_fence(giving)
    if tenant then tenants().start(tenant, fence, 'p', now) end
    if cap then caps().start(cap, fence, now) end
    give(giving, fence, entry, '')
  elseif not has_ended then
    local order, _, _, is_quarantined, pool = order_of(entry)
    waits_in_line(entry, order, is_quarantined, pool, now)
  end
  if left and not (may_start and left == cap) then caps().turn(left, now) end
end

-- Claims the best groups' heads, or the oldest plain tasks, one by one: a start may end another's turn, or leave its
-- group ready. A quarantined task is claimed alone, where the daemon runs none: of other claims, some may only lie ready
-- for a while, and would end in its crash.
local MOST_ENDED = 100
local function claim_best(giving, is_grouped, pool)
  local number, looks = #giving.idle, 2 * #giving.idle + 100
  local claim, take = is_grouped and claim_head or claim_plain, is_grouped and take_ready or take_plain
  local best = quarantine and {} or take_first(is_grouped and FROM.quarantined_groups or FROM.quarantined_plain, 1)
  for _, each in ipairs(best) do claim(giving, each) end
  if giving.is_kept then return end
  if giving.number > 0 then
    local crashes = call('HGET', K.task_state .. id_of(rows[last - 4]), 'crashes')
    quarantine = rows[last - 5] .. (tonumber(crashes or nil) == 1 and giving.since or '')
    call('HSET', K.daemon .. giving.daemon, 'quarantined', quarantine)
    return
  end
  repeat
    best = take(is_limiting() and 1 or number - giving.number - giving.passed)
    for _, each in ipairs(best) do claim(giving, each) end
    looks = looks - #best
    if giving.ended >= MOST_ENDED then looks = 0 end
  until #best == 0 or giving.number + giving.passed == number or looks <= 0 or giving.is_kept
  if looks <= 0 then tell(pool) end -- there may be more
end

-- Gives idle slots of a pool their next claims; for so many of them (`beyond`) no worker waits. Returns whether a task
-- is kept for one that will.
local function give_claims(daemon, pool, idle, before, now, beyond)
  local giving = {
    daemon = daemon, idle = idle, before = before, now = now, since = digits(now), number = 0, checkpoints = {},
    passed = 0, ended = 0, fences = 0, first = tonumber(call('GET', K.fence) or 0), waiting = #idle - beyond,
    is_kept = false,
  }
  claim_best(giving, pool == 'grouped', pool)
  local number, passed = giving.number, giving.passed
  if giving.fences > 0 then call('INCRBY', K.fence, giving.fences) end
  if number > 0 then
    call('HSET', K.worker .. daemon, unpack(giving.checkpoints))
    call('HINCRBY', K.count, 'running_' .. pool, number)
    count_held(daemon, number)
  end
  if passed > 0 then
    call('HINCRBY', K.count, 'missing', passed)
    tell(pool) -- their slots are still idle
  end
  local gone = number + passed + giving.ended
  if gone > 0 then call('HINCRBY', K.count, 'queued_' .. pool, -gone) end
  return giving.is_kept
end
