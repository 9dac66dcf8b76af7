#!lua flags=no-writes
-- find: all facts about one task in one instant, without its headers and body.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 id
-- returns  { now (µs), 1 where it is there or 0, type, group or '', tenant or '', its life's attempt,
--            crashes, stage, due (µs), reason and errors (JSON), each nil where it has none, died at
--            (µs) or '', line of the history or '', daemon or '', worker or '', checkpoint or '' }
local id = ARGV[1]
local is_there = call('HEXISTS', K.tasks, id)
local ended = call('HGET', K.history_new, id) or call('HGET', K.history_old, id) or ''

local function holds(daemon, worker)
  local checkpoint = call('HGET', K.worker .. daemon, worker)
  local claim = checkpoint and claim_of(checkpoint)
  return claim and id_of(claim.element) == id and checkpoint or nil
end

-- Who runs it. A grouped task is found by its group's lock; for a plain one, or one whose group can't
-- be told, every worker is asked, as many as there are.
local function holder(group)
  if group ~= '' then
    local lock = call('GET', K.lock .. group)
    if not lock then return '', '', '' end
    local worker = string.match(lock, '[^ ]+$')
    local daemon = string.sub(lock, 18, -(#worker + 2))
    local checkpoint = holds(daemon, worker)
    if checkpoint then return daemon, worker, checkpoint end
    return '', '', ''
  end
  for _, daemon in ipairs(call('ZRANGE', K.daemons, 0, 999)) do
    for _, worker in ipairs(call('HKEYS', K.worker .. daemon)) do
      local checkpoint = holds(daemon, worker)
      if checkpoint then return daemon, worker, checkpoint end
    end
  end
  return '', '', ''
end

local daemon, worker, checkpoint = '', '', ''
local died = call('ZSCORE', K.dead, id) or ''
local task_type, tenant, group = facts_of(id)
if is_there == 1 and died == '' then daemon, worker, checkpoint = holder(group) end
return {
  clock(), is_there, task_type, group, tenant,
  call('HMGET', K.life .. id, 'attempt', 'crashes', 'stage', 'due', 'reason', 'errors'),
  died, ended, daemon, worker, checkpoint,
}
