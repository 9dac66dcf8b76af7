#!lua flags=no-writes
-- status: the totals and the daemons, read in one instant.
--
-- KEYS[1]  any key of the namespace
-- ARGV     none
-- returns  { count as a flat list, ready, held, parked, groups that are only paused, dead, delayed,
--            rows of { daemon, µs until its lease ends, info (JSON) }, µs for which the plain task that
--            goes next could have been claimed or -1, the same of the grouped one, now (µs), all
--            paused (JSON) or '' }
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

-- What stands first has been waiting longest, unless priorities say otherwise.
local function waited(element)
  if not element then return -1 end
  local due = has_life(element) and call('HGET', K.life .. id_of(element), 'due')
  return math.max(0, now - math.max(arrival_of(element), tonumber(due or nil) or 0))
end
local plain, grouped = waited(call('LINDEX', K.plain, -1)), -1
for _, index in ipairs(PLAIN) do plain = math.max(plain, waited(call('ZRANGE', index, 0, 0)[1])) end
for _, index in ipairs(READY) do
  local group = call('ZRANGE', index, 0, 0)[1]
  grouped = math.max(grouped, waited(group and call('LINDEX', K.lane .. group, -1)))
end
return {
  call('HGETALL', K.count), count_in(READY), call('ZCARD', K.held), call('HLEN', K.parked),
  paused, call('ZCARD', K.dead), call('ZCARD', K.delayed), daemons, plain, grouped, now,
  call('GET', K.paused_all) or '',
}
