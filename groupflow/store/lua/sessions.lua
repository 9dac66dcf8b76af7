-- Behind the prelude in every script that acts for a daemon: is this still its session, and what
-- does a worker's checkpoint say.
--
-- A checkpoint is `L` (live) or `S` (settled), 16 digits of fence, and for a live one 16 digits of
-- since when (µs), 4 of the element's length, the element, and the group. The settled mark stays until
-- the worker claims again: a settle that is run a second time, since its first reply was lost, finds
-- it and answers as it did the first time.

local function session_state(daemon, session)
  local current = call('HGET', K.daemon .. daemon, 'session')
  if not current then return 'EXPIRED' end
  if current ~= session then return 'REPLACED' end
  return 'OK'
end

local function live(fence, now, element, group)
  return 'L' .. digits(fence) .. digits(now) .. string.format('%04d', #element) .. element .. group
end

local function claim_of(checkpoint)
  if string.sub(checkpoint, 1, 1) ~= 'L' then return nil end
  local last = 37 + tonumber(string.sub(checkpoint, 34, 37))
  return {
    fence = string.sub(checkpoint, 2, 17),
    element = string.sub(checkpoint, 38, last),
    group = string.sub(checkpoint, last + 1),
  }
end

-- Ends the claim `fence` of a worker. Returns 'live' exactly once for each claim, 'settled' for a
-- repeat, 'lost' where the fence is stale.
local function end_claim(daemon, worker, fence, group)
  local checkpoint = call('HGET', K.worker .. daemon, worker)
  local mark = checkpoint and string.sub(checkpoint, 2, 17)
  if mark ~= digits(fence) then return 'lost' end
  if string.sub(checkpoint, 1, 1) == 'S' then return 'settled' end
  call('HSET', K.worker .. daemon, worker, 'S' .. mark)
  if group ~= '' then call('DEL', K.lock .. group) end
  return 'live'
end

-- Takes every claim away from a daemon that can no longer settle them: each task goes back to its
-- place, the first of its group, one crash richer, and the daemon is forgotten. Returns one row a
-- task: id, group, fence.
local function hand_over(daemon, now)
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
    call('HINCRBY', K.life .. id, 'crashes', 1)
    if claim.group ~= '' then
      call('DEL', K.lock .. claim.group)
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
  if #rows > 0 then
    call('HINCRBY', K.count, 'crashed', #rows)
    wake()
  end
  return rows
end
