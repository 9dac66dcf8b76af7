#!lua
-- find_longest: keep a list of the longest lanes without walking all of them at once. Each call looks at the known
-- ones, those that run, are parked, paused or wait for a turn, and the next so many of `ready` and `held`, from where the last
-- call ended: few groups take one call, many take several.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many groups to walk on · 2 how many to keep
-- returns  groups looked at
local walked, keep = tonumber(ARGV[1]), tonumber(ARGV[2])
local WALKED = { K.held, unpack(READY) }
local known = known_longest()
local from, total = known.from, count_in(WALKED)
if from >= total then from = 0 end
local lengths, looked = {}, 0

local function look(group)
  if lengths[group] == nil then
    lengths[group] = call('LLEN', K.lane .. group)
    looked = looked + 1
  end
end

for _, group in ipairs(known.groups) do look(group) end
for _, claim in ipairs(claims(walked, true)) do look(claim.group) end
for _, key in ipairs({ K.parked, K.paused, K.waiting_groups, K.cap_groups }) do
  for _, group in ipairs(first_in(key, walked)) do look(group) end
end
for _, group in ipairs((members_of(WALKED, from, walked))) do look(group) end

-- The longest ones, by insertion: most groups are shorter than the shortest kept, and cost one look.
local groups = {}
for group, length in pairs(lengths) do
  if length > 0 and (#groups < keep or length > lengths[groups[#groups]]) then
    local place = #groups + 1
    while place > 1 and lengths[groups[place - 1]] < length do place = place - 1 end
    table.insert(groups, place, group)
    groups[keep + 1] = nil
  end
end
local list = #groups > 0 and cjson.encode(groups) or '[]'
call('HSET', K.samples, 'longest', '{"from":' .. (from + walked) .. ',"groups":' .. list .. '}')
return looked
