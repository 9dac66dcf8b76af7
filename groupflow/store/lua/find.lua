#!lua flags=no-writes
-- find: all facts about one task in one instant.
--
-- KEYS[1]  any key of the namespace
-- ARGV     1 id
-- returns  { now (µs), envelope and body or '', life as a flat list, died at (µs) or '',
--            line of the history or '', daemon or '', worker or '', checkpoint or '' }
local id = ARGV[1]
local envelope = call('HGET', K.tasks, id) or ''
local ended = call('HGET', K.history_new, id) or call('HGET', K.history_old, id) or ''

local function holds(daemon, worker)
  local checkpoint = call('HGET', K.worker .. daemon, worker)
  local claim = checkpoint and claim_of(checkpoint)
  return claim and id_of(claim.element) == id and checkpoint or nil
end

-- Who runs it. A grouped task is found by its group's lock; for a plain one every worker is asked,
-- as many as there are.
local function holder(group)
  if group then
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
if envelope ~= '' and died == '' then
  local is_sound, facts = pcall(cjson.decode, string.match(envelope, '^[^\n]*'))
  local group = is_sound and facts[2] ~= cjson.null and facts[2] or nil
  daemon, worker, checkpoint = holder(group)
end
return { clock(), envelope, call('HGETALL', K.life .. id), died, ended, daemon, worker, checkpoint }
