#!lua flags=no-writes
-- envelope: the headers and the body of one dead letter. Nothing else that people ask reads a body.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 id
-- returns  { envelope and body, or '' where it is no dead letter, { group, and where its body lies in RabbitMQ's
--          stream: offset, archived_as: its message id there } }
if not call('ZSCORE', K.dead, ARGV[1]) then return { '', {} } end
local kept = call('HMGET', K.life .. ARGV[1], 'offset', 'archived_as', 'group')
local facts = named({ offset = kept[1] or nil, archived_as = kept[2] or nil, group = some(kept[3] or '') })
return { call('HGET', K.tasks, ARGV[1]) or '', facts }
