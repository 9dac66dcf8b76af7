#!lua flags=allow-oom
-- schedule_drop: forget a schedule. Its tasks stay. If a daemon still has it, it begins again.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 name
-- returns  1, or -1 if there is no such schedule here
local row = K.schedule .. ARGV[1]
if call('EXISTS', row) == 0 or call('HEXISTS', row, 'gone') == 1 then return -1 end
forget_schedule(ARGV[1])
return 1
