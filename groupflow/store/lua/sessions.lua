-- Behind the prelude in every script that acts for a daemon: whether this is still its session, and what a slot's
-- checkpoint says.
--
-- A checkpoint is `S` (settled) and 16 digits of fence, or `L` (live), 16 digits of fence, 16 of the fence that the
-- slot settled before, 16 of since when (µs), 4 of the entry's length, the entry, and the group. So the last
-- settled fence is always there: a settle that runs again, since its first reply was lost, finds it and answers as it
-- did the first time.

-- The pool of a puller, which the store knows as `pool/<pool>/<worker>`; nil for a daemon.
local function pool_of(daemon) return string.match(daemon, '^pool/([^/]+)/') end

-- The zset that says until when a daemon's, or a puller's, lease runs.
local function leases_of(daemon)
  local pool = pool_of(daemon)
  return pool and K.pool_pullers .. pool or K.daemons
end

-- A puller holds so many tasks more, or fewer: so what a pool's workers hold is known without a walk.
local function count_held(daemon, number)
  local pool = number ~= 0 and pool_of(daemon)
  if not pool then return end
  for _, whose in ipairs({ daemon, '' }) do
    local held = call('ZADD', K.pool_holders .. pool, 'INCR', number, whose)
    if tonumber(held) <= 0 then call('ZREM', K.pool_holders .. pool, whose) end
  end
end

-- A daemon runs one quarantined task, a task with crashes, at a time: so the task that kills its daemon again is known,
-- and no other quarantined task dies with it. The daemon's `quarantined` field is the mark of that claim: 16 digits of
-- fence, and 16 of since when (µs) where that is the task's first crash. Then a renewal clears the mark once the claim
-- is a lease old: a task that runs for so long is most likely harmless, and a cluster that lost its power doesn't run
-- hours of tasks one by one. A task with two crashes keeps the mark to the end.
local quarantine -- of the daemon that this script acts for, or false

-- A session is a number and the process that opened it, in this order where a daemon shows its own. A process begins
-- with its birth (see start.lua), by which all partitions agree which of two with one name came later. Only a later
-- process replaces the caller. An earlier one stands here where it found no session: the caller was reaped, or Redis
-- lost what it had written. Nor is the caller replaced where its own process opened another session.
local function session_state(daemon, session)
  local known = call('HMGET', K.daemon .. daemon, 'session', 'process', 'quarantined')
  local number, process = known[1], known[2]
  if not number then return 'EXPIRED' end
  if number .. process ~= session then
    return sub(session, 17) < process and 'REPLACED' or 'EXPIRED'
  end
  quarantine = known[3]
  return 'OK'
end

local function end_quarantine(daemon)
  call('HDEL', K.daemon .. daemon, 'quarantined')
  quarantine = false
end

-- A claim has ended (fence: 16 digits). Where it was the daemon's quarantined task, another one may run.
local function end_quarantine_of(daemon, fence)
  if not quarantine or sub(quarantine, 1, 16) ~= fence then return end
  end_quarantine(daemon)
  if pool_of(daemon) then
    tell('pool')
  elseif call('EXISTS', K.quarantined_plain, K.quarantined_groups) > 0 then
    wake()
  end
end

local LIVE, SETTLED = byte('L'), byte('S')

local function settled_before(checkpoint)
  if not checkpoint then return NEVER end
  if byte(checkpoint) == SETTLED then return sub(checkpoint, 2, 17) end
  return sub(checkpoint, 18, 33)
end

