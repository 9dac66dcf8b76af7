#!lua flags=no-writes
-- configuration: the configuration that a daemon reported.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon
-- returns  JSON, or '' if there is no such daemon, or it hasn't reported yet
return call('HGET', K.daemon .. ARGV[1], 'settings') or ''
