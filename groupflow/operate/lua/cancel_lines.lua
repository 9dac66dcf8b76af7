#!lua flags=allow-oom
-- cancel_lines: cancel what waits in some groups, and ask for the same of what they run. Each line is walked from its
-- young end, so many places a call; the next call goes on behind the last entry seen. So tasks that come, or are claimed
-- meanwhile, hide none. What stands aside is in no line: see `cancel_each`.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 groups (JSON; '' stands for the plain tasks in order of arrival) · 2 which of them goes on (the first is 1)
--          3 the sequence number of the last entry seen there, '' to begin · 4 of which type, or how it begins
--          (`import.*`); '' of any · 5 who wants that, and why (JSON) · 6 how many places to look at
--          7 the highest sequence number of what is meant, '' for any
-- returns  { how many have ended, the ids that are newly asked for, as ARGV 2 and 3 to go on (0, '' at the end), the
--          last sequence number that was given }
local refusal = other_layout()
if refusal then return refusal end
local groups, at, last, wanted, asked = cjson.decode(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local said, looks, now = cjson.decode(asked), tonumber(ARGV[6]), clock()
local latest = call('HGET', K.count, 'sequence') or NEVER
local youngest = ARGV[7] ~= '' and ARGV[7] or latest
-- Redis walks a list from its nearer end: so few places are written far from both.
local FAR, FEW, COSTS = 20000, 50, 3 -- COSTS: of a group, and of an end, in looks
local ended, requested = 0, {}

local function is_meant(id) return wanted == '' or is_of_type((facts_of(id)), wanted) end

local function request(id)
  if is_meant(id) and request_cancel(id, asked, now) then requested[#requested + 1] = id end
end

-- Ends some of a line behind the last entry seen. Returns whether that was its end.
local function walk(group)
  local line = line_of(group)
  local from, length = count_seen(line, last), call('LLEN', line)
  local most = math.min(from, length - from) > FAR and FEW or looks
  local run, gone, places, seen = end_of_run(group), {}, {}, 0
  for _, entry in ipairs(call('LRANGE', line, from, from + looks - 1)) do
    if looks <= 0 or #gone >= most then break end
    local id = id_of(entry)
    looks, seen, last = looks - 1, seen + 1, sub(entry, 1, 16)
    if is_of_run(entry, run) then
      request(id)
    elseif last <= youngest and is_meant(id) then
      gone[#gone + 1], places[#places + 1], looks = entry, length - from - seen, looks - COSTS
    end
  end
  if #gone > 0 then
    leave_lane(line, places)
    for _, entry in ipairs(gone) do
      leave_burst(entry)
      end_as('cancelled', id_of(entry), group, said, now)
    end
    go_on(group, #gone, now)
    ended = ended + #gone
  end
  return from + seen >= length
end

while groups[at] and looks > 0 do
  local group = groups[at]
  for _, claim in ipairs(group ~= '' and claims_on(group) or {}) do
    if claim.entry then request(id_of(claim.entry)) end
  end
  looks = looks - COSTS
  if looks > 0 and walk(group) then at, last = at + 1, '' end
end
if not groups[at] then at, last = 0, '' end
return { ended, requested, at, last, latest }
