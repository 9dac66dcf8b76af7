#!lua flags=no-writes
-- lane: the tasks that wait in a group, the next to run first.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 group · 2 how many to pass over · 3 how many at most
-- returns  { at (now), total: waiting in all, tasks: rows of { id, enqueued_at, type, tenant, task_state } }
local key, from, most = K.lane .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local rows = {}
local page = call('LRANGE', key, -(from + most), -(from + 1))
for i = #page, 1, -1 do
  local id = id_of(page[i])
  local task_type, tenant = facts_of(id)
  rows[#rows + 1] = named({
    id = id, enqueued_at = sequence_of(page[i]), type = task_type, tenant = some(tenant),
    task_state = task_state_of(id),
  })
end
return named({ at = clock(), total = call('LLEN', key), tasks = rows })
