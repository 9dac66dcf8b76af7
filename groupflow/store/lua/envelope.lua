#!lua flags=no-writes
-- envelope: the headers and the body of one dead letter. Nothing else that people ask reads a body.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 id
-- returns  { envelope and body, or '' where it is no dead letter; the offset and the message id of its
--          body in RabbitMQ's stream, '' each where it is here; its group ('' = plain) }
if not call('ZSCORE', K.dead, ARGV[1]) then return { '', '', '', '' } end
local place = call('HMGET', K.life .. ARGV[1], 'offset', 'archived_as', 'group')
return { call('HGET', K.tasks, ARGV[1]) or '', place[1] or '', place[2] or '', place[3] or '' }
