#!lua flags=allow-oom
-- scan_report: a shard of a closing generation tells how far it is, or that it has ended. What it told first stands, so
-- it may tell it again; the script writes it again, so that replicas are waited for. Runs with the keys of the
-- namespace itself.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 the scan · 2 the generation · 3 'closed' or 'ended' · 4 the shard · 5 what it tells (JSON)
-- returns  as `scan_look`
local scan = K.scan .. ARGV[1]
if call('HGET', scan, 'generation') == ARGV[2] and call('HEXISTS', scan, 'closing') == 1 then
  local field = ARGV[3] .. ':' .. ARGV[4]
  call('HSET', scan, field, call('HGET', scan, field) or ARGV[5])
end
return { clock(), call('HGETALL', scan) }
