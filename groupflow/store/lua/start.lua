#!lua flags=no-writes
-- start: the birth of a process that starts now: Redis's clock, or one more than the last birth registered here
-- (docs/adr/0028).
--
-- KEYS[1]  what all keys of the partition begin with
-- returns  { birth }
local last = call('HGET', K.epoch, 'birth') or 0
return { digits(math.max(clock(), tonumber(last) + 1)) }
