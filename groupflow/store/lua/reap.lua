#!lua flags=allow-oom
-- reap: take over from daemons whose lease has run out. A lease ends here and nowhere else: no key
-- expires by itself, so a group can't come free while somebody still believes to hold it.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 how many daemons at most · 2 the caller's lease (µs)
-- returns  { µs until the next lease ends, or may be looked at, or -1, rows of { daemon, id, group,
--          fence } }
local now = clock()
enter_epoch(now, tonumber(ARGV[2]))
local waits = recover(now)
if waits >= 0 then return { waits, {} } end
local rows = {}
local expired = call('ZRANGEBYSCORE', K.daemons, '-inf', digits(now), 'LIMIT', 0, ARGV[1])
for _, daemon in ipairs(expired) do
  for _, row in ipairs(hand_over(daemon, now)) do
    rows[#rows + 1] = { daemon, row[1], row[2], row[3] }
  end
end
local nearest = call('ZRANGE', K.daemons, 0, 0, 'WITHSCORES')
local wait = -1
if nearest[2] then wait = math.max(0, tonumber(nearest[2]) - now) end
return { wait, rows }
