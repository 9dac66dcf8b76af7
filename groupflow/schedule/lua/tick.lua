#!lua
-- tick: carry out what was decided for a due schedule: its ticks become tasks, and it gets its next due time, in one
-- step. A second call finds another due time, and changes nothing.
--
-- KEYS[1]  what all keys of the partition begin with
-- ARGV     1 to 5 as of `enqueue` · 6 name · 7 definition (digest) · 8 when it is due, as the caller knows it
--          (16 digits) · 9 the last tick that is decided (µs) · 10 when it is due next (µs) · 11 µs from then
--          to the tick behind it · 12 how many weren't made when they were due · then two for each tick that
--          is to be made, the oldest first: when it was due (16 digits) · the same as text
-- returns  { state, now (µs), due (µs), ids of the tasks made, how many were left out since the last one isn't
--          over, 1 if it is paused, ids of those that are dead letters, since their group was full: they count as
--          missed; the arrival (µs) of the newest, 0 if none was made }. The state is MADE, EARLY (by Redis's clock
--          it isn't due yet), PASSED (that due time is decided already) or OTHER (another definition counts)
local refusal = other_layout()
if refusal then return refusal end
local now, name, row = clock(), ARGV[6], K.schedule .. ARGV[6]
local known = call('HMGET', row, 'definition', 'gone', 'paused', 'overlap')
local due = tonumber(call('ZSCORE', K.schedules, name) or 0)
if known[1] ~= ARGV[7] or known[2] then return { 'OTHER', now, due, {}, 0, 0, {}, 0 } end
local is_paused = known[3] and 1 or 0
if digits(due) ~= ARGV[8] then return { 'PASSED', now, due, {}, 0, is_paused, {}, 0 } end
if due > now or tonumber(ARGV[9]) > now then return { 'EARLY', now, due, {}, 0, is_paused, {}, 0 } end
local runs, ticks, skipped = runs_of(row), {}, 0
for i = 13, #ARGV, 2 do
  if is_paused == 0 then
    if known[4] == 'skip' and (#ticks > 0 or is_open(runs[1])) then
      skipped = skipped + 1
    else
      ticks[#ticks + 1] = { ARGV[i], 'schedule:' .. name .. ':' .. ARGV[i + 1], 'tick', ARGV[i + 1] }
    end
  end
end
look_after(runs, now)
local ids, newest, full = {}, 0, {}
if #ticks > 0 then ids, newest, full = make(row, runs, ticks) end
keep_runs(row, runs)
if is_paused == 0 then
  call('HINCRBY', row, 'missed', ARGV[12] + #full)
  call('HINCRBY', row, 'skipped', skipped)
end
call('HSET', row, 'decided', digits(ARGV[9]), 'interval', ARGV[11])
call('ZADD', K.schedules, digits(ARGV[10]), name)
return { 'MADE', now, tonumber(ARGV[10]), ids, skipped, is_paused, full, newest }
