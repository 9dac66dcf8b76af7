#!lua flags=no-writes
-- letter: one dead letter, with the errors of its attempts and without its headers and body.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 id
-- returns  { died at (µs) or '' where it is none, type, group or '', tenant or '', reason, kind or '',
--          attempts, 1 if it died at the door, else 0, bytes that lie here of its headers and body,
--          errors (JSON) or '' where it has none, or they lie in RabbitMQ }
local died = call('ZSCORE', K.dead, ARGV[1]) or ''
local letter = letter_of(ARGV[1])
return {
  died, letter.type, letter.group, letter.tenant, letter.reason, letter.kind, letter.attempts, letter.at_door,
  call('HSTRLEN', K.tasks, ARGV[1]),
  call('HGET', K.life .. ARGV[1], 'errors') or '',
}
