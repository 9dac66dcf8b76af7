#!lua flags=no-writes
-- tops: the groups whose tasks have waited longest, and those with the longest lanes, among those
-- that are looked at: never all of them. The former are sought among the first of `ready` and `held`,
-- what runs, and what people or deaths hold; the latter are those that `survey` has found.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 how many of each to return · 2 how many of each index to look at
-- returns  { now (µs), groups looked at, rows of those that waited longest, rows of the longest lanes },
--          rows of { group, state, waiting in its lane, arrival of the oldest of them (µs) }
local most, walked = tonumber(ARGV[1]), tonumber(ARGV[2])
local rows, seen = {}, {}

local function look(group, state)
  if seen[group] then return end
  local head = call('LINDEX', K.lane .. group, -1)
  seen[group] = { group, state, head and call('LLEN', K.lane .. group) or 0, head and arrival_of(head) or 0 }
  if head then rows[#rows + 1] = seen[group] end
end

local function state_of_group(group)
  if call('EXISTS', K.lock .. group) == 1 then return 'running' end
  if call('HEXISTS', K.paused, group) == 1 then return 'paused' end
  if call('HEXISTS', K.parked, group) == 1 then return 'parked' end
  if call('ZSCORE', K.held, group) then return 'delayed' end
  return 'ready'
end

for _, claim in ipairs(group_claims(walked)) do look(claim.group, 'running') end
for _, group in ipairs(groups_in(K.paused, walked)) do look(group, 'paused') end
for _, group in ipairs(groups_in(K.parked, walked)) do look(group, 'parked') end
local ready = members_of(READY, 0, walked)
for i = 1, #ready, 2 do look(ready[i], 'ready') end
for _, group in ipairs(call('ZRANGE', K.held, 0, walked - 1)) do look(group, 'delayed') end
local looked = 0
for _ in pairs(seen) do looked = looked + 1 end
table.sort(rows, function(a, b)
  if a[4] ~= b[4] then return a[4] < b[4] end
  return a[1] < b[1]
end)
local waited = { unpack(rows, 1, math.min(most, #rows)) }

local longest = {}
local known = cjson.decode(call('HGET', K.samples, 'longest') or '{"groups":[]}')
for _, group in ipairs(known.groups) do
  if not seen[group] then look(group, state_of_group(group)) end
  if seen[group][3] > 0 then longest[#longest + 1] = seen[group] end
end
table.sort(longest, function(a, b)
  if a[3] ~= b[3] then return a[3] > b[3] end
  return a[1] < b[1]
end)
return { clock(), looked, waited, { unpack(longest, 1, math.min(most, #longest)) } }
