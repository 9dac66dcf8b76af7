#!lua flags=allow-oom
-- pause: hold a group, or everything. What runs goes on to its end; what comes in waits in order.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 group, '' for everything · 2 by whom
-- returns  1, or 0 where it was paused already
local refusal = other_layout()
if refusal then return refusal end
local now = clock()
local note = cjson.encode({ ARGV[2], digits(now) })
if ARGV[1] == '' then return call('SETNX', K.paused_all, note) end
local paused = call('HSETNX', K.paused, ARGV[1], note)
place(ARGV[1], now)
return paused
