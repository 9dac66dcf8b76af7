#!lua flags=allow-oom
-- sweep: remove dead letters that are past their retention.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 retention (µs) · 2 how many at most · 3 their line for the history
-- returns  the ids removed
local now = clock()
local ids = call('ZRANGEBYSCORE', K.dead, '-inf', digits(now - ARGV[1]), 'LIMIT', 0, ARGV[2])
for _, id in ipairs(ids) do forget(id, ARGV[3], now) end
return ids
