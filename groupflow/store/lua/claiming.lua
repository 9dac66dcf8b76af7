-- Behind the session rules in the two claim scripts: what handing a task to a worker means.

local running = 0

-- Writes the checkpoint and returns the row for the worker, or nil where the task's envelope is
-- gone (somebody deleted keys): then there is nothing to run and nothing to hold.
local function give(daemon, worker, fence, element, group, now)
  local id = id_of(element)
  local envelope = call('GET', K.task .. id)
  if not envelope then
    call('HINCRBY', K.count, 'missing', 1)
    return nil
  end
  call('HSET', K.worker .. daemon, worker, live(fence, now, element, group))
  running = running + 1
  return { worker, fence, element, group, envelope, has_life(element) and call('HGETALL', K.life .. id) or {} }
end

-- The claim that a worker holds already: its first reply was lost on the way.
local function held_by(daemon, worker)
  local checkpoint = call('HGET', K.worker .. daemon, worker)
  local claim = checkpoint and claim_of(checkpoint)
  if not claim then return nil end
  local id = id_of(claim.element)
  return { worker, tonumber(claim.fence), claim.element, claim.group, call('GET', K.task .. id) or '',
    has_life(claim.element) and call('HGETALL', K.life .. id) or {} }
end
