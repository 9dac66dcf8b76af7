#!lua flags=no-writes
-- told: the configuration that a daemon told of itself.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 daemon
-- returns  JSON, or nothing where there is no such daemon or it hasn't told yet
return call('HGET', K.daemon .. ARGV[1], 'settings') or ''
