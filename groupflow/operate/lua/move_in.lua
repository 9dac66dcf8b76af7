#!lua
-- move_in: write what `move_out` has read elsewhere, once: the script passes over tasks that are noted as written. A
-- task whose id another task has here gets a derived one. Tasks of the plain list go into `ordered`: so tasks
-- of several partitions stand in the order of their arrival. Dedup uses the history, so each message id stays
-- known in the partition that its message would come to.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 where it comes from · 2 random text, for a salt if there is none yet · 3 how many notes
--          to remove, of tasks that are gone there · then their ids · then what `move_out` packed
-- returns  { 1, the id that each task has here, '' for what is none }; or { 0, names of daemons that run }
local refusal = other_layout() -- of a letter; who moves a namespace says no number
if refusal then return refusal end
local now = clock()
may_drain = false -- no group is drained by a move
local from, gone = ARGV[1], tonumber(ARGV[3])
local groups, ids = {}, {}

local function note_of(id) return from .. ' ' .. id end

local function write_state(record, id, old)
  local task_state = {}
  for i = 1, #record.task_state, 2 do task_state[record.task_state[i]] = record.task_state[i + 1] end
  if task_state.late_for == old then task_state.late_for = id end
  if task_state.newest then task_state.newest = NEVER end -- its claim was another partition's
  task_state.unknown = nil -- it waits until it is due; a clock of its type may run in each partition
  for name, value in pairs(task_state) do call('HSET', K.task_state .. id, name, value) end
  if task_state.pool then call('HSETNX', K.pools, task_state.pool, digits(now)) end
  for _, total in ipairs({ 'delayed_bytes', 'dead_bytes', 'asleep', 'carried_bytes' }) do
    if task_state[total] then call('HINCRBY', K.count, total, task_state[total]) end
  end
  if task_state.carried_for then call('HINCRBY', K.carried, task_state.carried_for, task_state.carried_bytes) end
end

local function write_place(record, entry, id)
  local group = record.group
  if record.where == 'lane' then
    local newest = call('LINDEX', K.lane .. group, 0)
    if newest and sequence_of(newest) > sequence_of(entry) then
      insert(K.lane .. group, entry)
    else
      call('LPUSH', K.lane .. group, entry)
    end
    groups[group] = true
  elseif record.where == 'dead' then
    call('ZADD', K.dead, record.score, id)
    if record.bodies then call('ZADD', K.bodies, digits(record.bodies), id) end
    if record.staying then call('ZADD', K.staying, digits(record.staying), id) end
    if record.parked then
      local note = cjson.decode(record.parked)
      note[1] = id
      call('HSET', K.parked, group, cjson.encode(note))
      groups[group] = true
    end
  elseif record.where == 'delayed' then
    stand_aside(entry, group, record.score)
  else
    local pool = sub(record.where, 1, 5) == 'pool_' and call('HGET', K.task_state .. id, 'pool') or ''
    call('ZADD', key_in(record.where == 'plain' and 'ordered' or record.where, pool), record.score, entry)
  end
end

local function write(record)
  local old = id_of(record.entry)
  local noted = call('HGET', K.moved, note_of(old))
  -- The note of a letter may have stayed behind, and be of what ended long ago.
  if noted and (is_known(noted) or not record.envelope) then return noted end
  call('HSETNX', K.segments, 'salt', ARGV[2])
  local id = free_id(old, record.scope)
  local entry = sub(record.entry, 1, 17) .. id
  if record.envelope then call('HSET', K.tasks, id, record.envelope) end
  write_state(record, id, old)
  if origin_of(id).reply_to then call('HSET', K.count, 'replies', 1) end
  if record.late then call('ZADD', K.late, digits(record.late), id) end
  if record.cancel then call('HSET', K.cancels, id, record.cancel) end
  if record.start_by then call('ZADD', K.expiring, digits(record.start_by), id) end
  write_place(record, entry, id)
  if record.burst then bursts().enter(bursts().name_of(id), record.burst, entry) end
  call('HINCRBY', K.count, 'taken', 1)
  if record.where ~= 'dead' then
    call('HINCRBY', K.count, record.group == '' and 'queued_plain' or 'queued_grouped', 1)
  end
  call('HSET', K.moved, note_of(old), id)
  return id
end

local function remember(record)
  local id, scope, line = record.entry, record.scope, record.line
  if record.result then keep_results({ id, record.result }) end
  local kept, place_of = call('HGET', K.history_new, id), K.history_new
  if not kept then kept, place_of = call('HGET', K.history_old, id), K.history_old end
  local owner = kept and scope_in(kept) or not kept and call('HEXISTS', K.tasks, id) == 1 and scope_of(id) or nil
  if kept and (not owner or not scope or owner == scope) then
    if sub(line, 1, 16) > sub(kept, 1, 16) then call('HSET', place_of, id, line) end
  elseif not is_known(id) then
    call('HSET', HISTORY[record.where], id, line)
  elseif owner and scope and owner ~= scope then
    call('HSETNX', K.segments, 'salt', ARGV[2])
    call('HSET', HISTORY[record.where], free_id(id, scope), line)
  end -- else it runs again under this id, so the id is known
end

local OTHERS = {
  history_new = remember, history_old = remember,
  paused = function(record)
    local is_new = call('HSETNX', K.paused, record.group, record.note) == 1
    if is_new and record.ends then call('ZADD', K.resumes, record.ends, record.group) end
    groups[record.group] = true
  end,
  drains = function(record) call('HSETNX', K.drains, record.group, record.ends) end,
  -- An entry gets a number of this partition, and keeps the time that its own one told.
  outbox = function(record)
    local noted, entry = 'outbox of ' .. ARGV[1], record.entry
    local number, told = sub(entry, 1, 16), sub(entry, 17)
    if (call('HGET', K.moved, noted) or NEVER) >= number then return end
    if string.find(told, '"at":', 1, true) ~= 2 then told = '{"at":' .. format('%.0f', number) .. ',' .. sub(told, 2) end
    put_out({ told }, now)
    call('HSET', K.moved, noted, number)
  end,
  by_hand = function(record)
    local known, text = call('HGET', K.by_hand, record.entry), record.text
    if text and (not known or sub(known, 1, 16) < sub(text, 1, 16)) then begin_by_hand(record.entry, text, now) end
  end,
  schedules = function(record)
    if record.gone then return end -- the schedule lies elsewhere, and may lie here
    forget_schedule(record.entry)
    call('HSET', K.schedule .. record.entry, unpack(record.row))
    call('ZADD', K.schedules, record.due, record.entry)
  end,
}

for i = 4, 3 + gone do call('HDEL', K.moved, note_of(ARGV[i])) end
local records, is_letter = {}, true
for i = 4 + gone, #ARGV do
  local record = cmsgpack.unpack(ARGV[i])
  records[#records + 1] = record
  is_letter = is_letter and record.where == 'dead'
end
local daemons = not is_letter and living()
if daemons then return { 0, daemons } end
note_first_epoch(now)
for i, record in ipairs(records) do
  local write_other = OTHERS[record.where]
  ids[i] = write_other and (write_other(record) or '') or write(record)
end
for group in pairs(groups) do place(group, now) end
call('HINCRBY', K.count, 'taken', 0) -- a write: replicas are waited for, also where all was written before
return { 1, ids }
