#!lua flags=allow-oom
-- bodies: dead letters to archive, the oldest death first: as many as it takes to get below a bound, and no
-- more at once than asked for. No other look carries many bodies. One daemon archives at a time: the one
-- that got some, until so long after its last call, or until its session ends.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 bytes that dead letters may hold here · 2 how many letters at most, 0 to let others archive
--          · 3 bytes at most; the first letter may have more · 4 daemon · 5 session · 6 for how long (µs)
-- returns  rows of { id, died at (µs), envelope and body, { type, group, tenant, scope }, reason, errors (JSON) or '',
--          context (JSON) or '', corrections (see `redrive.lua`) or '' }; none while another daemon archives
local now, rows, size = clock(), {}, 0
if is_taken('archiver', ARGV[4], ARGV[5], now) then return rows end
local over = (tonumber(call('HGET', K.count, 'dead_bytes') or nil) or 0) - ARGV[1]
local oldest = over > 0 and tonumber(ARGV[2]) > 0
  and call('ZRANGE', K.bodies, 0, ARGV[2] - 1, 'WITHSCORES') or {}
for i = 1, #oldest, 2 do
  local id, task_state = oldest[i], K.task_state .. oldest[i]
  local bytes = call('HSTRLEN', K.tasks, id)
    + call('HSTRLEN', task_state, 'errors') + call('HSTRLEN', task_state, 'context')
    + call('HSTRLEN', task_state, 'corrections')
  if over <= 0 or (i > 1 and size + bytes > tonumber(ARGV[3])) then break end
  local kept = call('HMGET', task_state, 'reason', 'errors', 'context', 'dead_bytes', 'corrections')
  rows[#rows + 1] = { id, oldest[i + 1], call('HGET', K.tasks, id) or '',
    call('HMGET', task_state, 'type', 'group', 'tenant', 'scope'), kept[1] or '', kept[2] or '', kept[3] or '',
    kept[5] or '' }
  size, over = size + bytes, over - (tonumber(kept[4] or nil) or bytes)
end
if #rows > 0 then
  take_role('archiver', ARGV[4], ARGV[5], now + ARGV[6])
else
  call('HDEL', K.segments, 'archiver')
end
return rows
