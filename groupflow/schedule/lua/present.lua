#!lua flags=allow-oom
-- present: a daemon says which schedules its configuration has in this partition, and learns of which of them
-- it makes the ticks. A schedule that no daemon has presented for long ends.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 daemon · 2 µs after which a schedule that no daemon presents ends, '' for this call to end none
--          · then four a schedule: name · definition · timing (digests) · when its configuration was loaded (µs)
-- returns  { now (µs), one row a schedule: { state, due (µs), decided (µs), the daemon that presents it, 1 if
--          it is paused }, names that have ended }. The state is OURS, NEW (there is no such row here), CHANGED (its
--          definition is to be written by `define`) or OUTDONE (of a configuration that was loaded later)
local now, daemon = clock(), ARGV[1]
local rows, ended, own = {}, {}, {}
for i = 3, #ARGV, 4 do
  local name, definition, timing, loaded = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local row, state = K.schedule .. name, 'OURS'
  local known = call('HMGET', row, 'definition', 'gone', 'decided', 'by', 'paused')
  own[name] = true
  if not known[1] then
    state = 'NEW'
  elseif not may_take(row, definition, loaded, now) then
    state = 'OUTDONE'
    note_rival(row, daemon, now)
  elseif known[2] then
    state = 'NEW'
  elseif known[1] ~= definition then
    state = 'CHANGED'
  else
    note_present(row, daemon, definition, loaded, now)
    local runs = runs_of(row)
    if look_after(runs, now) then keep_runs(row, runs) end
  end
  rows[#rows + 1] = {
    state, tonumber(call('ZSCORE', K.schedules, name) or 0), tonumber(known[3] or 0), known[4] or '',
    known[5] and 1 or 0,
  }
end
if ARGV[2] ~= '' then
  for _, name in ipairs(call('ZRANGE', K.schedules, 0, 999)) do
    local presented = tonumber(call('HGET', K.schedule .. name, 'presented') or 0)
    if not own[name] and presented < now - ARGV[2] then
      forget_schedule(name)
      ended[#ended + 1] = name
    end
  end
end
return { now, rows, ended }
