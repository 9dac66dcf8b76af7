-- Behind the prelude in every script that acts for a daemon: is this still its session, and what
-- does a slot's checkpoint say.
--
-- A checkpoint is `S` (settled) and 16 digits of fence, or `L` (live), 16 digits of fence, 16 of the
-- fence that the slot settled before, 16 of since when (µs), 4 of the element's length, the
-- element, and the group. So the last settled fence is always there: a settle that is run a second
-- time, since its first reply was lost, finds it and answers as it did the first time.

-- A daemon runs one suspect at a time, a task with crashes: so who kills its daemon again is known, and
-- no other suspect dies with it. Its `suspect` field is the mark of that claim: 16 digits of fence, and
-- 16 of since when (µs) where that is the task's first crash. Then a renewal clears the mark once the
-- claim is a lease old: whoever has run for so long is most likely harmless, and a cluster that lost
-- its power doesn't run hours of tasks one by one. Who has crashed twice keeps it to the end.
local mark -- of the daemon that this script acts for, or false

-- Whether a process came before another one. Each begins with its birth (see start.lua), by which all
-- partitions know alike which of two with one name lives on; whatever is shorter is of a version that knew none.
local function came_before(one, other)
  if #one ~= #other then return #one < #other end
  return one < other
end

-- A session is a number and the process that opened it, written one behind the other where a daemon
-- shows its own. Only a later process replaces the caller. An earlier one stands here where it found
-- nobody: the caller was reaped, or Redis lost what it had written. And where it is the caller's own
-- process that opened another session, nobody replaced it.
local function session_state(daemon, session)
  local known = call('HMGET', K.daemon .. daemon, 'session', 'process', 'suspect')
  local number, process = known[1], known[2] or ''
  if not number then return 'EXPIRED' end
  if number .. process ~= session then
    return came_before(sub(session, 17), process) and 'REPLACED' or 'EXPIRED'
  end
  mark = known[3]
  return 'OK'
end

local function unmark(daemon)
  call('HDEL', K.daemon .. daemon, 'suspect')
  mark = false
end

-- A claim has ended (fence: 16 digits). Where it was the daemon's suspect, another one may run.
local function unmark_ended(daemon, fence)
  if not mark or sub(mark, 1, 16) ~= fence then return end
  unmark(daemon)
  if sub(daemon, 1, 5) == 'pool/' then
    tell('pool')
  elseif call('EXISTS', K.suspect_plain, K.suspect_groups) > 0 then
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
local lengths = {} -- as text, since most elements of a call are of one length
local function live(fence, checkpoint, since, element, group)
  local length = lengths[#element]
  if not length then
    length = format('%04d', #element)
    lengths[#element] = length
  end
  return 'L' .. fence .. settled_before(checkpoint) .. since .. length .. element .. group
end

local function claim_of(checkpoint)
  if byte(checkpoint) ~= LIVE then return nil end
  local last = 53 + tonumber(sub(checkpoint, 50, 53))
  return {
    fence = sub(checkpoint, 2, 17),
    since = sub(checkpoint, 34, 49),
    element = sub(checkpoint, 54, last),
    group = sub(checkpoint, last + 1),
  }
end

-- What a slot's checkpoint says of the claim `fence` (16 digits): 'live', 'settled' for one that it
-- has settled already, 'lost' for one that it doesn't hold any more.
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

-- So many fences in a row: the first of them.
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
  unmark_ended(daemon, fence)
  return 'live'
end

-- Takes every claim away from a daemon that can no longer settle them: each task goes back to its
-- place, the first of its group, one crash richer unless its process lives (`has_lived`), and the daemon
-- is forgotten. Returns one row a task: id, group, fence.
local function hand_over(daemon, now, has_lived)
  local rows, claims = {}, {}
  local checkpoints = call('HVALS', K.worker .. daemon)
  for _, checkpoint in ipairs(checkpoints) do
    local claim = claim_of(checkpoint)
    if claim then claims[#claims + 1] = claim end
  end
  -- The oldest is put back last, so that it stands first.
  table.sort(claims, function(a, b) return a.element > b.element end)
  for _, claim in ipairs(claims) do
    local id = id_of(claim.element)
    if not has_lived then call('HINCRBY', K.life .. id, 'crashes', 1) end
    call('HSET', K.life .. id, 'arrival', sub(claim.element, 1, 16))
    unlock(claim.group, claim.fence, now)
    if claim.group ~= '' then
      call('HDEL', K.runs, claim.group)
      call('HINCRBY', K.count, 'running_grouped', -1)
      call('HINCRBY', K.count, 'queued_grouped', 1)
    else
      call('HINCRBY', K.count, 'running_plain', -1)
      call('HINCRBY', K.count, 'queued_plain', 1)
    end
    put_back(with_life(claim.element), claim.group, now)
    rows[#rows + 1] = { id, claim.group, claim.fence }
  end
  call('DEL', K.worker .. daemon, K.daemon .. daemon)
  call('ZREM', K.daemons, daemon)
  call('ZREM', K.pullers, daemon)
  if #rows > 0 then
    if not has_lived then call('HINCRBY', K.count, 'crashed', #rows) end
    wake()
  end
  return rows
end
