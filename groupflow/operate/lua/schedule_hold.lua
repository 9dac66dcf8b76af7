#!lua flags=allow-oom
-- schedule_hold: pause a schedule, or let it go on. While it is paused, its ticks aren't made, and count
-- as neither missed nor skipped; a run by hand is made.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 name · 2 by whom it is paused, '' to let it go on
-- returns  1; 0 if it was so already; -1 if there is no such schedule here
local row = K.schedule .. ARGV[1]
local known = call('HMGET', row, 'definition', 'gone')
if not known[1] or known[2] then return -1 end
if ARGV[2] == '' then return call('HDEL', row, 'paused') end
return call('HSETNX', row, 'paused', cjson.encode({ ARGV[2], digits(clock()) }))
