#!lua flags=no-writes
-- schedules: all schedules that lie in this partition, a thousand at most, in the order in which they are due.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     none
-- returns  { at (now), schedules: rows of { name, due, told and runs (JSON), interval, decided, ticks, missed,
--          skipped, paused (JSON), definition, by, presented; rival and rival_at: the daemon with another
--          definition, which doesn't count, and when it last said so } }
local now, rows = clock(), {}
local FIELDS = {
  'told', 'interval', 'decided', 'ticks', 'missed', 'skipped', 'paused', 'definition', 'by', 'presented',
  'rival', 'rival_at',
}
local known = call('ZRANGE', K.schedules, 0, 999, 'WITHSCORES')
for i = 1, #known, 2 do
  local row = K.schedule .. known[i]
  if not call('HGET', row, 'gone') then
    local runs = runs_of(row)
    look_after(runs, now)
    local facts = { name = known[i], due = tonumber(known[i + 1]), runs = #runs > 0 and cjson.encode(runs) or '[]' }
    local values = call('HMGET', row, unpack(FIELDS))
    for n, field in ipairs(FIELDS) do facts[field] = values[n] or nil end
    rows[#rows + 1] = named(facts)
  end
end
return named({ at = now, schedules = rows })
