#!lua flags=allow-oom
-- blame: an attempt blocks its daemon's loop for longer than it may, so that the lease will end. That end then counts
-- as a death of its task at once, and of no other.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session, as it shows it · 3 the fence (16 digits) and the id of what blocks it; 'all' where
--          nothing tells which of its tasks does
-- returns  { state }
local state = session_state(ARGV[1], ARGV[2])
if state == 'OK' then call('HSET', K.daemon .. ARGV[1], 'blocks', ARGV[3]) end
return { state }
