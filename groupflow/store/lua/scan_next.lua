#!lua flags=allow-oom
-- scan_next: all shards of a generation have ended, and the next one begins, with as many as are wanted by now. Runs
-- with the keys of the namespace itself.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 the scan · 2 the generation that has ended · 3 from where the next goes on ('' = from the
--          beginning) · 4 what it has to know of single rows · 5 rows done so far
-- returns  1, or 0 where that generation isn't the one that closes
local scan = K.scan .. ARGV[1]
if call('HGET', scan, 'generation') ~= ARGV[2] or call('HEXISTS', scan, 'closing') == 0 then return 0 end
local count, wanted = tonumber(call('HGET', scan, 'count')), call('HGET', scan, 'wanted')
for n = 0, count - 1 do call('HDEL', scan, 'closed:' .. n, 'ended:' .. n) end
call('HDEL', scan, 'closing', 'after')
call('HINCRBY', scan, 'generation', 1)
call('HSET', scan, 'count', wanted, 'carried', ARGV[4], 'done', ARGV[5])
if ARGV[3] ~= '' then call('HSET', scan, 'after', ARGV[3]) end
return 1
