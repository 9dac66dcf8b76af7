#!lua flags=no-writes
-- lane: the tasks that wait in a group, the next to run first.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 group · 2 how many to pass over · 3 how many at most
-- returns  { now (µs), waiting in all, rows of { element, type, tenant or '', its life's attempt, crashes,
--            stage, due (µs) and errors (JSON), each nil where it has none } }
local key, from, most = K.lane .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local rows = {}
local page = call('LRANGE', key, -(from + most), -(from + 1))
for i = #page, 1, -1 do
  local id = id_of(page[i])
  local task_type, tenant = facts_of(id)
  rows[#rows + 1] = {
    page[i], task_type, tenant,
    call('HMGET', K.life .. id, 'attempt', 'crashes', 'stage', 'due', 'errors'),
  }
end
return { clock(), call('LLEN', key), rows }
