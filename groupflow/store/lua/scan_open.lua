#!lua flags=allow-oom
-- scan_open: a daemon begins to run a scan. The first daemon makes it; a daemon that wants another number of shards
-- lets the present ones end: see `scan_next`. Runs with the keys of the namespace itself, not of a partition.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 the scan · 2 how many shards it is to have · 3 random text, by which its tasks are known
--          where there is none yet
-- returns  1 where that changed what is wanted, else 0
local scan, shards = K.scan .. ARGV[1], ARGV[2]
local wanted = call('HGET', scan, 'wanted')
if wanted == shards then return 0 end
call('HSET', scan, 'wanted', shards)
if not wanted then
  call('HSET', scan, 'generation', 1, 'count', shards, 'token', ARGV[3])
  call('HSET', K.scans, ARGV[1], digits(clock()))
else
  call('HSET', scan, 'closing', 1)
end
return 1
