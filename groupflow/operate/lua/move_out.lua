#!lua flags=no-writes
-- move_out: some of what lies in a place, ready to be written elsewhere.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 the place: 'plain', 'ordered', 'suspect_plain', 'delayed', 'dead'; 'lane' and 'hold' of a
--          group; 'pool_ordered' and 'pool_suspect_plain' of a pool; 'letter', a dead letter · 2 that group, pool,
--          or id · 3 how many to pass over, which stay · 4 how many at most · 5 bytes after which it ends
-- returns  { 1, rows of { id, group or '', the id that decides where a plain task lies, element, packed } }; or
--          { 0, names of daemons that run }
local where, from, most, room = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local daemons = living(clock())
if daemons and where ~= 'letter' then return { 0, daemons } end
local rows, bytes = {}, 0

local function add(element, group, score)
  local id = id_of(element)
  if #rows >= most or (#rows > 0 and bytes > room) then return end
  local life = has_life(element) and call('HGETALL', K.life .. id) or {}
  local envelope = call('HGET', K.tasks, id) or nil
  bytes = bytes + (envelope and #envelope or 0)
  local scope = scope_of(id)
  local parked = where == 'dead' and group ~= '' and call('HGET', K.parked, group) or nil
  if parked and cjson.decode(parked)[1] ~= id then parked = nil end
  rows[#rows + 1] = { id, group, name_of(id, scope), element, cmsgpack.pack({
    where = where, score = score, group = group, element = element, envelope = envelope, life = life,
    scope = scope, parked = parked, late = call('ZSCORE', K.late, id) or nil,
    burst = burst_of(element), bodies = call('ZSCORE', K.bodies, id) or nil,
    staying = call('ZSCORE', K.staying, id) or nil,
  }) }
end

local function group_of(id) return call('HGET', K.life .. id, 'group') or '' end

local function add_letter_of(id, died) add(digits(0) .. '+' .. id, group_of(id), digits(died)) end

if where == 'plain' or where == 'lane' then
  local key = where == 'plain' and K.plain or K.lane .. ARGV[2]
  local elements = call('LRANGE', key, -(from + most), -(from + 1))
  for i = #elements, 1, -1 do add(elements[i], ARGV[2], sub(elements[i], 1, 16)) end
elseif where == 'letter' then
  local died = call('ZSCORE', K.dead, ARGV[2])
  where = 'dead'
  if died then add_letter_of(ARGV[2], died) end
elseif where == 'hold' then
  local note = call('HGET', K.paused, ARGV[2])
  if note then
    local packed = cmsgpack.pack({ where = where, group = ARGV[2], note = note, element = '' })
    rows[1] = { '', ARGV[2], '', '', packed }
  end
else
  local members = call('ZRANGE', key_in(where, ARGV[2]), from, from + most - 1, 'WITHSCORES')
  for i = 1, #members, 2 do
    if where == 'dead' then
      add_letter_of(members[i], members[i + 1])
    else
      add(members[i], where == 'delayed' and group_of(id_of(members[i])) or '', digits(members[i + 1]))
    end
  end
end
return { 1, rows }
