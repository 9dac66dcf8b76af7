#!lua flags=allow-oom
-- stay: RabbitMQ refuses this dead letter's body, and takes others': it stays here, still counts, and `bodies`
-- hands it out no more. Only while it is the same death, and its body is still here.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 id · 2 died at (µs)
-- returns  1, or 0 if it has left, or stays already
local died = call('ZSCORE', K.bodies, ARGV[1])
if not died or digits(died) ~= digits(ARGV[2]) then return 0 end
call('ZREM', K.bodies, ARGV[1])
call('ZADD', K.staying, digits(died), ARGV[1])
return 1
