#!lua flags=no-writes
-- letter: one dead letter, with the errors of its attempts and without its headers and body.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 id
-- returns  what `letter_of` has, bytes of its headers and body in Redis, errors (JSON) and corrections (see
--          `redrive.lua`) if it has some, and they don't lie in RabbitMQ; nothing if there is no such letter
local died = call('ZSCORE', K.dead, ARGV[1])
if not died then return {} end
local letter = letter_of(ARGV[1], died)
letter.bytes = call('HSTRLEN', K.tasks, ARGV[1])
letter.errors = call('HGET', K.task_state .. ARGV[1], 'errors') or nil
letter.corrections = call('HGET', K.task_state .. ARGV[1], 'corrections') or nil
return named(letter)
