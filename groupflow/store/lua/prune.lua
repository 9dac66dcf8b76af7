#!lua flags=allow-oom
-- prune: remove from a pool the plain tasks that wait and are in no list since the one of this number: a step of a
-- walk. What has come since that list began stays; what a puller holds is in none of these places.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 pool · 2 the list's number · 3 where: 'ordered', 'quarantined_plain', 'delayed', or 'types' for
--          what waits for the limit of its type, of all pools · 4 where the walk is,
--          '0' to begin · 5 how many to look at, about
-- returns  { where the walk goes on, '0' at its end; how many were removed }
local now, pool, number, removed = clock(), ARGV[1], ARGV[2], 0
local key = ARGV[3] == 'delayed' and K.delayed or index_of(ARGV[3], pool)
local is_of_types = ARGV[3] == 'types'
local step = is_of_types and call('HSCAN', K.cap_tasks, ARGV[4], 'COUNT', ARGV[5])
  or call('ZSCAN', key, ARGV[4], 'COUNT', ARGV[5])

-- Takes a task out of where it waits. Returns whether it was there.
local function leave(entry)
  local cap = is_limiting() and is_capping() and caps().leave_plain(entry)
  if is_of_types then
    for _, kind in ipairs({ 'ordered', 'quarantined_plain' }) do call('ZREM', index_of(kind, pool), entry) end
  end
  local is_gone = cap or call('ZREM', key, entry) == 1
  if cap then
    call('ZREM', key, entry)
    caps().turn(cap, now)
  end
  return is_gone
end

for i = 1, #step[2], 2 do
  local entry = step[2][i]
  local id = id_of(entry)
  local task_state = call('HMGET', K.task_state .. id, 'pool', 'list', 'group', 'type', 'scope')
  local is_listed = (task_state[2] or sub(entry, 1, 16)) >= number
  if task_state[1] == pool and (task_state[3] or '') == '' and not is_listed and leave(entry) then
    note_end('dropped', id, '', now)
    local line = cjson.encode({ 'dropped', task_state[4] or '' })
    line = sub(line, 1, -2) .. ',null,0,0,"' .. (task_state[5] or '') .. '"]'
    end_with(id, '', line, now)
    removed = removed + 1
  end
end
if removed > 0 then
  call('HINCRBY', K.count, 'dropped', removed)
  call('HINCRBY', K.count, 'queued_plain', -removed)
end
return { step[1], removed }
