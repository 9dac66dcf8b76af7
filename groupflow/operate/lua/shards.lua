#!lua flags=no-writes
-- shards: the states of tasks that are shards of scans.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     an id and its group each
-- returns  { now (µs), a named list a task: place: 'running', 'asleep', 'waiting', 'dead' or 'gone'; context
--          (JSON), due (µs), daemon, if it has them; held: 'paused' or 'parked' if its group is }
local rows = {}
for i = 1, #ARGV, 2 do
  local id, group = ARGV[i], ARGV[i + 1]
  local life = call('HMGET', K.life .. id, 'context', 'due', 'arrival')
  local claim = claims_on(group)[1]
  local element = (life[3] or '') .. '+' .. id
  local place = 'waiting'
  if call('ZSCORE', K.dead, id) then
    place = 'dead'
  elseif call('HEXISTS', K.tasks, id) == 0 then
    place = 'gone'
  elseif claim and claim.element and id_of(claim.element) == id then
    place = 'running'
  elseif call('ZSCORE', K.delayed, element) then
    place = 'asleep'
  end
  local held = call('HEXISTS', K.paused, group) == 1 and 'paused' or call('HEXISTS', K.parked, group) == 1 and 'parked'
  rows[#rows + 1] = named({
    place = place, context = life[1] or nil, due = life[2] or nil, daemon = claim and claim.daemon or nil,
    held = held or nil,
  })
end
return { clock(), rows }
