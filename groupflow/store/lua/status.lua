#!lua flags=no-writes
-- status: the totals and the daemons, read in one instant.
--
-- KEYS[1]  any key of the namespace
-- ARGV     none
-- returns  { count as a flat list, ready, held, parked, groups that are only paused, dead, delayed,
--            rows of { daemon, µs until its lease ends, info (JSON) } }
local now, daemons = clock(), {}
local known = call('ZRANGE', K.daemons, 0, 999, 'WITHSCORES')
for i = 1, #known, 2 do
  daemons[#daemons + 1] = { known[i], tonumber(known[i + 1]) - now, call('HGET', K.daemon .. known[i], 'info') or '{}' }
end
-- Groups that people paused are few. One that runs to its end, or is parked as well, counts as that.
local paused = 0
for _, group in ipairs(call('HLEN', K.paused) <= 1000 and call('HKEYS', K.paused) or {}) do
  local is_more = call('EXISTS', K.lock .. group) == 1 or call('HEXISTS', K.parked, group) == 1
  if not is_more then paused = paused + 1 end
end
return {
  call('HGETALL', K.count), call('ZCARD', K.ready), call('ZCARD', K.held), call('HLEN', K.parked),
  paused, call('ZCARD', K.dead), call('ZCARD', K.delayed), daemons,
}
