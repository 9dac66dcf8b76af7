#!lua
-- define: write the definition of a schedule that begins here, or that a configuration has changed. Its due
-- time stays, unless the timing has changed.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 name · 3 definition · 4 timing (digests) · 5 when its configuration was loaded (µs)
--          · 6 when it is due, if it begins here or its timing has changed (µs) · 7 what `retire` packed
--          in the partition where it lay before, '' for none · then its message, in the order of MESSAGE
-- returns  { now (µs), 1 if it is written, 0 if that of another configuration counts, due (µs) }
local refusal = other_layout()
if refusal then return refusal end
local now, daemon, name, definition = clock(), ARGV[1], ARGV[2], ARGV[3]
local timing, loaded, row = ARGV[4], ARGV[5], K.schedule .. ARGV[2]
if not may_take(row, definition, loaded, now) then
  note_rival(row, daemon, now)
  return { now, 0, 0 }
end
local known = call('HMGET', row, 'definition', 'timing', 'gone', 'decided')
if not known[1] or known[3] then
  call('HDEL', row, 'gone')
  call('HSET', row, 'decided', known[4] or digits(now))
  local facts = ARGV[7] ~= '' and cmsgpack.unpack(ARGV[7]) or {}
  -- Where less was decided there, they are of the time before.
  if facts[1] == 'decided' and facts[2] >= (known[4] or '') then
    call('HDEL', row, 'runs', 'ticks', 'missed', 'skipped', 'paused')
    call('HSET', row, unpack(facts))
  end
end
if not known[1] or known[3] or known[2] ~= timing then call('ZADD', K.schedules, digits(ARGV[6]), name) end
note_present(row, daemon, definition, loaded, now)
call('HSET', row, 'timing', timing)
for i, field in ipairs(MESSAGE) do call('HSET', row, field, ARGV[7 + i]) end
return { now, 1, tonumber(call('ZSCORE', K.schedules, name)) }
