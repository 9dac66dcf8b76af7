-- Behind the session rules in the two claim scripts: what handing tasks to slots means.

-- Appends what the caller has to know of a claim: six values.
local function add_row(rows, slot, fence, element, group, envelope)
  local last = #rows
  rows[last + 1], rows[last + 2], rows[last + 3] = slot, fence, element
  rows[last + 4], rows[last + 5] = group, envelope
  rows[last + 6] = has_life(element) and call('HGETALL', K.life .. id_of(element)) or ''
end

-- Splits the slots: those that hold a claim already, since its first reply was lost on the way, get
-- that one again; the rest is idle, unless the lease is over, when a new claim might be taken away at
-- once. Returns the rows of the former, and the latter as a list of { slot, checkpoint }.
local function split_slots(daemon, slots, now)
  local rows, idle = {}, {}
  local checkpoints = call('HMGET', K.worker .. daemon, unpack(slots))
  for i, slot in ipairs(slots) do
    local claim = checkpoints[i] and claim_of(checkpoints[i])
    if claim then
      local envelope = call('HGET', K.tasks, id_of(claim.element)) or ''
      add_row(rows, slot, claim.fence, claim.element, claim.group, envelope)
    else
      idle[#idle + 1] = { slot, checkpoints[i] }
    end
  end
  local lease = tonumber(call('ZSCORE', K.daemons, daemon) or 0)
  if lease < now or call('EXISTS', K.paused_all) == 1 then idle = {} end
  return rows, idle
end

-- Writes the checkpoints of new claims and appends their rows. A task whose envelope is gone (somebody
-- deleted keys) is passed over: there is nothing to run, and nothing to hold.
-- `claims` is a list of { { slot, checkpoint }, fence (16 digits), element, group }. Returns those
-- passed over.
local function give(daemon, claims, rows, now)
  if #claims == 0 then return {} end
  local ids, checkpoints, passed = {}, {}, {}
  for i, claim in ipairs(claims) do ids[i] = id_of(claim[3]) end
  local envelopes, since = call('HMGET', K.tasks, unpack(ids)), digits(now)
  for i, claim in ipairs(claims) do
    local slot, fence, element, group = claim[1], claim[2], claim[3], claim[4]
    if has_life(element) then remove_delay(ids[i]) end
    if envelopes[i] then
      checkpoints[#checkpoints + 1] = slot[1]
      checkpoints[#checkpoints + 1] = live(fence, slot[2], since, element, group)
      add_row(rows, slot[1], fence, element, group, envelopes[i])
    else
      passed[#passed + 1] = claim
    end
  end
  if #checkpoints > 0 then call('HSET', K.worker .. daemon, unpack(checkpoints)) end
  if #passed > 0 then
    call('HINCRBY', K.count, 'missing', #passed)
    wake() -- their slots are idle still
  end
  return passed
end

-- Takes the best suspect out of its index, unless the daemon runs one. Whoever gives one gives nothing
-- beside it: of what is asked for, some may only lie ready for a while, and would be taken along.
local function take_suspect(index)
  if mark then return nil end
  local best = call('ZRANGE', index, 0, 0)[1]
  if best then call('ZREM', index, best) end
  return best
end

-- Marks a claim (as `give` takes it) as the daemon's suspect.
local function mark_suspect(daemon, claim, now)
  local crashes = tonumber(call('HGET', K.life .. id_of(claim[3]), 'crashes') or nil)
  mark = claim[2] .. (crashes == 1 and digits(now) or '')
  call('HSET', K.daemon .. daemon, 'suspect', mark)
end

-- So many fences in a row: the first of them.
local function take_fences(number) return call('INCRBY', K.fence, number) - number + 1 end

local function count_claims(pool, claimed, passed)
  if claimed > passed then call('HINCRBY', K.count, 'running_' .. pool, claimed - passed) end
  if claimed > 0 then call('HINCRBY', K.count, 'queued_' .. pool, -claimed) end
end