-- The checkpoint of a new claim; `checkpoint` is the slot's one so far. Fence and since: 16 digits.
local lengths = {} -- as text, since most entries of a call are of one length
local function live(fence, checkpoint, since, entry, group)
  local length = lengths[#entry]
  if not length then
    length = format('%04d', #entry)
    lengths[#entry] = length
  end
  return 'L' .. fence .. settled_before(checkpoint) .. since .. length .. entry .. group
end

local function claim_of(checkpoint)
  if byte(checkpoint) ~= LIVE then return nil end
  local last = 53 + tonumber(sub(checkpoint, 50, 53))
  return {
    fence = sub(checkpoint, 2, 17),
    since = sub(checkpoint, 34, 49),
    entry = sub(checkpoint, 54, last),
    group = sub(checkpoint, last + 1),
  }
end

-- What a slot's checkpoint says of the claim `fence` (16 digits): 'live', 'settled' where the slot has settled it,
-- 'lost' where it doesn't hold it any more.
local function state_of(checkpoint, fence)
  if not checkpoint then return 'lost' end
  if byte(checkpoint) == LIVE and sub(checkpoint, 2, 17) == fence then return 'live' end
  return settled_before(checkpoint) == fence and 'settled' or 'lost'
end

-- A claim has ended (fence: 16 digits; group '' of a plain task): its lock goes, or what stands in its place.
local function unlock(group, fence, now)
  if not is_limiting() then
    if group ~= '' then call('DEL', K.lock .. group) end
    return
  end
  if group ~= '' then limits().let_go(group, fence) end
  tenants().let_go(fence, now)
end

-- Takes so many fences in a row; returns the first.
local function take_fences(number) return call('INCRBY', K.fence, number) - number + 1 end

-- Ends the claim `fence` of a slot. Returns 'live' exactly once for each claim, 'settled' for a
-- repeat, 'lost' where the fence is stale.
local function end_claim(daemon, slot, fence, group)
  fence = digits(fence)
  local state = state_of(call('HGET', K.worker .. daemon, slot), fence)
  if state ~= 'live' then return state end
  call('HSET', K.worker .. daemon, slot, 'S' .. fence)
  unlock(group, fence, clock())
  if group ~= '' then call('HDEL', K.runs, group) end
  end_quarantine_of(daemon, fence)
  count_held(daemon, -1)
  return 'live'
end

-- A daemon whose lease ran out may have died, or may only be slow: nothing tells yet. So that is a *lost lease* of each
-- task that it held, and a death of it only later (`judge_loss`, `count_silent`). A task state has `crashes`, its
-- claims that ended without a settle, and `lost_leases`: how many of those aren't known to be deaths.
--
-- `lost:<daemon>` has the process that lost the lease, and behind it the id of each task that it held; `losing` has
-- when that counts as a death by itself (µs).

-- A process silent for so many of its leases counts as dead.
local SILENT_LEASES = 10

-- What a daemon lost was a death of each of its tasks that still lives: counts so many in one script.
local function count_deaths(daemon, most)
  local key = K.lost .. daemon
  for _, id in ipairs(call('RPOP', key, math.min(most, call('LLEN', key) - 1)) or {}) do
    local task_state = K.task_state .. id
    if tonumber(call('HGET', task_state, 'lost_leases') or 0) > 0 then
      call('HINCRBY', task_state, 'lost_leases', -1)
    end
  end
  if call('LLEN', key) > 1 then -- `reap` counts the rest
    call('LSET', key, 0, 'died')
    call('ZADD', K.losing, 0, daemon)
  else
    call('DEL', key)
    call('ZREM', K.losing, daemon)
  end
end

-- A process shows itself under a daemon's name: that ends the doubt about what was lost under it. If it is the process
-- that lost it, the lost leases stay what they are; if it came later, they were deaths.
local MOST_DEATHS = 500
local function judge_loss(daemon, process)
  local loser = call('LINDEX', K.lost .. daemon, 0)
  if loser == process then
    call('DEL', K.lost .. daemon)
    call('ZREM', K.losing, daemon)
  elseif loser and loser ~= 'died' and loser < process then
    count_deaths(daemon, MOST_DEATHS)
  end
end

-- Counts the losses of a process that has been silent for too long (or of any, with `is_final`), some tasks in one
-- script. Returns µs until the next may be counted, or -1.
local function count_silent(now, is_final)
  local silent = call('ZRANGEBYSCORE', K.losing, '-inf', is_final and '+inf' or digits(now), 'LIMIT', 0, 1)[1]
  if silent then count_deaths(silent, MOST_DEATHS) end
  local nearest = call('ZRANGE', K.losing, 0, 0, 'WITHSCORES')[2]
  return nearest and math.max(0, is_final and 0 or tonumber(nearest) - now) or -1
end

-- A daemon's lease has run out. Returns a function that tells of each claim, in turn, that its task has lost a lease;
-- `ends` is how many of its claims have ended so or in a crash. The task waits longer each time, before it may cost the
-- next daemon its lease or its life: not at the first, since the daemon may be dead; then for a lease, two, four, ...
-- So the last daemon's end is mostly known before the next one has the task. The function returns until when it waits
-- (µs), or nil.
local function losing(daemon, now)
  local known = call('HMGET', K.daemon .. daemon, 'process', 'lease', 'blocks')
  local lease, blocks, key = tonumber(known[2] or nil) or 0, known[3], K.lost .. daemon
  if call('EXISTS', key) == 1 then count_deaths(daemon, call('LLEN', key)) end -- another process's
  return function(claim, id, ends)
    -- It blocked the loop for longer than it may, or some task of the daemon did: that is a death.
    if blocks == 'all' or blocks == claim.fence .. id then return nil end
    if call('EXISTS', key) == 0 then
      call('RPUSH', key, known[1] or '')
      call('ZADD', K.losing, digits(now + SILENT_LEASES * lease), daemon)
    end
    call('RPUSH', key, id)
    call('HINCRBY', K.task_state .. id, 'lost_leases', 1)
    if ends < 2 then return nil end
    return now + math.min(lease * 2 ^ (ends - 2), SILENT_LEASES * lease)
  end
end

-- A claim ends without a settle, and its task is the next of its group again. `due` is until when it waits (µs), nil
-- for not at all.
local function take_back(claim, now, due)
  local id = id_of(claim.entry)
  if due then call('HSET', K.task_state .. id, 'due', digits(due)) end
  call('HSET', K.task_state .. id, 'sequence', sub(claim.entry, 1, 16))
  unlock(claim.group, claim.fence, now)
  if claim.group ~= '' then call('HDEL', K.runs, claim.group) end
  local pool = claim.group ~= '' and 'grouped' or 'plain'
  call('HINCRBY', K.count, 'running_' .. pool, -1)
  call('HINCRBY', K.count, 'queued_' .. pool, 1)
  if due and claim.group == '' then
    call('ZADD', K.delayed, digits(due), with_state(claim.entry))
    wake_at_due(K.delayed, due)
  else
    put_back(with_state(claim.entry), claim.group, now)
  end
end

-- Takes every claim away from a daemon that can no longer settle them: each task goes back to its place, the first of
-- its group, and the daemon is forgotten. `fate` is what is known of its process: it 'lived', so nothing is counted; it
-- 'died', a crash of each; nil where its lease ran out (of a puller, which has no process to know again, that is a
-- crash too). Where it holds more than `most`, the rest and the session stay: call it again. Returns one row a task
-- (id, group, fence), and whether the session is over.
local function hand_over(daemon, now, fate, most)
  local rows, claims, slots, pool = {}, {}, {}, pool_of(daemon)
  local lose = not fate and not pool and losing(daemon, now)
  local checkpoints = call('HGETALL', K.worker .. daemon)
  for i = 1, #checkpoints, 2 do
    local claim = claim_of(checkpoints[i + 1])
    if claim then
      claim.slot = checkpoints[i]
      claims[#claims + 1] = claim
    end
  end
  -- The oldest is put back last, so that it stands first.
  table.sort(claims, function(a, b) return a.entry > b.entry end)
  for n = 1, math.min(most or #claims, #claims) do
    local claim = claims[n]
    local id = id_of(claim.entry)
    local ends = fate ~= 'lived' and call('HINCRBY', K.task_state .. id, 'crashes', 1)
    take_back(claim, now, lose and lose(claim, id, ends))
    rows[n], slots[n] = { id, claim.group, claim.fence }, claim.slot
  end
  count_held(daemon, -#rows)
  if #rows > 0 then
    if fate ~= 'lived' then call('HINCRBY', K.count, 'crashed', #rows) end
    wake()
  end
  if #rows < #claims then
    call('HDEL', K.worker .. daemon, unpack(slots))
    return rows, false
  end
  call('DEL', K.worker .. daemon, K.daemon .. daemon)
  call('ZREM', leases_of(daemon), daemon)
  return rows, true
end

-- One script takes so many tasks away from pullers, and looks at so many of their slots.
local MOST_TAKEN, MOST_LOOKED_AT = 100, 1000
