#!lua flags=allow-oom
-- reap: take over from daemons, and workers that pull, whose lease has run out. A lease ends here and nowhere
-- else: no key expires by itself, so a group can't come free while somebody still believes to hold it.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 how many of each at most · 2 the caller's lease (µs) · 3 'final' where no process that lost its lease can
--          come back
-- returns  { µs until the next lease ends, may be looked at, or counts as a death, or -1, rows of { daemon, id, group,
--          fence } }
local now = clock()
enter_epoch(now, tonumber(ARGV[2]))
local waits = recover(now)
if waits >= 0 then return { waits, {} } end
local rows = {}
local wait = count_silent(now, ARGV[3] == 'final')
for _, key in ipairs({ K.daemons, K.pullers }) do
  local expired = call('ZRANGEBYSCORE', key, '-inf', digits(now), 'LIMIT', 0, ARGV[1])
  for _, daemon in ipairs(expired) do
    for _, row in ipairs(hand_over(daemon, now)) do
      rows[#rows + 1] = { daemon, row[1], row[2], row[3] }
    end
  end
  local nearest = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  local left = nearest and math.max(0, tonumber(nearest) - now)
  if left and (wait < 0 or left < wait) then wait = left end
end
return { wait, rows }
