#!lua flags=no-writes
-- start: the birth of a process that starts now: Redis's clock, or one more than the last birth registered here
-- (docs/adr/0028). And what is known of the process that has its name, while the lease of that runs.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon
-- returns  { birth, the process ('' for none), what it tells of itself (JSON), until when its lease runs, how long
--          that is (µs), now }
local now, known = clock(), call('HMGET', K.daemon .. ARGV[1], 'process', 'info', 'lease')
local birth = math.max(now, tonumber(call('HGET', K.epoch, 'birth') or 0) + 1)
local ends = tonumber(call('ZSCORE', K.daemons, ARGV[1]) or 0)
if not known[1] or ends <= now then return { digits(birth), '', '', 0, 0, now } end
return { digits(birth), known[1], known[2], ends, tonumber(known[3] or 0), now }
