#!lua flags=no-writes
-- delayed_of: which tasks of a group are delayed. It looks at so many places at most, of one list: the
-- group's lane, or all tasks that stand aside.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 group · 2 'lane' or 'aside' · 3 how many places to pass over · 4 how many to look at
-- returns  { places looked at, the ids that are delayed }
local group, from, most = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local now, found, page = clock(), {}, nil
if ARGV[2] == 'lane' then
  page = call('LRANGE', K.lane .. group, from, from + most - 1)
else
  page = call('ZRANGE', K.delayed, from, from + most - 1)
end
for _, entry in ipairs(page) do
  if has_state(entry) then
    local facts = call('HMGET', K.task_state .. id_of(entry), 'due', 'group')
    local due = tonumber(facts[1] or nil)
    local waits = ARGV[2] == 'aside' or (due and due > now) -- who stands aside does so until it is promoted
    if waits and facts[2] == group then found[#found + 1] = id_of(entry) end
  end
end
return { #page, found }
