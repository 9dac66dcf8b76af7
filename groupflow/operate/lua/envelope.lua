#!lua flags=no-writes
-- envelope: the headers and the body of one task. No other look of operators reads a body.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 id · 2 'dead' for a dead letter alone, '' for any task
-- returns  { envelope and body, or '' if there is no such task, { group, and where its body lies in RabbitMQ's
--          stream: offset, archived_as: its message id there } }
if ARGV[2] == 'dead' and not call('ZSCORE', K.dead, ARGV[1]) then return { '', {} } end
local kept = call('HMGET', K.task_state .. ARGV[1], 'offset', 'archived_as', 'group')
local facts = named({ offset = kept[1] or nil, archived_as = kept[2] or nil, group = some(kept[3] or '') })
return { call('HGET', K.tasks, ARGV[1]) or '', facts }
