#!lua flags=allow-oom
-- renew: push back the end of a daemon's lease, which covers every claim that it holds.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 daemon · 2 session · 3 lease (µs)
-- returns  { state, plain tasks that may be claimed, groups that may be claimed }
--          state: OK, EXPIRED (its claims were handed on), REPLACED (its name was taken over)
local state = session_state(ARGV[1], ARGV[2])
if state ~= 'OK' then return { state, 0, 0 } end
call('ZADD', K.daemons, 'XX', digits(clock() + ARGV[3]), ARGV[1])
return { 'OK', call('LLEN', K.plain) + call('ZCARD', K.ordered), call('ZCARD', K.ready) }
