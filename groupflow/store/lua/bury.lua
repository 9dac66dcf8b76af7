#!lua flags=allow-oom
-- bury: the task has failed for good and becomes a dead letter, body and all. Its group goes on, or is parked behind
-- the death until an operator redrives or drops it.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 session · 3 slot · 4 fence · 5 entry · 6 group · 7 and on: what `give_up` takes
--          (`failing.lua`)
-- returns  { state, { 1 (accepted, also a repeat) or 0 (the fence is stale) } }
return settle(function(entry, group, now) give_up(entry, group, 7, now) end)
