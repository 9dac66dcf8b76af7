#!lua flags=allow-oom
-- tell: replace what others are told of a daemon, as long as the session is its own.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session, as it shows it · 3 what `status` tells of it (JSON)
--          4 its configuration, passwords hidden (JSON) · 5 its limits (see `configure`)
--          6 the types that it has handlers of (JSON)
-- returns  { state }: OK, EXPIRED, REPLACED as for renew
local state = session_state(ARGV[1], ARGV[2])
if state == 'OK' then
  call('HSET', K.daemon .. ARGV[1], 'info', ARGV[3], 'settings', ARGV[4])
  configure(ARGV[5], clock())
  announce(ARGV[1], ARGV[6])
end
return { state }
