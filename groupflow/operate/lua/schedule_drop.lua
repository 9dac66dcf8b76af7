#!lua flags=allow-oom
-- schedule_drop: forget a schedule. Its tasks stay. If a daemon still has it, it begins again.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 name
-- returns  1, or 0 if there is no such schedule here
if call('HEXISTS', K.schedule .. ARGV[1], 'gone') == 1 then return 0 end
local known = call('EXISTS', K.schedule .. ARGV[1])
if known == 1 then forget_schedule(ARGV[1]) end
return known
