#!lua flags=no-writes
-- dead: a page of the dead letters, the latest death first.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 how many to pass over · 2 how many at most
-- returns  rows of { id, died at (µs), envelope without its body, life as a flat list }
local rows = {}
local found = call('ZRANGE', K.dead, ARGV[1], ARGV[1] + ARGV[2] - 1, 'REV', 'WITHSCORES')
for i = 1, #found, 2 do
  local id = found[i]
  local facts = facts_of(id)
  rows[#rows + 1] = { id, found[i + 1], facts ~= '' and facts or '[]', call('HGETALL', K.life .. id) }
end
return rows
