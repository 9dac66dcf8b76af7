#!lua
-- retire: a schedule is to lie in another partition, since its ticks have another group now. From here on
-- no configuration that was loaded earlier makes ticks of it in this one, even if none ever did.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 name · 3 definition · 4 when its configuration was loaded (µs)
-- returns  { 1, due (µs), decided (µs), what `define` takes of it, packed: '' if nothing was here };
--          { 0, 0, 0, the daemon that presents it } if that of another configuration counts
local refusal = other_layout()
if refusal then return refusal end
local now, daemon, name, definition, loaded = clock(), ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local row = K.schedule .. name
if not may_take(row, definition, loaded, now) then
  note_rival(row, daemon, now)
  return { 0, 0, 0, call('HGET', row, 'by') or '' }
end
local runs = runs_of(row)
if look_after(runs, now) then keep_runs(row, runs) end
local facts, decided = {}, tonumber(call('HGET', row, 'decided') or 0)
for _, field in ipairs({ 'decided', 'runs', 'ticks', 'missed', 'skipped', 'paused' }) do
  local value = call('HGET', row, field)
  if value then facts[#facts + 1], facts[#facts + 2] = field, value end
end
if not call('HGET', row, 'gone') then
  -- The row keeps the due time: this script may run again.
  local due = call('ZSCORE', K.schedules, name)
  if due then call('HSET', row, 'due', digits(due)) end
end
local due = tonumber(call('HGET', row, 'due') or 0)
call('HDEL', row, unpack(MESSAGE))
call('HSET', row, 'gone', '1')
note_present(row, daemon, definition, loaded, now)
call('ZADD', K.schedules, NOT_DUE, name)
return { 1, due, decided, #facts > 0 and cmsgpack.pack(facts) or '' }
