#!lua flags=no-writes
-- bodies: dead letters to be archived, the oldest death first: as many as it takes to get below a bound,
-- and no more at once than are asked for. The only read that carries many bodies.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 bytes that dead letters may hold here · 2 how many letters at most · 3 bytes at most, but for
--          the first letter
-- returns  rows of { id, died at (µs), envelope and body, { type, group, tenant, scope } }
local over = (tonumber(call('HGET', K.count, 'dead_bytes') or nil) or 0) - ARGV[1]
local rows, size = {}, 0
if over <= 0 then return rows end
local oldest = call('ZRANGE', K.bodies, 0, ARGV[2] - 1, 'WITHSCORES')
for i = 1, #oldest, 2 do
  local bytes = call('HSTRLEN', K.tasks, oldest[i])
  if over <= 0 or (i > 1 and size + bytes > tonumber(ARGV[3])) then break end
  rows[#rows + 1] = { oldest[i], oldest[i + 1], call('HGET', K.tasks, oldest[i]) or '',
    call('HMGET', K.life .. oldest[i], 'type', 'group', 'tenant', 'scope') }
  size, over = size + bytes, over - bytes
end
return rows
