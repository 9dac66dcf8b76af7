-- Behind the session rules: what stands behind a claim in its group. To tell it changes nothing: it waits
-- in its lane, under the lock of the task in front of it, and whoever wants to go on with it has to ask
-- (`hand_on`). What has a life is not told: it may be delayed, or a suspect, or large.

local TOLD = 500 -- that one script tells at most

-- The next so many elements of a lane behind `skipped` of them, as a flat list: element · envelope.
local function next_in_lane(group, skipped, most)
  local elements, ids, found = call('LRANGE', K.lane .. group, -skipped - most, -skipped - 1), {}, {}
  for i = #elements, 1, -1 do
    if has_life(elements[i]) then break end
    ids[#ids + 1] = id_of(elements[i])
  end
  if #ids == 0 then return found end
  local envelopes = call('HMGET', K.tasks, unpack(ids))
  for i = 1, #ids do
    if not envelopes[i] then break end
    found[2 * i - 1], found[2 * i] = elements[#elements - i + 1], envelopes[i]
  end
  return found
end

-- Fills in, for the claims behind `first` in the rows, what stands behind them.
local function tell_ahead(rows, first, most)
  local room = TOLD
  for at = first, #rows - 7, 7 do
    local found = next_in_lane(rows[at + 4], 0, math.min(most, room))
    if #found > 0 then rows[at + 7] = found end
    room = room - #found / 2
    if room <= 0 then return end
  end
end
