#!lua flags=no-writes
-- status: the totals and the daemons, read in one instant.
--
-- KEYS[1]  any key of the namespace
-- ARGV     none
-- returns  { count as a flat list, ready, held, parked, paused, dead, delayed,
--            rows of { daemon, µs until its lease ends, info (JSON) } }
local now, daemons = clock(), {}
local known = call('ZRANGE', K.daemons, 0, 999, 'WITHSCORES')
for i = 1, #known, 2 do
  daemons[#daemons + 1] = { known[i], tonumber(known[i + 1]) - now, call('HGET', K.daemon .. known[i], 'info') or '{}' }
end
return {
  call('HGETALL', K.count), call('ZCARD', K.ready), call('ZCARD', K.held), call('HLEN', K.parked),
  call('HLEN', K.paused), call('ZCARD', K.dead), call('ZCARD', K.delayed), daemons,
}
