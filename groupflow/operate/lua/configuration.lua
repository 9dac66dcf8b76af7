#!lua flags=no-writes
-- configuration: what a daemon told that it runs by.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon
-- returns  JSON, or '' where there is no such daemon or it hasn't told yet
return call('HGET', K.daemon .. ARGV[1], 'settings') or ''
