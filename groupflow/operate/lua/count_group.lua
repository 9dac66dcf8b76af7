#!lua flags=no-writes
-- count_group: how many tasks wait in a group's lane, and which are claimed or of a run.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 group
-- returns  { how many wait, the ids of those that run }
local group, running = ARGV[1], {}
local lane, run = K.lane .. group, end_of_run(group)
for _, claim in ipairs(claims_on(group)) do
  if claim.entry then running[#running + 1] = id_of(claim.entry) end
end
local waiting, place = call('LLEN', lane), 1
local entry = call('LINDEX', lane, -1)
while entry and sub(entry, 1, 16) <= run do
  if is_of_run(entry, run) then waiting, running[#running + 1] = waiting - 1, id_of(entry) end
  place = place + 1
  entry = call('LINDEX', lane, -place)
end
return { waiting, running }
