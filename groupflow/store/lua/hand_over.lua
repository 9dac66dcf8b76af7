-- Behind the session rules: what becomes of a daemon's claims when it dies, loses its lease, or leaves.

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

-- A claim ends without a settle, and its task is the next of its group again, or ends as cancelled. `due` is until when
-- it waits (µs), nil for not at all.
local function take_back(claim, now, due)
  local id = id_of(claim.entry)
  unlock(claim.group, claim.fence, now)
  if claim.group ~= '' then call('HDEL', K.runs, claim.group) end
  if end_if_cancelled(id, claim.group, now) then
    count_ends(claim.group, 1)
    if claim.group ~= '' then place(claim.group, now) end
    return
  end
  if due then call('HSET', K.task_state .. id, 'due', digits(due)) end
  call('HSET', K.task_state .. id, 'sequence', sub(claim.entry, 1, 16))
  count_ends(claim.group, 1, true)
  if due and claim.group == '' then
    stand_aside(with_state(claim.entry), '', due)
  else
    put_back(with_state(claim.entry), claim.group, now)
  end
end

-- Stands for the epoch of a puller's session that came from another one (see poll.lua).
local CAME_BACK = '-'

-- Takes every claim away from a daemon that can no longer settle them: each task goes back to its place, the first of
-- its group, and the daemon is forgotten. `fate` is what is known of its process: it 'lived', so nothing is counted; it
-- 'died', a crash of each; it 'left', a lost lease of each for good; nil where its lease ran out (of a puller, which has
-- no process to know again, that is a crash, unless it came back to another epoch). Where it holds more than `most`, the
-- rest and the session stay: call it again. Returns one row a task (id, group, fence), and whether the session is over.
local function hand_over(daemon, now, fate, most)
  local rows, claims, slots, pool = {}, {}, {}, pool_of(daemon)
  if pool and not fate and call('HGET', K.daemon .. daemon, 'epoch') == CAME_BACK then fate = 'lived' end
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
    if fate == 'left' then call('HINCRBY', K.task_state .. id, 'lost_leases', 1) end
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
  call('DEL', K.worker .. daemon, K.daemon .. daemon, K.types .. daemon, K.progress .. daemon)
  call('ZREM', leases_of(daemon), daemon)
  return rows, true
end

-- One script takes so many tasks away from pullers, and looks at so many of their slots.
local MOST_TAKEN, MOST_LOOKED_AT = 100, 1000
