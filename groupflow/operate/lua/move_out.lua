#!lua flags=no-writes
-- move_out: some of what lies in a place, ready to be written elsewhere.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 the place: 'plain', 'ordered', 'quarantined_plain', 'delayed', 'dead'; 'lane' of a group; 'pool_ordered'
--          and 'pool_quarantined_plain' of a pool; 'letter', a dead letter; 'paused', groups that operators hold; 'drains'; 'outbox';
--          'by_hand', limits; 'schedules'; 'history_new' and 'history_old' · 2 that group, pool, or id
--          3 how many to pass over, which stay; of paused groups and the history a cursor, '0' to begin
--          4 how many at most · 5 bytes after which it ends
-- returns  { 1, rows of { id of a task or '', group or '', the id that decides where it lies without a group,
--          entry, packed }, cursor of the next page if there is one }; or { 0, names of daemons that run }
local where, name, most, room = ARGV[1], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local daemons = living()
if daemons and where ~= 'letter' then return { 0, daemons } end
local rows, bytes, next_cursor = {}, 0, ''

local function add(id, group, origin, entry, record)
  record.where, record.group, record.entry = where, group, entry
  rows[#rows + 1] = { id, group, origin, entry, cmsgpack.pack(record) }
end

local function add_task(entry, group, score)
  local id = id_of(entry)
  if #rows >= most or (#rows > 0 and bytes > room) then return end
  local task_state = has_state(entry) and call('HGETALL', K.task_state .. id) or {}
  local envelope = call('HGET', K.tasks, id) or nil
  bytes = bytes + (envelope and #envelope or 0)
  local scope = scope_of(id)
  local parked = where == 'dead' and group ~= '' and call('HGET', K.parked, group) or nil
  if parked and cjson.decode(parked)[1] ~= id then parked = nil end
  add(id, group, name_of(id, scope), entry, {
    score = score, envelope = envelope, task_state = task_state, scope = scope, parked = parked,
    late = call('ZSCORE', K.late, id) or nil, start_by = start_by(id), burst = burst_of(entry),
    bodies = call('ZSCORE', K.bodies, id) or nil, staying = call('ZSCORE', K.staying, id) or nil,
    cancel = cancel_of(id) or nil,
  })
end

local function group_of(id) return call('HGET', K.task_state .. id, 'group') or '' end

local function add_letter(id, died) add_task(digits(0) .. '+' .. id, group_of(id), died) end

local function each_member(key, visit)
  local found = call('ZRANGE', key, ARGV[3], ARGV[3] + most - 1, 'WITHSCORES')
  for i = 1, #found, 2 do visit(found[i], digits(found[i + 1])) end
end

local function each_field(key, visit)
  local step = call('HSCAN', key, ARGV[3], 'COUNT', most)
  next_cursor = step[1]
  for i = 1, #step[2], 2 do visit(step[2][i], step[2][i + 1]) end
end

if where == 'plain' or where == 'lane' then
  local key = where == 'plain' and K.plain or K.lane .. name
  local entries = call('LRANGE', key, -(ARGV[3] + most), -(ARGV[3] + 1))
  for i = #entries, 1, -1 do add_task(entries[i], name, sub(entries[i], 1, 16)) end
elseif where == 'letter' then
  local died = call('ZSCORE', K.dead, name)
  where = 'dead'
  if died then add_letter(name, digits(died)) end
elseif where == 'dead' then
  each_member(K.dead, add_letter)
elseif where == 'paused' then
  each_field(K.paused, function(group, note)
    add('', group, '', group, { note = note, ends = call('ZSCORE', K.resumes, group) or nil })
  end)
elseif where == 'drains' then
  each_field(K.drains, function(group, ends) add('', group, '', group, { ends = ends }) end)
elseif where == 'outbox' then
  for _, entry in ipairs(call('LRANGE', K.outbox, ARGV[3], ARGV[3] + most - 1)) do
    local is_sound, told = pcall(cjson.decode, sub(entry, 17))
    local function text(name) return is_sound and type(told[name]) == 'string' and told[name] or '' end
    if #rows == 0 or bytes <= room then add('', text('group'), text('id'), entry, {}) end
    bytes = bytes + #entry
  end
elseif HISTORY[where] then
  each_field(HISTORY[where], function(id, line)
    local is_sound, facts = pcall(cjson.decode, sub(line, 17))
    local group, scope = is_sound and type(facts[3]) == 'string' and facts[3] or '', scope_in(line)
    local result = call('HGET', K.results_new, id) or call('HGET', K.results_old, id) or nil
    add('', group, name_of(id, scope), id, { line = line, scope = scope, result = result })
  end)
elseif where == 'by_hand' then
  each_member(K.by_hand_ends, function(whose)
    add('', byte(whose) == 103 and sub(whose, 2) or '', '', whose, { text = call('HGET', K.by_hand, whose) or nil })
  end)
elseif where == 'schedules' then
  each_member(K.schedules, function(schedule, due)
    local row = K.schedule .. schedule
    local group = call('HGET', row, 'group') or ''
    local record = { due = due, gone = call('HGET', row, 'gone') or nil, row = call('HGETALL', row) }
    add('', group, 'schedule:' .. schedule, schedule, record)
  end)
else
  each_member(key_in(where, name), function(entry, score)
    add_task(entry, where == 'delayed' and group_of(id_of(entry)) or '', score)
  end)
end
return { 1, rows, next_cursor }
