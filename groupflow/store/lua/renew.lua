#!lua flags=allow-oom
-- renew: push back the end of a daemon's lease, which covers every claim that it holds. A suspect's
-- first attempt since its crash that is a lease old is none any more: another suspect may run beside it.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 daemon · 2 session, as it shows it · 3 lease (µs)
-- returns  { state, plain tasks that this daemon may claim, groups that it may claim }
--          state: OK, EXPIRED (its claims were handed on), REPLACED (its name was taken over)
local state = session_state(ARGV[1], ARGV[2])
if state ~= 'OK' then return { state, 0, 0 } end
local now = clock()
call('ZADD', K.daemons, 'XX', digits(now + ARGV[3]), ARGV[1])
local since = mark and tonumber(string.sub(mark, 17))
if since and now - since >= tonumber(ARGV[3]) then unmark(ARGV[1]) end
local plain, groups = call('LLEN', K.plain) + call('ZCARD', K.ordered), call('ZCARD', K.ready)
if not mark then
  plain = plain + call('ZCARD', K.suspect_plain)
  groups = groups + call('ZCARD', K.suspect_groups)
end
return { 'OK', plain, groups }
