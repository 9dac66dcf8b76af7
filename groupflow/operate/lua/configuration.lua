#!lua flags=no-writes
-- configuration: what a daemon told that it runs by.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 daemon
-- returns  JSON, or '' where there is no such daemon or it hasn't told yet
return call('HGET', K.daemon .. ARGV[1], 'settings') or ''
