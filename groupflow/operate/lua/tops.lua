#!lua flags=no-writes
-- tops: the groups whose tasks have waited longest, and those with the longest lanes, among those
-- that are looked at: never all of them. The former are among the first of `ready` and `held`, the running,
-- the paused and the parked; the latter are those that `find_longest` has found.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many of each to return · 2 how many of each index to look at
-- returns  { at (now), looked_at, slowest, longest }, the last two rows of { group, state, waiting in its lane,
--          oldest: arrival of its head }
local most, walked = tonumber(ARGV[1]), tonumber(ARGV[2])
local found, seen, looked = {}, {}, 0

local function look(group, state)
  if seen[group] then return end
  local head = call('LINDEX', K.lane .. group, -1)
  local waiting = head and call('LLEN', K.lane .. group) or 0
  seen[group] = { group = group, state = state, waiting = waiting, oldest = head and sequence_of(head) }
  looked = looked + 1
  if head then found[#found + 1] = seen[group] end
end

local function state_of_group(group)
  if call('EXISTS', K.lock .. group) == 1 then return 'running' end
  if call('HEXISTS', K.paused, group) == 1 then return 'paused' end
  if call('HEXISTS', K.parked, group) == 1 then return 'parked' end
  if call('ZSCORE', K.held, group) then return 'delayed' end
  return 'ready'
end

-- The first of some groups by one fact; the name decides between equals.
local function first(groups, comes_first)
  table.sort(groups, function(a, b)
    if comes_first(a, b) or comes_first(b, a) then return comes_first(a, b) end
    return a.group < b.group
  end)
  local rows = {}
  for i = 1, math.min(most, #groups) do rows[i] = named(groups[i]) end
  return rows
end

for _, claim in ipairs(claims(walked, true)) do look(claim.group, 'running') end
each_waiting_group(walked, look)
local looked_at = looked
local slowest = first(found, function(a, b) return a.oldest < b.oldest end)

local known, long = cjson.decode(call('HGET', K.samples, 'longest') or '{"groups":[]}'), {}
for _, group in ipairs(known.groups) do
  if not seen[group] then look(group, state_of_group(group)) end
  if seen[group].oldest then long[#long + 1] = seen[group] end
end
local longest = first(long, function(a, b) return a.waiting > b.waiting end)
return named({ at = clock(), looked_at = looked_at, slowest = slowest, longest = longest })
