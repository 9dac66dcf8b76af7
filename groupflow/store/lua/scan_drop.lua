#!lua flags=allow-oom
-- scan_drop: forget a scan. Its shards end when they are next claimed. Runs with the keys of the namespace
-- itself.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 the scan
-- returns  1, or 0 where there is none
call('DEL', K.scan .. ARGV[1])
return call('HDEL', K.scans, ARGV[1])
