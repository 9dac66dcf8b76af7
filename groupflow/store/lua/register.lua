#!lua flags=allow-oom
-- register: open a session for a daemon, and take up at once what an earlier process of the same
-- name still held. Run twice, it opens two sessions, of which only the last one counts.
--
-- KEYS[1]  any key of the namespace (it names the slot)
-- ARGV     1 daemon · 2 lease (µs) · 3 what `status` tells of it (JSON) · 4 'again' for a process that
--          had a session and lost it: it must not take the name back from one that came since
--          5 the process, which no other one names so
-- returns  { session or REPLACED, rows of { id, group, fence } that were taken up }
local now = clock()
local daemon = ARGV[1]
local key = K.daemon .. daemon
local is_another = call('EXISTS', key) == 1 and call('HGET', key, 'process') ~= ARGV[5]
if ARGV[4] == 'again' and is_another then return { 'REPLACED', {} } end
local rows = hand_over(daemon, now)
local session = digits(call('INCR', K.fence))
call('HSET', key, 'session', session, 'info', ARGV[3], 'process', ARGV[5])
call('ZADD', K.daemons, digits(now + ARGV[2]), daemon)
return { session, rows }
