#!lua flags=allow-oom
-- register: open a session for a daemon, and take up at once what an earlier process of the same
-- name still held. What its own process opened since is taken for the answer: so a call that comes late,
-- behind the one that was made in its place, takes nothing away from the daemon that lives.
--
-- KEYS[1]  any key of the namespace (it names the slot)
-- ARGV     1 daemon · 2 lease (µs) · 3 what `status` tells of it (JSON) · 4 'again' for a process that
--          had a session and lost it: it must not take the name back from one that came since
--          5 the process, which no other one names so · 6 the number of its last session, 0 for none
-- returns  { session or REPLACED, rows of { id, group, fence } that were taken up }
local now = clock()
local daemon, process, last = ARGV[1], ARGV[5], ARGV[6]
local key = K.daemon .. daemon
local known = call('HMGET', key, 'session', 'process')
local session, rows = known[1], {}
local is_own = session and known[2] == process
-- A smaller number than the caller's last one stands here where Redis lost what it had written.
if session and not is_own and ARGV[4] == 'again' and session >= last then return { 'REPLACED', {} } end
if not is_own or session <= last then
  rows = hand_over(daemon, now)
  -- Nor does a process have a number twice, where the counter has gone back too.
  local behind = tonumber(last) - tonumber(call('GET', K.fence) or 0)
  if behind > 0 then call('INCRBY', K.fence, behind) end
  session = digits(call('INCR', K.fence))
  call('HSET', key, 'session', session, 'info', ARGV[3], 'process', process)
end
call('ZADD', K.daemons, digits(now + ARGV[2]), daemon)
return { session, rows }
